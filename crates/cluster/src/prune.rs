//! What an owner made once and wants no more.

use std::collections::BTreeSet;

use crate::Kind;
use crate::object::{describe, meta, terminating};
use crate::stores::{Key, Stores};

/// An object to delete, pinned to the very incarnation that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doomed {
    /// Its kind.
    pub kind: Kind,
    /// Its key.
    pub key: Key,
    /// Its UID: an object of the same name made later is another one.
    pub uid: String,
    /// Its version: whoever changed it since may have taken it over.
    pub resource_version: String,
    /// `Kind namespace/name`.
    pub what: String,
}

/// Objects of `kinds` whose controller is `owner_uid` and that are not in `wanted`, in order of kind and key.
/// An owner without a UID owns nothing.
#[must_use]
pub fn doomed(stores: &Stores, kinds: &[Kind], owner_uid: &str, wanted: &BTreeSet<(Kind, Key)>) -> Vec<Doomed> {
    let mut found = Vec::new();
    for kind in kinds {
        let owned = if owner_uid.is_empty() { Vec::new() } else { stores.owned(*kind, owner_uid) };
        for object in owned {
            let key = Key::of(&object);
            if !terminating(&object) && !wanted.contains(&(*kind, key.clone())) {
                found.push(Doomed {
                    kind: *kind,
                    key,
                    uid: meta(&object, "uid").to_owned(),
                    resource_version: meta(&object, "resourceVersion").to_owned(),
                    what: describe(&object),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");

    fn service(name: &str, owner: &str) -> Value {
        json!({"metadata": {"namespace": "n", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "5",
            "ownerReferences": [{"controller": true, "uid": owner}]}})
    }

    #[test]
    fn only_what_the_owner_made_and_wants_no_more() {
        let stores = Stores::new("us");
        let mut going = service("going", "me");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        for object in [service("kept", "me"), service("old", "me"), service("theirs", "them"), going] {
            let _ = stores.accept(SERVICE, Event::Apply(object));
        }
        let wanted = BTreeSet::from([(SERVICE, Key::new("n", "kept"))]);
        let names: Vec<_> =
            doomed(&stores, &[SERVICE], "me", &wanted).into_iter().map(|one| (one.key.name, one.uid)).collect();
        assert_eq!(names, [("old".to_owned(), "uid-old".to_owned())]);
        assert!(doomed(&stores, &[SERVICE], "", &wanted).is_empty());
    }
}
