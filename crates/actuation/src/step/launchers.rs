//! Launchers: their instances are followed, and those that are not bound are deleted once they fail or are not used any longer.

use std::time::Duration;

use apimachinery::time::duration_until;

use super::context::{CALL_TIMEOUT, Context, MAX_FAILURES};
use super::outcome::{Outcome, earliest};
use crate::call::Request;
use crate::container::ContainerPhase;
use crate::delete_purpose::DeletePurpose;
use crate::node::{Availability, LauncherState};
use crate::write;

/// Timeout of a request that waits for a change. It has no effects, so that it may outlast a term.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the outcome for the launchers of the node, if there are any.
pub(super) fn rule(context: &Context) -> Option<Outcome> {
    if context.node.availability == Availability::Gone {
        return None;
    }
    let outcomes = context.node.launchers.values().map(|state| context.delay_rejected(launcher(context, state)));
    outcomes.reduce(|first, second| Outcome {
        again: earliest(first.again, second.again),
        action: first.action.or(second.action),
        problems: Vec::new(),
    })
}

fn launcher(context: &Context, state: &LauncherState) -> Outcome {
    let provider = &state.launcher.provider;
    let has_engine = context
        .node
        .engines
        .values()
        .any(|engine| engine.provider.pod.uid == provider.pod.uid && engine.provider.binding.is_some());
    if !has_engine && (provider.has_finalizer() || provider.binding.is_some()) {
        // A finalizer or a binding without an engine, after an edit of the annotations.
        return Outcome::write(write::unbind(provider, false, context.now));
    }
    if state.is_deletion_sent || provider.is_terminating {
        return Outcome::wait();
    }
    let is_failed = provider.container.phase == ContainerPhase::Terminated || state.facts.failures >= MAX_FAILURES;
    if is_failed && provider.binding.is_none() {
        return context.delete_launcher(state, DeletePurpose::LauncherFailed);
    }
    let after = state.facts.revision;
    let timeout = if after.is_some() { FOLLOW_TIMEOUT } else { CALL_TIMEOUT };
    let follow = context.call_launcher(state, Request::Instances { after }, timeout);
    match expiry(context, state) {
        _ if follow.action.is_some() => follow,
        expiry => Outcome { again: earliest(follow.again, expiry.again), ..expiry },
    }
}

/// Deletes a launcher without engines after the time for which engines may sleep.
fn expiry(context: &Context, state: &LauncherState) -> Outcome {
    let provider = &state.launcher.provider;
    let is_unused = provider.binding.is_none() && state.launcher.records.is_empty() && state.facts.instances.is_empty();
    let Some(ttl) = context.settings.sleeper_ttl.filter(|_| is_unused) else { return Outcome::wait() };
    let Ok(end) = provider.last_used().checked_add(ttl) else { return Outcome::wait() };
    match duration_until(end, context.now).is_zero() {
        true => context.delete_launcher(state, DeletePurpose::Expired),
        false => Outcome::wait_until(end),
    }
}
