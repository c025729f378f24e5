//! The defaults of RoleBindings and ClusterRoleBindings: the group of whom and what they bind.

use serde_json::{Value, json};

use super::{child, set};
use crate::object;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn fill(binding: &mut Value) {
    let binding = object::members(binding);
    group(child(binding, "roleRef"), GROUP);
    for subject in binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        let subject = object::members(subject);
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            group(subject, GROUP);
        }
    }
}

/// Empty is as good as absent.
fn group(reference: &mut serde_json::Map<String, Value>, group: &str) {
    if reference.get("apiGroup").and_then(Value::as_str) == Some("") {
        reference.remove("apiGroup");
    }
    set(reference, "apiGroup", json!(group));
}
