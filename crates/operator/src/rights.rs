//! What the operator may do in a cluster: exactly what it does. The shipped roles are written from these lists, which
//! follow from the kinds that it reads and makes.

use cluster::Kind;
use cluster::neighbours::DEFINITIONS;
use serde_json::{Value, json};

use crate::admission::webhook;
use crate::kinds::{BUILTIN, CLASS, DEFINED, FLAVORS, MADE, OME_SERVICE, ROLES_SERVICE};
use crate::seat;

/// The field `rules` of a role.
pub type Rules = Vec<Value>;

const READ: [&str; 2] = ["list", "watch"];
/// An object whose labels keep it out of a watch may be there all the same.
const LOOK: &str = "get";
/// Server-side apply of an object that is not there asks for `create` too.
const MAKE: [&str; 3] = ["create", "patch", "delete"];

/// In the whole cluster, since services may be in every namespace.
#[must_use]
pub fn of_cluster() -> Rules {
    let mut rules = vec![rule(DEFINITIONS, "", &READ, &[])];
    let mut read: Vec<Kind> = [BUILTIN, DEFINED, MADE, &FLAVORS].concat();
    read.sort();
    read.dedup_by_key(|kind| kind.resource());
    for kind in read {
        let made = MADE.contains(&kind) || kind == CLASS || FLAVORS.contains(&kind);
        let mut verbs = if made { [&READ[..], &MAKE].concat() } else { READ.to_vec() };
        if !kind.labels.is_empty() {
            verbs.insert(0, LOOK);
        }
        rules.push(rule(kind, "", &verbs, &[]));
    }
    for kind in [OME_SERVICE, ROLES_SERVICE, CLASS] {
        rules.push(rule(kind, "/status", &["patch"], &[]));
    }
    // What blocks the deletion of its owner is made only by who may set the owner's finalizers, where that is enforced.
    for kind in [OME_SERVICE, ROLES_SERVICE] {
        rules.push(rule(kind, "/finalizers", &["update"], &[]));
    }
    rules.push(raw("events.k8s.io", "events", &["create"], &[]));
    rules.push(rule(webhook::CONFIGURATION, "", &["create", "patch"], &[webhook::NAME]));
    rules
}

/// In the operator's own namespace. A `create` cannot be held to a name, since no name is known when it is asked for.
#[must_use]
pub fn of_namespace() -> Rules {
    vec![
        raw("coordination.k8s.io", "leases", &["create"], &[]),
        raw("coordination.k8s.io", "leases", &["get", "update"], &[seat::LEASE]),
        rule(webhook::SECRET, "", &["create"], &[]),
        rule(webhook::SECRET, "", &["get", "patch"], &[webhook::NAME]),
    ]
}

fn rule(kind: Kind, subresource: &str, verbs: &[&str], names: &[&str]) -> Value {
    raw(kind.group, &format!("{}{subresource}", kind.plural), verbs, names)
}

fn raw(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> Value {
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
        let rules = of_cluster().into_iter().chain(of_namespace());
        let about = |rule: &Value| rule["apiGroups"][0] == group && rule["resources"][0] == resource;
        rules.filter(about).flat_map(|rule| rule["verbs"].as_array().cloned().unwrap_or_default()).collect()
    }

    #[test]
    fn what_is_only_read_is_only_read() {
        for (group, resource) in
            [("", "pods"), ("", "nodes"), ("ome.io", "servingruntimes"), ("fusioninfer.io", "inferenceservices")]
        {
            assert_eq!(verbs(group, resource), ["list", "watch"], "{resource}");
        }
        assert_eq!(verbs("fusioninfer.io", "inferenceservices/status"), ["patch"]);
    }

    /// The API server lets nobody give a right that he does not have.
    #[test]
    fn what_a_picker_may_do_the_operator_may() {
        let text = "{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {name: s}, spec: {roles: [{name: r, componentType: router}, \
            {name: w, componentType: worker, template: {spec: {containers: [{name: e, image: i}]}}}]}}";
        let mut snapshot = plan::Snapshot::default();
        api::manifest::read("s.yaml", text).unwrap().iter().for_each(|one| snapshot.add(one).unwrap());
        let plan = plan::plan(&snapshot);
        let role = plan.services[0].objects.iter().find(|object| object["kind"] == "Role").unwrap();
        for given in role["rules"].as_array().unwrap() {
            let (group, resource) = (given["apiGroups"][0].as_str().unwrap(), given["resources"][0].as_str().unwrap());
            let own = verbs(group, resource);
            assert!(given["verbs"].as_array().unwrap().iter().all(|verb| own.contains(verb)), "{given}");
        }
    }

    #[test]
    fn nothing_is_granted_by_pattern() {
        let text = json!([of_cluster(), of_namespace()]).to_string();
        assert!(!text.contains('*') && !text.contains("escalate") && !text.contains("impersonate"), "{text}");
    }

    #[test]
    fn secrets_of_others_are_not_read() {
        assert!(of_cluster().iter().all(|rule| rule["resources"][0] != "secrets"));
        let read =
            of_namespace().into_iter().find(|rule| rule["verbs"][0] == "get" && rule["resources"][0] == "secrets");
        assert_eq!(read.unwrap()["resourceNames"], json!(["ostler-admission"]));
    }
}
