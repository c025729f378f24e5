//! Ownership of live objects. An object is updated and deleted only if all of these hold:
//!
//! 1. Our field manager applied it. Labels, annotations and owner references alone prove nothing, because a copy of an object
//!    has them too.
//! 2. It is the object that was applied: [`IDENTITY_ANNOTATION`] names it. Clients that copy complete objects to another name
//!    or namespace copy the field managers too.
//! 3. No other object controls it. An object of a service is controlled by the service, which has the UID in the owner
//!    reference and the same namespace.
//!
//! Earlier releases did not write the annotation. An object without it is adopted if a service desires an object of its name,
//! and the apply adds the annotation. It is never deleted: a copy of such an object looks the same. The first reconcile after
//! an upgrade adds the annotation to all desired objects, so that only an object that became obsolete before that reconcile
//! remains, for example because the service changed while no operator ran. An Event of the service names it, also if it occupies
//! accelerators: a person can delete it, but cannot recover an object that was deleted in error. Only if a desired object of
//! another kind has its name and replaces it, it is not a copy, and is deleted ([`crate::DesiredObject::Obsolete`]).
//!
//! A client that deletes an object of ours and creates a copy of the same name, with all of this, cannot be detected: the UID
//! is known only after the creation, so that recording it requires a second write of each object. Such a copy, for example
//! from a backup with `managedFields`, is treated like the original. For the same reason, a copy with another name is treated
//! like an object of ours if the client copies `managedFields` and replaces the name wherever it occurs, also in the annotation.

use serde_json::{Value, json};

use crate::managed_fields::{has_applied, has_applied_annotation};
use crate::object::{controller_of, metadata_field};

/// Annotation of an applied object with its own `Kind/namespace/name`, or `Kind/name` if it is cluster-scoped.
pub const IDENTITY_ANNOTATION: &str = "ostler.io/identity";

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

/// What [`IDENTITY_ANNOTATION`] records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordedIdentity {
    /// This object.
    This,
    /// Another object, of which this one is a copy, or nothing although `managedFields` contain the annotation.
    Other,
    /// Nothing: an earlier release applied the object.
    Unknown,
}

/// Returns whether `manager` applied the object, not only one of its subresources, and not another object of which this one is
/// a copy.
#[must_use]
pub fn is_managed_by(live: &Value, manager: &str) -> bool {
    has_applied(live, manager) && recorded_identity(live, manager) != RecordedIdentity::Other
}

/// Returns `Kind namespace/name` or `Kind name` of the object of which this one is a copy, if the annotation names one.
#[must_use]
pub fn copied_object(object: &Value) -> Option<String> {
    let recorded = object["metadata"]["annotations"][IDENTITY_ANNOTATION].as_str()?;
    (recorded != identity(object)).then(|| recorded.replacen('/', " ", 1))
}

/// Returns whether `manager` applied the object and recorded its identity.
pub(crate) fn is_recorded_as_managed_by(live: &Value, manager: &str) -> bool {
    has_applied(live, manager) && recorded_identity(live, manager) == RecordedIdentity::This
}

/// Returns whether `owner` controls the object and `manager` applied it.
pub(crate) fn is_owned_by(live: &Value, owner: &Value, manager: &str) -> bool {
    controller_of(live).is_some_and(|controller| is_reference_to(live, controller, owner))
        && is_managed_by(live, manager)
}

/// Returns the object to apply, which records its identity.
pub(crate) fn with_identity(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"][IDENTITY_ANNOTATION] = json!(identity(&object));
    object
}

fn identity(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    match (metadata_field(object, "namespace"), metadata_field(object, "name")) {
        ("", name) => format!("{kind}/{name}"),
        (namespace, name) => format!("{kind}/{namespace}/{name}"),
    }
}

fn recorded_identity(live: &Value, manager: &str) -> RecordedIdentity {
    match live["metadata"]["annotations"][IDENTITY_ANNOTATION].as_str() {
        Some(recorded) if recorded == identity(live) => RecordedIdentity::This,
        Some(_) => RecordedIdentity::Other,
        None if has_applied_annotation(live, IDENTITY_ANNOTATION, manager) => RecordedIdentity::Other,
        None => RecordedIdentity::Unknown,
    }
}

/// Returns the owner of `live` unless it is `owner`, or unless no owner is expected. An object that `manager` applied and
/// that lost its controller belongs to `owner`, which was deleted with `--cascade=orphan` and created again.
pub(crate) fn other_owner(live: &Value, owner: Option<&Value>, manager: &str) -> Option<ObjectOwner> {
    match controller_of(live) {
        Some(controller) if owner.is_none_or(|owner| !is_reference_to(live, controller, owner)) => {
            Some(ObjectOwner::Controller {
                kind: controller["kind"].as_str().unwrap_or_default().to_owned(),
                name: controller["name"].as_str().unwrap_or_default().to_owned(),
            })
        }
        _ if is_managed_by(live, manager) => None,
        _ => Some(ObjectOwner::FieldManager),
    }
}

/// Returns whether `reference` in `object` refers to `owner`. The owner of an object is in the same namespace or
/// cluster-scoped; in other namespaces, the reference is a copy.
fn is_reference_to(object: &Value, reference: &Value, owner: &Value) -> bool {
    let (uid, namespace) = (metadata_field(owner, "uid"), metadata_field(owner, "namespace"));
    !uid.is_empty() && reference["uid"] == uid && ["", metadata_field(object, "namespace")].contains(&namespace)
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

    #[rstest]
    #[case::own_object(json!("Service/n/a"), true, RecordedIdentity::This)]
    #[case::copy_with_another_name(json!("Service/n/b"), true, RecordedIdentity::Other)]
    #[case::copy_in_another_namespace(json!("Service/m/a"), true, RecordedIdentity::Other)]
    #[case::copy_of_another_kind(json!("Deployment/n/a"), true, RecordedIdentity::Other)]
    #[case::copy_without_annotations(Value::Null, true, RecordedIdentity::Other)]
    #[case::annotation_edited_by_a_user(json!("x"), false, RecordedIdentity::Other)]
    #[case::earlier_release(Value::Null, false, RecordedIdentity::Unknown)]
    fn identity_is_recorded(#[case] annotation: Value, #[case] is_applied: bool, #[case] expect: RecordedIdentity) {
        let applied = if is_applied { json!({"f:ostler.io/identity": {}}) } else { json!({"f:other": {}}) };
        let live = json!({"kind": "Service", "metadata": {"namespace": "n", "name": "a",
            "annotations": {IDENTITY_ANNOTATION: annotation},
            "ownerReferences": [{"controller": true, "uid": "me"}],
            "managedFields": [{"manager": "us", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:annotations": applied}}}]}});
        assert_eq!(recorded_identity(&live, "us"), expect);
        let is_own = expect != RecordedIdentity::Other;
        let owner = |namespace: &str| json!({"metadata": {"namespace": namespace, "uid": "me"}});
        assert_eq!(is_managed_by(&live, "us"), is_own);
        assert_eq!(is_recorded_as_managed_by(&live, "us"), expect == RecordedIdentity::This);
        assert_eq!(is_owned_by(&live, &owner("n"), "us"), is_own);
        assert!(!is_owned_by(&live, &owner("m"), "us"));
        assert_eq!(other_owner(&live, Some(&owner("n")), "us"), (!is_own).then_some(ObjectOwner::FieldManager));
    }

    #[test]
    fn copies_name_their_source() {
        let object = |identity: &str, name: &str| {
            json!({"kind": "Service", "metadata": {"namespace": "n", "name": name,
            "annotations": {IDENTITY_ANNOTATION: identity}}})
        };
        let applied = with_identity(&object("old", "a"));
        assert_eq!(applied, object("Service/n/a", "a"));
        assert_eq!(copied_object(&applied), None);
        assert_eq!(copied_object(&object("Service/n/a", "b")).unwrap(), "Service n/a");
        assert_eq!(copied_object(&json!({"metadata": {"name": "b"}})), None);
    }

    #[test]
    fn owner_without_uid_owns_nothing() {
        assert_eq!(other_owner(&live(Some(""), "us"), Some(&json!({"metadata": {}})), "us"), job());
    }
}
