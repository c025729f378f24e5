//! Roles and their bindings.

use apimachinery::status::Cause;
use serde_json::Value;

use super::super::names::subdomain_hints;
use super::field::Field;
use crate::resources::Resource;

const GROUP: &str = "rbac.authorization.k8s.io";

/// What is wrong with a Role or ClusterRole.
pub(super) fn role(resource: &Resource, role: &Value) -> Vec<Cause> {
    let rules: Vec<_> = Field::of(role).get("rules").each().collect();
    let mut causes: Vec<Cause> = rules.iter().flat_map(|rule| rule_causes(rule, resource.namespaced)).collect();
    // Looked at last, since it is said of the type.
    let idle = rules.iter().map(|rule| rule.get("verbs")).filter(Field::is_empty);
    causes.extend(idle.map(|verbs| verbs.required()));
    causes
}

fn rule_causes(rule: &Field<'_>, namespaced: bool) -> Vec<Cause> {
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
        causes.push(groups.required_because("resource rules must supply at least one api group"));
    }
    if resources.is_empty() {
        causes.push(resources.required_because("resource rules must supply at least one resource"));
    }
    causes
}

/// What is wrong with a RoleBinding or ClusterRoleBinding.
pub(super) fn binding(resource: &Resource, binding: &Value) -> Vec<Cause> {
    let binding = Field::of(binding);
    let role = binding.get("roleRef");
    let kinds: &[&str] = if resource.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let mut causes: Vec<Cause> = role.get("apiGroup").one_of(&[GROUP]).into_iter().collect();
    causes.extend(role.get("kind").one_of(kinds));
    let mut unnamed = Vec::new();
    for subject in binding.get("subjects").each() {
        let (kind, name, group) = (subject.get("kind"), subject.get("name"), subject.get("apiGroup"));
        if name.is_empty() {
            unnamed.push(name.required());
        }
        match kind.text() {
            "ServiceAccount" => {
                causes.extend(name.ruled_if_given(subdomain_hints));
                causes.extend(group.is_set().then(|| group.one_of(&[""])).flatten());
                let namespace = subject.get("namespace");
                let is_missing = namespace.is_empty() && !resource.namespaced;
                causes.extend(is_missing.then(|| namespace.required()));
            }
            "User" | "Group" => causes.extend(group.one_of(&[GROUP])),
            _ => causes.push(kind.not_supported(&["ServiceAccount", "User", "Group"])),
        }
    }
    // Names are looked at last, since that is said of the type.
    causes.extend(unnamed);
    let name = role.get("name");
    causes.extend(name.is_empty().then(|| name.required()));
    causes
}

/// Who is bound to what never changes.
pub(super) fn rebound(current: &Value, binding: &Value) -> Option<Cause> {
    let role = Field::of(binding).get("roleRef");
    let before = Field::of(current).get("roleRef");
    (role.value != before.value).then(|| {
        // As Go prints it.
        let [group, kind, name] = ["apiGroup", "kind", "name"].map(|field| Value::from(role.get(field).text()));
        let shown = format!(r#"{{"APIGroup":{group},"Kind":{kind},"Name":{name}}}"#);
        Cause::invalid_text(&role.path, &shown, "field is immutable")
    })
}
