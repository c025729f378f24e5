//! Validation of Roles, ClusterRoles and their bindings.

use apimachinery::StatusCause;
use serde_json::Value;

use super::super::names::subdomain_hints;
use super::field::Field;
use crate::resources::Resource;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Validates a Role or ClusterRole.
pub(super) fn role_causes(resource: &Resource, role: &Value) -> Vec<StatusCause> {
    let rules: Vec<_> = Field::root(role).get("rules").items().collect();
    let mut causes: Vec<StatusCause> = rules.iter().flat_map(|rule| rule_causes(rule, resource.namespaced)).collect();
    // These causes come last, because kube-apiserver runs declarative validation after handwritten validation.
    let without_verbs = rules.iter().map(|rule| rule.get("verbs")).filter(Field::is_empty);
    causes.extend(without_verbs.map(|verbs| verbs.required()));
    causes
}

fn rule_causes(rule: &Field<'_>, namespaced: bool) -> Vec<StatusCause> {
    let [urls, groups, resources, names] =
        ["nonResourceURLs", "apiGroups", "resources", "resourceNames"].map(|name| rule.get(name));
    if !urls.is_empty() {
        let hint = if namespaced {
            "namespaced rules cannot apply to non-resource URLs"
        } else if groups.is_empty() && resources.is_empty() && names.is_empty() {
            return Vec::new();
        } else {
            "rules cannot apply to both regular resources and non-resource URLs"
        };
        return vec![urls.invalid(hint)];
    }
    let mut causes = Vec::new();
    if groups.is_empty() {
        causes.push(groups.required_with_hint("resource rules must supply at least one api group"));
    }
    if resources.is_empty() {
        causes.push(resources.required_with_hint("resource rules must supply at least one resource"));
    }
    causes
}

/// Validates a RoleBinding or ClusterRoleBinding.
pub(super) fn binding_causes(resource: &Resource, binding: &Value) -> Vec<StatusCause> {
    let binding = Field::root(binding);
    let role = binding.get("roleRef");
    let kinds: &[&str] = if resource.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let mut causes: Vec<StatusCause> = role.get("apiGroup").check_one_of(&[GROUP]).into_iter().collect();
    causes.extend(role.get("kind").check_one_of(kinds));
    let mut missing_names = Vec::new();
    for subject in binding.get("subjects").items() {
        let (kind, name, group) = (subject.get("kind"), subject.get("name"), subject.get("apiGroup"));
        if name.is_empty() {
            missing_names.push(name.required());
        }
        match kind.text() {
            "ServiceAccount" => {
                causes.extend(name.check_if_set(subdomain_hints));
                causes.extend(group.is_set().then(|| group.check_one_of(&[""])).flatten());
                let namespace = subject.get("namespace");
                let is_missing = namespace.is_empty() && !resource.namespaced;
                causes.extend(is_missing.then(|| namespace.required()));
            }
            "User" | "Group" => causes.extend(group.check_one_of(&[GROUP])),
            _ => causes.push(kind.not_supported(&["ServiceAccount", "User", "Group"])),
        }
    }
    // These causes come last, because kube-apiserver runs declarative validation after handwritten validation.
    causes.extend(missing_names);
    let name = role.get("name");
    causes.extend(name.is_empty().then(|| name.required()));
    causes
}

/// Rejects a change to the role reference.
pub(super) fn check_role_ref_unchanged(current: &Value, binding: &Value) -> Option<StatusCause> {
    let role = Field::root(binding).get("roleRef");
    let before = Field::root(current).get("roleRef");
    (role.value != before.value).then(|| {
        // Formatted as Go formats the struct.
        let [group, kind, name] = ["apiGroup", "kind", "name"].map(|field| Value::from(role.get(field).text()));
        let formatted = format!(r#"{{"APIGroup":{group},"Kind":{kind},"Name":{name}}}"#);
        StatusCause::invalid_json(&role.path, &formatted, "field is immutable")
    })
}
