//! Cycles of owners that wait for each other in a foreground deletion.
//!
//! Each object of such a cycle blocks the deletion of the next one. A depth-first search along the blocked owners finds the
//! references that close a cycle; without these references, no cycle remains.

use std::collections::BTreeMap;

use apimachinery::object;
use serde_json::Value;

use super::consequence::Consequence;
use crate::core::Core;
use crate::store::ObjectKey;

/// A search for cycles. It visits each object once, so it takes linear time for all objects together.
pub(super) struct CycleSearch<'a> {
    core: &'a Core,
    /// Progress by UID.
    progress: BTreeMap<String, Progress>,
}

/// Progress of the search at an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The search has reached the object and not yet all of its owners.
    OnPath,
    /// The object is in no cycle, except for the references that were found.
    Finished,
}

/// A terminating object that waits for its dependents.
struct WaitingObject {
    key: ObjectKey,
    uid: String,
    /// UIDs of the blocked owners that the search has not visited from here.
    unvisited_owners: Vec<String>,
    /// UIDs of the blocked owners that wait for the object.
    cyclic_owners: Vec<String>,
}

// === impl CycleSearch ===

impl<'a> CycleSearch<'a> {
    pub(super) fn new(core: &'a Core) -> Self {
        Self { core, progress: BTreeMap::new() }
    }

    /// Searches the owners of an object, and their owners, for objects that wait for each other. Returns the steps after
    /// which they do not.
    pub(super) fn unblock(&mut self, key: &ObjectKey) -> Vec<Consequence> {
        let mut steps = Vec::new();
        let mut path: Vec<WaitingObject> = self.visit(key).into_iter().collect();
        while let Some(last) = path.last_mut() {
            match last.unvisited_owners.pop() {
                Some(owner) if self.progress.get(&owner) == Some(&Progress::OnPath) => last.cyclic_owners.push(owner),
                Some(owner) => path.extend(self.visit_owner(&owner)),
                None => {
                    self.progress.insert(last.uid.clone(), Progress::Finished);
                    steps.extend(path.pop().and_then(WaitingObject::into_step));
                }
            }
        }
        steps
    }

    fn visit_owner(&mut self, uid: &str) -> Option<WaitingObject> {
        let owner = self.core.store.find_by_uid(uid).filter(|owner| owner.waits_for_dependents)?;
        self.visit(&owner.key)
    }

    /// Returns an object if it waits for its dependents and has not been visited.
    fn visit(&mut self, key: &ObjectKey) -> Option<WaitingObject> {
        let object = self.core.store.get(key).filter(|object| object::waits_for_dependents(object))?;
        let uid = object::uid(&object).to_owned();
        if self.progress.contains_key(&uid) {
            return None;
        }
        self.progress.insert(uid.clone(), Progress::OnPath);
        let unvisited_owners = blocked_owners(&object).map(str::to_owned).collect();
        Some(WaitingObject { key: key.clone(), uid, unvisited_owners, cyclic_owners: Vec::new() })
    }
}

/// Returns the UIDs of the owners whose deletion in the foreground waits for the object.
fn blocked_owners(object: &Value) -> impl Iterator<Item = &str> {
    let blocking = object::owner_references(object).filter(|owner| owner["blockOwnerDeletion"] == true);
    blocking.map(|owner| object::text(owner, "/uid"))
}

// === impl WaitingObject ===

impl WaitingObject {
    /// Returns the step after which the owners that wait for the object are not blocked by it.
    fn into_step(self) -> Option<Consequence> {
        let Self { key, uid, cyclic_owners: owner_uids, .. } = self;
        (!owner_uids.is_empty()).then_some(Consequence::UnblockOwners { key, uid, owner_uids })
    }
}
