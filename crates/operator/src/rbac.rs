//! Permissions of the operator, derived from the kinds that it reads and writes. The shipped roles are generated from
//! these lists.

use cluster::{CUSTOM_RESOURCE_DEFINITION, Kind};
use serde_json::{Value, json};

use crate::admission::webhook;
use crate::kinds::{
    ACCELERATOR_CLASS, BUILTIN, CUSTOM_RESOURCES, FUSIONINFER_SERVICE, OME_SERVICE, OWNED, RESOURCE_FLAVORS,
};
use crate::leader_election;

/// Rules of a Role or ClusterRole.
pub type PolicyRules = Vec<Value>;

const READ_VERBS: [&str; 2] = ["list", "watch"];
/// Required for kinds that are watched with a label selector: existing objects without the label must be read directly.
const GET_VERB: &str = "get";
/// Server-side apply of a missing object also requires `create`.
const WRITE_VERBS: [&str; 3] = ["create", "patch", "delete"];

/// Returns the rules of the ClusterRole, since services may exist in any namespace.
#[must_use]
pub fn cluster_role_rules() -> PolicyRules {
    let mut rules = vec![kind_rule(CUSTOM_RESOURCE_DEFINITION, "", &READ_VERBS, &[])];
    let mut kinds: Vec<Kind> = [BUILTIN, CUSTOM_RESOURCES, OWNED, &RESOURCE_FLAVORS].concat();
    kinds.sort();
    kinds.dedup_by_key(|kind| kind.group_resource());
    for kind in kinds {
        let is_written = OWNED.contains(&kind) || kind == ACCELERATOR_CLASS || RESOURCE_FLAVORS.contains(&kind);
        let mut verbs = if is_written { [&READ_VERBS[..], &WRITE_VERBS].concat() } else { READ_VERBS.to_vec() };
        if !kind.label_selector.is_empty() {
            verbs.insert(0, GET_VERB);
        }
        rules.push(kind_rule(kind, "", &verbs, &[]));
    }
    for kind in [OME_SERVICE, FUSIONINFER_SERVICE, ACCELERATOR_CLASS] {
        rules.push(kind_rule(kind, "/status", &["patch"], &[]));
    }
    // An owner reference with `blockOwnerDeletion` requires permission to set the owner's finalizers where the
    // admission plugin OwnerReferencesPermissionEnforcement is enabled.
    for kind in [OME_SERVICE, FUSIONINFER_SERVICE] {
        rules.push(kind_rule(kind, "/finalizers", &["update"], &[]));
    }
    rules.push(policy_rule("events.k8s.io", "events", &["create"], &[]));
    rules.push(kind_rule(webhook::CONFIGURATION, "", &["create", "patch"], &[webhook::CONFIGURATION_NAME]));
    rules
}

/// Returns the rules of the Role in the operator's namespace. `create` cannot be restricted by resource name.
#[must_use]
pub fn namespace_role_rules() -> PolicyRules {
    vec![
        policy_rule("coordination.k8s.io", "leases", &["create"], &[]),
        policy_rule("coordination.k8s.io", "leases", &["get", "update"], &[leader_election::LEASE_NAME]),
        kind_rule(webhook::SECRET, "", &["create"], &[]),
        kind_rule(webhook::SECRET, "", &["get", "patch"], &[webhook::CONFIGURATION_NAME]),
    ]
}

fn kind_rule(kind: Kind, subresource: &str, verbs: &[&str], names: &[&str]) -> Value {
    policy_rule(kind.group, &format!("{}{subresource}", kind.plural), verbs, names)
}

fn policy_rule(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbs(group: &str, resource: &str) -> Vec<Value> {
        let rules = cluster_role_rules().into_iter().chain(namespace_role_rules());
        let matches = |kind_rule: &Value| kind_rule["apiGroups"][0] == group && kind_rule["resources"][0] == resource;
        rules.filter(matches).flat_map(|kind_rule| kind_rule["verbs"].as_array().cloned().unwrap_or_default()).collect()
    }

    #[test]
    fn grants_read_only_access_to_input_kinds() {
        for (group, resource) in
            [("", "pods"), ("", "nodes"), ("ome.io", "servingruntimes"), ("fusioninfer.io", "inferenceservices")]
        {
            assert_eq!(verbs(group, resource), ["list", "watch"], "{resource}");
        }
        assert_eq!(verbs("fusioninfer.io", "inferenceservices/status"), ["patch"]);
    }

    /// The API server allows creating a Role only with permissions that the creator has.
    #[test]
    fn includes_the_permissions_of_pickers() {
        let text = "{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {name: s}, spec: {roles: [{name: r, componentType: router}, \
            {name: w, componentType: worker, template: {spec: {containers: [{name: e, image: i}]}}}]}}";
        let mut snapshot = plan::Snapshot::default();
        api::parse_manifest("s.yaml", text).unwrap().iter().for_each(|document| snapshot.add(document).unwrap());
        let plan = plan::plan(&snapshot);
        let role = plan.services[0].objects.iter().find(|object| object["kind"] == "Role").unwrap();
        for granted in role["rules"].as_array().unwrap() {
            let (group, resource) =
                (granted["apiGroups"][0].as_str().unwrap(), granted["resources"][0].as_str().unwrap());
            let operator_verbs = verbs(group, resource);
            assert!(granted["verbs"].as_array().unwrap().iter().all(|verb| operator_verbs.contains(verb)), "{granted}");
        }
    }

    #[test]
    fn contains_no_wildcards_or_escalation() {
        let text = json!([cluster_role_rules(), namespace_role_rules()]).to_string();
        assert!(!text.contains('*') && !text.contains("escalate") && !text.contains("impersonate"), "{text}");
    }

    #[test]
    fn reads_only_the_admission_secret() {
        assert!(cluster_role_rules().iter().all(|kind_rule| kind_rule["resources"][0] != "secrets"));
        let read = namespace_role_rules()
            .into_iter()
            .find(|kind_rule| kind_rule["verbs"][0] == "get" && kind_rule["resources"][0] == "secrets");
        assert_eq!(read.unwrap()["resourceNames"], json!(["ostler-admission"]));
    }
}
