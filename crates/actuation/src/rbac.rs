//! Permissions of the controller. The shipped roles are generated from these lists.

use api::dual_pods::GPU_MAP;
use cluster::{Kind, PolicyRules, events_rule, kind_rule, leader_election_rules};

use crate::coordinator::{CONFIG_MAP, POD, watched_kinds};

/// Name of the controller's ServiceAccount in the shipped manifests.
pub const SERVICE_ACCOUNT_NAME: &str = "ostler-actuation";
/// Default name of the controller's Lease.
pub const LEASE_NAME: &str = "ostler-actuation";

const READ_VERBS: [&str; 2] = ["list", "watch"];
const POD_VERBS: [&str; 5] = ["list", "watch", "create", "patch", "delete"];

/// Returns the rules of the ClusterRole of a controller for all namespaces.
#[must_use]
pub fn cluster_role_rules() -> PolicyRules {
    rules_of(watched_kinds()).chain([events_rule()]).collect()
}

/// Returns the rules of the Role of a controller for all namespaces, in its own namespace.
#[must_use]
pub fn namespace_role_rules() -> PolicyRules {
    leader_election_rules(LEASE_NAME)
}

/// Returns the rules of the ClusterRole of a controller with `--namespace`, which only reads cluster-scoped kinds.
#[must_use]
pub fn cluster_reader_rules() -> PolicyRules {
    rules_of(watched_kinds().into_iter().filter(|kind| !kind.namespaced)).collect()
}

/// Returns the rules of the Role of a controller with `--namespace`, in each of these namespaces.
#[must_use]
pub fn watched_namespace_rules() -> PolicyRules {
    rules_of(watched_kinds().into_iter().filter(|kind| kind.namespaced)).chain([events_rule()]).collect()
}

/// Returns the rules of the Role of a controller with `--namespace`, in its own namespace, whose `gpu-map` it reads.
#[must_use]
pub fn own_namespace_rules() -> PolicyRules {
    rules_of([CONFIG_MAP]).chain(leader_election_rules(LEASE_NAME)).collect()
}

fn rules_of(kinds: impl IntoIterator<Item = Kind>) -> impl Iterator<Item = serde_json::Value> {
    kinds.into_iter().map(|kind| match kind {
        POD => kind_rule(kind, "", &POD_VERBS, &[]),
        CONFIG_MAP => kind_rule(kind, "", &READ_VERBS, &[GPU_MAP]),
        _ => kind_rule(kind, "", &READ_VERBS, &[]),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_pods_events_and_the_lease_are_written() {
        let rules = [cluster_role_rules(), namespace_role_rules()].concat();
        let is_read = |rule: &&serde_json::Value| rule["verbs"] == json!(READ_VERBS);
        let written: Vec<&str> =
            rules.iter().filter(|rule| !is_read(rule)).filter_map(|rule| rule["resources"][0].as_str()).collect();
        assert_eq!(written, ["pods", "events", "leases", "leases"]);
        assert!(!json!(rules).to_string().contains('*'));
    }

    #[test]
    fn roles_of_namespaces_add_no_permissions() {
        let all = [cluster_role_rules(), namespace_role_rules()].concat();
        let parts = [cluster_reader_rules(), watched_namespace_rules(), own_namespace_rules()].concat();
        assert!(parts.iter().all(|rule| all.contains(rule)), "{parts:?}");
    }
}
