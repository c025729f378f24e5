//! Rules of Roles and ClusterRoles, and those that parts of this crate need.

use serde_json::{Value, json};

use crate::Kind;

/// Rules of a Role or ClusterRole.
pub type PolicyRules = Vec<Value>;

/// Returns a rule about a kind, or about its `subresource`, such as `/status`. It applies to all objects if `names` is empty.
#[must_use]
pub fn kind_rule(kind: Kind, subresource: &str, verbs: &[&str], names: &[&str]) -> Value {
    policy_rule(kind.group, &format!("{}{subresource}", kind.plural), verbs, names)
}

/// Returns the rule that [`EventRecorder`](crate::EventRecorder) needs.
#[must_use]
pub fn events_rule() -> Value {
    policy_rule("events.k8s.io", "events", &["create"], &[])
}

/// Returns the rules that leader election by the Lease `name` needs. `create` cannot be restricted by resource name.
#[must_use]
pub fn leader_election_rules(name: &str) -> PolicyRules {
    vec![
        policy_rule("coordination.k8s.io", "leases", &["create"], &[]),
        policy_rule("coordination.k8s.io", "leases", &["get", "update"], &[name]),
    ]
}

fn policy_rule(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}
