//! Owner of a live object: an object is applied only if no other owner controls it.

use serde_json::Value;

use crate::managed_fields::is_managed_by;
use crate::object::{controller_of, controller_uid, metadata_field};

/// Owner of an object that another owner desires too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectOwner {
    /// The controller in the owner references of the object.
    Controller {
        /// Kind of the controller.
        kind: String,
        /// Name of the controller.
        name: String,
    },
    /// Another field manager; the object has no controller.
    FieldManager,
}

/// Returns the owner of `live` unless it is `owner`. An object without a controller is ours only if `manager` applied it
/// before: its owner was deleted with `--cascade=orphan` and created again.
pub(crate) fn other_owner(live: &Value, owner: &Value, manager: &str) -> Option<ObjectOwner> {
    match controller_of(live) {
        Some(_) if controller_uid(live) == Some(metadata_field(owner, "uid")) => None,
        Some(controller) => Some(ObjectOwner::Controller {
            kind: controller["kind"].as_str().unwrap_or_default().to_owned(),
            name: controller["name"].as_str().unwrap_or_default().to_owned(),
        }),
        None if is_managed_by(live, manager) => None,
        None => Some(ObjectOwner::FieldManager),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn controlled_by(uid: &str) -> Value {
        json!({"metadata": {"ownerReferences": [{"controller": true, "kind": "Job", "name": "j", "uid": uid}]}})
    }

    fn job() -> ObjectOwner {
        ObjectOwner::Controller { kind: "Job".to_owned(), name: "j".to_owned() }
    }

    #[rstest]
    #[case::own_object(controlled_by("me"), None)]
    #[case::other_controller(controlled_by("them"), Some(job()))]
    #[case::no_controller(json!({"metadata": {}}), Some(ObjectOwner::FieldManager))]
    #[case::own_orphan(json!({"metadata": {"managedFields": [{"manager": "us", "operation": "Apply"}]}}), None)]
    fn other_owners_are_detected(#[case] live: Value, #[case] expect: Option<ObjectOwner>) {
        let owner = json!({"metadata": {"uid": "me"}});
        assert_eq!(other_owner(&live, &owner, "us"), expect);
    }
}
