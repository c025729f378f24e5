//! Groups that have lost a worker.

use std::collections::BTreeSet;

use apimachinery::object;
use apiserver::{Change, Server};
use serde_json::Value;

use super::labels::NAME;

/// The UIDs of the leaders that exist although a worker of theirs was removed. A removal without a grace period, for example
/// because the node no longer exists, leaves no terminating Pod that a reconcile could observe. Removals that are not observed, before
/// a start or while changes are lost, leave a group whose worker is created again.
#[derive(Debug, Default)]
pub(crate) struct BrokenGroups(BTreeSet<String>);

// === impl BrokenGroups ===

impl BrokenGroups {
    /// Records the removal of a Pod.
    pub(crate) fn observe(&mut self, server: &Server, change: &Change) {
        let Some(pod) = change.old.as_ref().filter(|_| change.resource == "pods" && change.new.is_none()) else {
            return;
        };
        self.0.remove(object::uid(pod));
        let Some(owner) = object::controller_of(pod).filter(|_| object::label(pod, NAME).is_some()) else { return };
        let (kind, uid) = (object::text(owner, "/kind"), object::text(owner, "/uid"));
        let leader = server.get("pods", &change.namespace, object::text(owner, "/name"));
        if kind == "Pod" && leader.is_some_and(|leader| object::uid(&leader) == uid) {
            self.0.insert(uid.to_owned());
        }
    }

    /// Forgets leaders that no longer exist, after changes have been lost.
    pub(crate) fn resync(&mut self, server: &Server) {
        let existing: BTreeSet<String> = server.list("pods").iter().map(|pod| object::uid(pod).to_owned()).collect();
        self.0.retain(|uid| existing.contains(uid));
    }

    /// Returns whether a worker of this leader was removed.
    pub(super) fn contains(&self, leader: &Value) -> bool {
        self.0.contains(object::uid(leader))
    }
}
