//! Permissions of the operator, derived from the kinds that it reads and writes. The shipped roles are generated from
//! these lists.

use cluster::{CUSTOM_RESOURCE_DEFINITION, Kind, PolicyRules, events_rule, kind_rule, leader_election_rules};
use serde_json::Value;

use crate::LEASE_NAME;
use crate::admission::webhook;
use crate::kinds::{
    ACCELERATOR_CLASS, BUILTIN, CUSTOM_RESOURCES, FUSIONINFER_SERVICE, LLM_USE_CASE, OME_SERVICE, OWNED, POD,
    RESOURCE_FLAVORS,
};

const READ_VERBS: [&str; 2] = ["list", "watch"];
/// Kinds that only endpoint pickers watch. An operator must have the permissions that it grants.
const GRANTED_TO_PICKERS: &[Kind] = &[LLM_USE_CASE];
/// Required for kinds that are watched with a label selector: existing objects without the label must be read directly.
const GET_VERB: &str = "get";
/// Server-side apply of a missing object also requires `create`.
const WRITE_VERBS: [&str; 3] = ["create", "patch", "delete"];

/// Returns the rules of the ClusterRole of an operator for all namespaces.
#[must_use]
pub fn cluster_role_rules() -> PolicyRules {
    let mut rules = vec![kind_rule(CUSTOM_RESOURCE_DEFINITION, "", &READ_VERBS, &[])];
    rules.extend(watched_kinds(&RESOURCE_FLAVORS).into_iter().map(watched_kind_rule));
    rules.extend([OME_SERVICE, FUSIONINFER_SERVICE, ACCELERATOR_CLASS].map(status_rule));
    rules.extend([OME_SERVICE, FUSIONINFER_SERVICE].map(finalizers_rule));
    rules.push(events_rule());
    rules.push(kind_rule(
        webhook::CONFIGURATION,
        "",
        &["get", "list", "watch", "create", "patch"],
        &[webhook::CONFIGURATION_NAME],
    ));
    rules
}

/// Returns the rules of the Role of an operator for all namespaces, in the operator's own namespace.
#[must_use]
pub fn namespace_role_rules() -> PolicyRules {
    let mut rules = leader_election_rules(LEASE_NAME);
    rules.push(kind_rule(webhook::SECRET, "", &["create"], &[]));
    rules.push(kind_rule(webhook::SECRET, "", &["get", "list", "watch", "patch"], &[webhook::CONFIGURATION_NAME]));
    rules
}

/// Returns the rules of the ClusterRole of an operator with `--namespace`, which only reads cluster-scoped kinds.
#[must_use]
pub fn cluster_reader_rules() -> PolicyRules {
    let cluster_scoped = watched_kinds(&[]).into_iter().filter(|kind| !kind.namespaced);
    let kinds = [CUSTOM_RESOURCE_DEFINITION].into_iter().chain(cluster_scoped);
    kinds.map(|kind| kind_rule(kind, "", &READ_VERBS, &[])).collect()
}

/// Returns the rules of the Role of an operator with `--namespace`, in each of these namespaces.
#[must_use]
pub fn watched_namespace_rules() -> PolicyRules {
    let namespaced = watched_kinds(&[]).into_iter().filter(|kind| kind.namespaced);
    let mut rules: PolicyRules = namespaced.map(watched_kind_rule).collect();
    rules.extend([OME_SERVICE, FUSIONINFER_SERVICE].map(status_rule));
    rules.extend([OME_SERVICE, FUSIONINFER_SERVICE].map(finalizers_rule));
    rules.push(events_rule());
    rules
}

/// Returns the rules of the Role of an operator with `--namespace`, in the operator's own namespace. It lists its own Pod.
#[must_use]
pub fn own_namespace_rules() -> PolicyRules {
    let mut rules = leader_election_rules(LEASE_NAME);
    rules.push(kind_rule(POD, "", &["list"], &[]));
    rules
}

/// Returns the kinds that the operator or its endpoint pickers watch, sorted, with `additional` ones.
fn watched_kinds(additional: &[Kind]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = [BUILTIN, CUSTOM_RESOURCES, OWNED, GRANTED_TO_PICKERS, additional].concat();
    kinds.sort();
    kinds.dedup_by_key(|kind| kind.group_resource());
    kinds
}

fn watched_kind_rule(kind: Kind) -> Value {
    let is_written = OWNED.contains(&kind) || kind == ACCELERATOR_CLASS || RESOURCE_FLAVORS.contains(&kind);
    let mut verbs = if is_written { [&READ_VERBS[..], &WRITE_VERBS].concat() } else { READ_VERBS.to_vec() };
    if !kind.label_selector.is_empty() {
        verbs.insert(0, GET_VERB);
    }
    kind_rule(kind, "", &verbs, &[])
}

fn status_rule(kind: Kind) -> Value {
    kind_rule(kind, "/status", &["patch"], &[])
}

/// An owner reference with `blockOwnerDeletion` requires permission to set the owner's finalizers where the admission
/// plugin OwnerReferencesPermissionEnforcement is enabled.
fn finalizers_rule(kind: Kind) -> Value {
    kind_rule(kind, "/finalizers", &["update"], &[])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

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

    fn verbs_by_resource(rules: &[Value]) -> BTreeSet<(String, String)> {
        let pairs = |rule: &Value| {
            let resource = format!("{} {}", rule["apiGroups"][0], rule["resources"][0]);
            let verbs = rule["verbs"].as_array().cloned().unwrap_or_default();
            verbs.into_iter().map(|verb| (resource.clone(), verb.to_string())).collect::<Vec<_>>()
        };
        rules.iter().flat_map(pairs).collect()
    }

    /// An operator with `--namespace` has a part of the permissions of an operator for all namespaces, and writes nothing
    /// outside of the namespaces.
    #[test]
    fn roles_of_namespaces_only_reduce_permissions() {
        let all = verbs_by_resource(&[cluster_role_rules(), namespace_role_rules()].concat());
        let [reader, watched, own] = [cluster_reader_rules(), watched_namespace_rules(), own_namespace_rules()];
        assert!(verbs_by_resource(&[reader.clone(), watched.clone(), own].concat()).is_subset(&all));
        assert!(reader.iter().all(|rule| rule["verbs"] == json!(["list", "watch"])), "{reader:?}");
        let missing: BTreeSet<_> = all.difference(&verbs_by_resource(&[reader, watched].concat())).cloned().collect();
        let resources: BTreeSet<&str> = missing.iter().map(|(resource, _)| resource.as_str()).collect();
        let expect = [
            r#""" "secrets""#,
            r#""admissionregistration.k8s.io" "validatingwebhookconfigurations""#,
            r#""coordination.k8s.io" "leases""#,
            r#""kueue.x-k8s.io" "resourceflavors""#,
            r#""ome.io" "acceleratorclasses""#,
            r#""ome.io" "acceleratorclasses/status""#,
        ];
        assert_eq!(resources, BTreeSet::from(expect));
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
