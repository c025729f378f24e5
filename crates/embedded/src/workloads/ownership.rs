//! Who controls an object, and which objects of a kind belong to a controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::selector::LabelSelector;
use serde_json::{Value, json};

use crate::object;

/// The controlling entry of `ownerReferences`.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    object::owner_references(object).find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
}

/// A reference that makes `owner` the controller.
pub(crate) fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": object::text(owner, "/apiVersion"),
        "kind": object::text(owner, "/kind"),
        "name": object::name(owner),
        "uid": object::uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Whether `owner` controls `object`, by UID.
pub(crate) fn controls(owner: &Value, object: &Value) -> bool {
    controller(object).is_some_and(|reference| object::text(reference, "/uid") == object::uid(owner))
}

/// `metadata.labels`.
pub(crate) fn labels(object: &Value) -> BTreeMap<String, String> {
    string_map(object.pointer("/metadata/labels"))
}

/// The string members of a JSON object.
pub(crate) fn string_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// What a controller sees of the objects it could own.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// Controlled by the owner and matching its selector, adopted ones included.
    pub(crate) owned: Vec<Arc<Value>>,
    /// To write: orphans that are adopted, and owned objects that no longer match and are released.
    pub(crate) changed: Vec<Value>,
}

/// Sorts `objects` of the owner's namespace as `PodControllerRefManager` does: adopt matching orphans (unless the owner
/// or the orphan is going), release what no longer matches, leave alone what somebody else controls.
pub(crate) fn claim(owner: &Value, selector: &LabelSelector, objects: &[Arc<Value>]) -> Claim {
    let mut claim = Claim::default();
    for object in objects.iter().filter(|object| object::namespace(object) == object::namespace(owner)) {
        let matches = selector.matches(&labels(object));
        match controller(object) {
            Some(_) if controls(owner, object) && matches => claim.owned.push(Arc::clone(object)),
            Some(_) if controls(owner, object) && !object::is_deleting(owner) => {
                claim.changed.push(released(owner, object));
            }
            None if matches && !object::is_deleting(owner) && !object::is_deleting(object) => {
                let adopted = adopted(owner, object);
                claim.owned.push(Arc::new(adopted.clone()));
                claim.changed.push(adopted);
            }
            _ => {}
        }
    }
    claim
}

fn adopted(owner: &Value, object: &Value) -> Value {
    let mut references: Vec<Value> = object::owner_references(object).cloned().collect();
    references.push(reference(owner));
    with_references(object, references)
}

fn released(owner: &Value, object: &Value) -> Value {
    let others = object::owner_references(object).filter(|r| object::text(r, "/uid") != object::uid(owner));
    with_references(object, others.cloned().collect())
}

fn with_references(object: &Value, references: Vec<Value>) -> Value {
    let mut object = object.clone();
    let references = (!references.is_empty()).then_some(Value::Array(references));
    object::set_metadata(&mut object, "ownerReferences", references);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphans_are_adopted_strangers_released_and_others_left() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a", "uid": "1", "namespace": "n"}});
        let selector = LabelSelector::from_json(&json!({"matchLabels": {"app": "a"}})).unwrap();
        let pod = |name: &str, app: &str, owner: Option<&Value>| {
            let owners = owner.map_or(json!([]), |owner| json!([reference(owner)]));
            Arc::new(
                json!({"metadata": {"name": name, "namespace": "n", "labels": {"app": app}, "ownerReferences": owners}}),
            )
        };
        let other = json!({"kind": "ReplicaSet", "metadata": {"name": "b", "uid": "2"}});
        let pods = [
            pod("mine", "a", Some(&owner)),
            pod("orphan", "a", None),
            pod("strayed", "z", Some(&owner)),
            pod("theirs", "a", Some(&other)),
        ];
        let claim = claim(&owner, &selector, &pods);
        let names: Vec<&str> = claim.owned.iter().map(|p| object::name(p)).collect();
        assert_eq!(names, ["mine", "orphan"]);
        assert_eq!(claim.changed.len(), 2);
        assert!(controls(&owner, &claim.changed[0]));
        assert!(controller(&claim.changed[1]).is_none());
    }
}
