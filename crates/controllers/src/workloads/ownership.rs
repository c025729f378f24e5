//! Controller references, and adoption and release of objects.

use std::sync::Arc;

use apimachinery::{LabelSelector, object};
use serde_json::{Value, json};

/// Returns an owner reference that makes `owner` the controller (`metav1.NewControllerRef`).
pub(crate) fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": object::text(owner, "/apiVersion"),
        "kind": object::text(owner, "/kind"),
        "name": object::name(owner),
        "uid": object::uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Whether `owner` controls `object`, compared by UID (`metav1.IsControlledBy`).
pub(crate) fn controls(owner: &Value, object: &Value) -> bool {
    object::controller_of(object).is_some_and(|reference| object::text(reference, "/uid") == object::uid(owner))
}

/// The objects of a controller after adoption and release.
#[derive(Debug, Default)]
pub(crate) struct ClaimedObjects {
    /// Objects that the owner controls and its selector matches, including adopted ones.
    pub(crate) owned: Vec<Arc<Value>>,
    /// Objects to update: adopted orphans, and released objects that no longer match.
    pub(crate) updates: Vec<Value>,
}

/// Claims `objects` in the namespace of the owner as `PodControllerRefManager` does: adopts matching orphans (unless
/// the owner or the orphan is being deleted), releases objects that no longer match, and ignores objects of other
/// controllers.
pub(crate) fn claim_objects(owner: &Value, selector: &LabelSelector, objects: &[Arc<Value>]) -> ClaimedObjects {
    let mut claim = ClaimedObjects::default();
    for object in objects.iter().filter(|object| object::namespace(object) == object::namespace(owner)) {
        let matches = selector.matches(&object::labels(object));
        match object::controller_of(object) {
            Some(_) if controls(owner, object) && matches => claim.owned.push(Arc::clone(object)),
            Some(_) if controls(owner, object) && !object::is_deleting(owner) => {
                claim.updates.push(release(owner, object));
            }
            None if matches && !object::is_deleting(owner) && !object::is_deleting(object) => {
                let adopted = adopt(owner, object);
                claim.owned.push(Arc::new(adopted.clone()));
                claim.updates.push(adopted);
            }
            _ => {}
        }
    }
    claim
}

/// Returns the object with the owner as its controller.
fn adopt(owner: &Value, object: &Value) -> Value {
    let mut references: Vec<Value> = object::owner_references(object).cloned().collect();
    references.push(controller_reference(owner));
    with_owner_references(object, references)
}

/// Returns the object without the reference to the owner.
fn release(owner: &Value, object: &Value) -> Value {
    let remaining =
        object::owner_references(object).filter(|reference| object::text(reference, "/uid") != object::uid(owner));
    with_owner_references(object, remaining.cloned().collect())
}

fn with_owner_references(object: &Value, references: Vec<Value>) -> Value {
    let mut object = object.clone();
    let references = (!references.is_empty()).then_some(Value::Array(references));
    object::set_metadata_field(&mut object, "ownerReferences", references);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopts_orphans_releases_mismatches_and_ignores_others() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a", "uid": "1", "namespace": "n"}});
        let selector = LabelSelector::from_json(&json!({"matchLabels": {"app": "a"}})).unwrap();
        let pod = |name: &str, app: &str, owner: Option<&Value>| {
            let owner_references = owner.map_or(json!([]), |owner| json!([controller_reference(owner)]));
            Arc::new(
                json!({"metadata": {"name": name, "namespace": "n", "labels": {"app": app}, "ownerReferences": owner_references}}),
            )
        };
        let other_owner = json!({"kind": "ReplicaSet", "metadata": {"name": "b", "uid": "2"}});
        let pods = [
            pod("mine", "a", Some(&owner)),
            pod("orphan", "a", None),
            pod("strayed", "z", Some(&owner)),
            pod("theirs", "a", Some(&other_owner)),
        ];
        let claim = claim_objects(&owner, &selector, &pods);
        let names: Vec<&str> = claim.owned.iter().map(|p| object::name(p)).collect();
        assert_eq!(names, ["mine", "orphan"]);
        assert_eq!(claim.updates.len(), 2);
        assert!(controls(&owner, &claim.updates[0]));
        assert!(object::controller_of(&claim.updates[1]).is_none());
    }
}
