//! What changed since the pools were last updated.

use std::{collections::BTreeMap, sync::Arc};

use cluster::{Change, Kind, NamespacedName, metadata_field};
use serde_json::Value;

use crate::{kinds::POD, pod::has_terminated};

/// Changes since the pools were last updated.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PendingChanges {
    /// Whether an object other than a Pod changed, or a first list is complete, so that the pools are built again.
    pub(super) requires_rebuild: bool,
    /// Changed Pods; `None` for deleted ones.
    pub(super) pods: BTreeMap<NamespacedName, Option<Arc<Value>>>,
    /// UIDs of Pods that will not run anymore.
    pub(super) ended_pods: Vec<String>,
    /// Objects of which only the status changed.
    pub(super) statuses: Vec<(Kind, NamespacedName)>,
}

// === impl PendingChanges ===

impl PendingChanges {
    /// Adds a change.
    pub(super) fn add(&mut self, change: Change) {
        match change {
            Change::Object { kind, key, old, new } if kind == POD => {
                let uid = |pod: &Option<Arc<Value>>| pod.as_ref().map(|pod| metadata_field(pod, "uid").to_owned());
                let runs = new.as_ref().is_some_and(|pod| !has_terminated(pod)) && uid(&old) == uid(&new);
                self.ended_pods.extend(uid(&old).filter(|_| !runs));
                self.pods.insert(key, new);
            }
            Change::Object { kind, key, old: Some(old), new: Some(new) } if is_same_definition(&old, &new) => {
                self.statuses.push((kind, key));
            }
            Change::Object { .. } | Change::Synced(_) => self.requires_rebuild = true,
        }
    }
}

/// Returns whether two versions of a pool, its use cases or its configuration differ in their status only.
fn is_same_definition(old: &Value, new: &Value) -> bool {
    let metadata = ["uid", "creationTimestamp", "labels", "annotations"];
    ["spec", "data"].iter().all(|field| old[field] == new[field])
        && metadata.iter().all(|field| old["metadata"][field] == new["metadata"][field])
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::kinds::{BACKEND_POOL, PICKER_CONFIG, USE_CASE, USE_CASE_SET};

    fn pod(uid: &str, phase: &str) -> Option<Arc<Value>> {
        Some(Arc::new(json!({"metadata": {"namespace": "ns", "name": "p", "uid": uid}, "status": {"phase": phase}})))
    }

    #[rstest]
    #[case::created(None, pod("a", "Pending"), &[])]
    #[case::changed(pod("a", "Pending"), pod("a", "Running"), &[])]
    #[case::ended(pod("a", "Running"), pod("a", "Failed"), &["a"])]
    #[case::deleted(pod("a", "Running"), None, &["a"])]
    #[case::recreated(pod("a", "Running"), pod("b", "Running"), &["a"])]
    fn changes_of_pods_require_no_rebuild(
        #[case] old: Option<Arc<Value>>,
        #[case] new: Option<Arc<Value>>,
        #[case] ended: &[&str],
    ) {
        let (mut changes, key) = (PendingChanges::default(), NamespacedName::new("ns", "p"));
        changes.add(Change::Object { kind: POD, key: key.clone(), old, new: new.clone() });
        let ended_pods = ended.iter().map(|uid| (*uid).to_owned()).collect();
        assert_eq!(changes, PendingChanges { pods: [(key, new)].into(), ended_pods, ..PendingChanges::default() });
    }

    #[rstest]
    #[case::status("/status/endpoints", json!(1), false)]
    #[case::resource_version("/metadata/resourceVersion", json!("2"), false)]
    #[case::spec("/spec/targetPorts", json!([1]), true)]
    #[case::data("/data/config", json!("other"), true)]
    #[case::configuration("/metadata/annotations/ostler.io~1picker-config", json!("other"), true)]
    #[case::recreated("/metadata/uid", json!("b"), true)]
    fn changes_of_the_definition_require_a_rebuild(
        #[values(BACKEND_POOL, USE_CASE, USE_CASE_SET, PICKER_CONFIG)] kind: Kind,
        #[case] field: &str,
        #[case] value: Value,
        #[case] expect: bool,
    ) {
        let metadata = json!({"uid": "a", "resourceVersion": "1", "annotations": {"ostler.io/picker-config": "c"}});
        let old = json!({"metadata": metadata, "spec": {"targetPorts": [8000]}, "data": {"config": "c"},
            "status": {"endpoints": 0}});
        let mut new = old.clone();
        *new.pointer_mut(field).unwrap() = value;
        let (mut changes, key) = (PendingChanges::default(), NamespacedName::new("ns", "p"));
        let [old, new] = [old, new].map(|object| Some(Arc::new(object)));
        changes.add(Change::Object { kind, key, old, new });
        assert_eq!((changes.requires_rebuild, changes.statuses.is_empty()), (expect, expect));
    }
}
