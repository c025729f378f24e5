//! Owner of a live object: an object is applied or deleted only if our field manager applied it and no other owner
//! controls it. Labels, annotations and owner references alone prove nothing, because a copy of an object has them too.

use serde_json::Value;

use crate::managed_fields::is_managed_by;
use crate::object::{controller_of, metadata_field};

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
    /// Another field manager: ours never applied the object.
    FieldManager,
}

/// Returns the owner of `live` unless it is `owner`, or unless no owner is expected. An object that `manager` applied and
/// that lost its controller belongs to `owner`, which was deleted with `--cascade=orphan` and created again.
pub(crate) fn other_owner(live: &Value, owner: Option<&Value>, manager: &str) -> Option<ObjectOwner> {
    match controller_of(live) {
        Some(controller) if owner.is_none_or(|owner| !is_reference_to(controller, owner)) => {
            Some(ObjectOwner::Controller {
                kind: controller["kind"].as_str().unwrap_or_default().to_owned(),
                name: controller["name"].as_str().unwrap_or_default().to_owned(),
            })
        }
        _ if is_managed_by(live, manager) => None,
        _ => Some(ObjectOwner::FieldManager),
    }
}

fn is_reference_to(reference: &Value, owner: &Value) -> bool {
    let uid = metadata_field(owner, "uid");
    !uid.is_empty() && reference["uid"] == uid
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn live(controller: Option<&str>, manager: &str) -> Value {
        let reference = |uid| json!({"controller": true, "kind": "Job", "name": "j", "uid": uid});
        json!({"metadata": {"ownerReferences": controller.map(reference).into_iter().collect::<Vec<_>>(),
            "managedFields": [{"manager": manager, "operation": "Apply"}]}})
    }

    fn job() -> Option<ObjectOwner> {
        Some(ObjectOwner::Controller { kind: "Job".to_owned(), name: "j".to_owned() })
    }

    #[rstest]
    #[case::own_object(Some("me"), "us", None, job())]
    #[case::copied_owner_reference(Some("me"), "kubectl", Some(ObjectOwner::FieldManager), job())]
    #[case::other_controller(Some("them"), "kubectl", job(), job())]
    #[case::adopted_by_other_controller(Some("them"), "us", job(), job())]
    #[case::no_controller(None, "kubectl", Some(ObjectOwner::FieldManager), Some(ObjectOwner::FieldManager))]
    #[case::own_orphan(None, "us", None, None)]
    fn other_owners_are_detected(
        #[case] controller: Option<&str>,
        #[case] manager: &str,
        #[case] expect: Option<ObjectOwner>,
        #[case] expect_without_owner: Option<ObjectOwner>,
    ) {
        let (live, owner) = (live(controller, manager), json!({"metadata": {"uid": "me"}}));
        assert_eq!(other_owner(&live, Some(&owner), "us"), expect);
        assert_eq!(other_owner(&live, None, "us"), expect_without_owner);
    }

    #[test]
    fn owner_without_uid_owns_nothing() {
        assert_eq!(other_owner(&live(Some(""), "us"), Some(&json!({"metadata": {}})), "us"), job());
    }
}
