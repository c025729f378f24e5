//! Finds objects that an owner created and no longer desires.
//!
//! Only objects with a recorded identity are candidates; see the header of `owner.rs`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Kind;
use crate::namespaced_name::NamespacedName;
use crate::object::{is_terminating, kind_and_name, metadata_field};
use crate::stores::Stores;

/// An object to delete, with preconditions for the inspected version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PruneCandidate {
    /// Kind of the object.
    pub(crate) kind: Kind,
    /// Namespace and name.
    pub(crate) key: NamespacedName,
    /// UID precondition: an object of the same name that was created later is not deleted.
    pub(crate) uid: String,
    /// Resource version precondition: an object that changed may have been adopted by another owner.
    pub(crate) resource_version: String,
    /// `Kind namespace/name`.
    pub(crate) object: String,
}

/// The objects of an owner that it no longer desires, ordered by kind and key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ObsoleteObjects {
    /// The objects to delete.
    pub(crate) candidates: Vec<PruneCandidate>,
    /// The objects without a recorded identity: they may be copies, and are retained.
    pub(crate) unrecorded: Vec<(Kind, NamespacedName)>,
}

/// Returns the objects of `kinds` that `owner` owns and that are not in `retained`. Those in `identified` need no recorded
/// identity.
#[must_use]
pub(crate) fn obsolete_objects(
    stores: &Stores,
    kinds: &[Kind],
    owner: &Value,
    retained: &BTreeSet<(Kind, NamespacedName)>,
    identified: &BTreeSet<(Kind, NamespacedName)>,
) -> ObsoleteObjects {
    let mut obsolete = ObsoleteObjects::default();
    for kind in kinds {
        for object in stores.list_owned_by(*kind, owner) {
            let key = NamespacedName::from_object(&object);
            let entry = (*kind, key);
            if is_terminating(&object) || retained.contains(&entry) {
                continue;
            }
            if !identified.contains(&entry) && !stores.has_recorded_identity(&object) {
                obsolete.unrecorded.push(entry);
                continue;
            }
            let (_, key) = entry;
            obsolete.candidates.push(PruneCandidate {
                kind: *kind,
                key,
                uid: metadata_field(&object, "uid").to_owned(),
                resource_version: metadata_field(&object, "resourceVersion").to_owned(),
                object: kind_and_name(&object),
            });
        }
    }
    obsolete
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::IDENTITY_ANNOTATION;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");

    fn service(name: &str, owner: &str) -> Value {
        json!({"kind": "Service", "metadata": {"namespace": "n", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": "5", "annotations": {IDENTITY_ANNOTATION: format!("Service/n/{name}")},
            "ownerReferences": [{"controller": true, "uid": owner}], "managedFields": [{"manager": "us", "operation": "Apply"}]}})
    }

    #[test]
    fn prunes_owned_objects_that_are_not_retained() {
        let stores = Stores::new("us");
        let (mut terminating, mut copy) = (service("terminating", "me"), service("copy", "me"));
        let (mut copy_of_name, mut copy_of_namespace) = (service("renamed", "me"), service("old", "me"));
        // An object of an earlier release, or a copy of one.
        let mut unrecorded = service("chat-engine-old", "me");
        unrecorded["metadata"].as_object_mut().unwrap().remove("annotations");
        copy_of_name["metadata"]["annotations"] = json!({IDENTITY_ANNOTATION: "Service/n/old"});
        copy_of_namespace["metadata"]["namespace"] = json!("m");
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        copy["metadata"]["managedFields"][0]["manager"] = json!("kubectl-create");
        for object in [
            service("retained", "me"),
            service("old", "me"),
            service("foreign", "them"),
            terminating,
            copy,
            copy_of_name,
            copy_of_namespace,
            unrecorded,
        ] {
            let _ = stores.apply_event(SERVICE, Event::Apply(object));
        }
        let retained = BTreeSet::from([(SERVICE, NamespacedName::new("n", "retained"))]);
        let owner = |uid: &str| json!({"metadata": {"namespace": "n", "uid": uid}});
        let key = |name: &str| (SERVICE, NamespacedName::new("n", name));
        let obsolete = |uid: &str, identified: &[(Kind, NamespacedName)]| {
            let identified = identified.iter().cloned().collect();
            let obsolete = obsolete_objects(&stores, &[SERVICE], &owner(uid), &retained, &identified);
            let names = obsolete.candidates.into_iter().map(|candidate| (candidate.key.name, candidate.uid));
            (names.collect::<Vec<_>>(), obsolete.unrecorded)
        };
        let old = ("old".to_owned(), "uid-old".to_owned());
        assert_eq!(obsolete("me", &[]), (vec![old.clone()], vec![key("chat-engine-old")]));
        assert_eq!(obsolete("", &[]), (Vec::new(), Vec::new()));
        let unrecorded = ("chat-engine-old".to_owned(), "uid-chat-engine-old".to_owned());
        let identified = [key("chat-engine-old"), key("renamed"), key("foreign"), key("copy")];
        assert_eq!(obsolete("me", &identified), (vec![unrecorded, old], Vec::new()), "ownership is required");
    }
}
