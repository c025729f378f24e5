//! Defaults of RoleBindings and ClusterRoleBindings: the API groups of the role reference and of the subjects.

use serde_json::{Value, json};

use apimachinery::object::{self, child_object, set_default};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn binding_defaults(binding: &mut Value) {
    let binding = object::members(binding);
    default_group(child_object(binding, "roleRef"), GROUP);
    for subject in binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        let subject = object::members(subject);
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            default_group(subject, GROUP);
        }
    }
}

/// Sets the API group of a reference if it is absent or empty.
fn default_group(reference: &mut serde_json::Map<String, Value>, group: &str) {
    if reference.get("apiGroup").and_then(Value::as_str) == Some("") {
        reference.remove("apiGroup");
    }
    set_default(reference, "apiGroup", json!(group));
}
