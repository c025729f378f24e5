//! How long requesters wait for their engines.

use std::time::Duration;

use jiff::Timestamp;

use crate::call::{Call, Request, Target};
use crate::coordinator::Coordinator;
use crate::metrics::ActuationPath;
use crate::names::provider_name;

/// Returns how a requester got its engine and how long that took, if `call`, which was answered at `now`, is the first one that
/// reports to it that its engine is ready.
pub(super) fn completed_actuation(
    coordinator: &Coordinator,
    call: &Call,
    now: Timestamp,
) -> Option<(ActuationPath, Duration)> {
    let (Target::Requester(uid), Request::Ready(true)) = (&call.target, &call.request) else { return None };
    let node = coordinator.node(&call.node)?;
    let requester = node.servers.get(uid)?.requester.as_ref()?;
    // The label is set after the first report.
    if requester.dual.is_some() {
        return None;
    }
    let engine = node.bound_engines(uid).next()?;
    let is_own = engine.provider.pod.name == provider_name(&requester.pod.name, uid);
    let path = match is_own {
        true => ActuationPath::Cold,
        false if engine.facts.instance.is_new => ActuationPath::Warm,
        false => ActuationPath::Hot,
    };
    Some((path, apimachinery::time::duration_until(now, requester.container.started?)))
}
