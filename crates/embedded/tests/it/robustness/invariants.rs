//! What holds for the state of a server at any time between requests.

use std::collections::{BTreeMap, BTreeSet};

use embedded::Server;
use proptest::prelude::*;
use serde_json::Value;

use super::request::Request;

/// All objects of a server.
pub(super) struct State {
    /// Objects by path.
    pub(super) objects: BTreeMap<String, Value>,
    /// API version and kind of the served resources.
    kinds: BTreeSet<(String, String)>,
}

/// Returns the current revision of the store.
pub(super) fn revision(server: &Server) -> u64 {
    let namespaces = get(server, "/api/v1/namespaces").unwrap();
    namespaces["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Lists all objects.
pub(super) fn state(server: &Server) -> Result<State, TestCaseError> {
    let mut state = State { objects: BTreeMap::new(), kinds: BTreeSet::new() };
    let mut group_versions = vec!["/api/v1".to_owned()];
    for group in array(&get(server, "/apis")?["groups"]) {
        let versions = array(&group["versions"]);
        group_versions.extend(versions.map(|version| format!("/apis/{}", text(&version["groupVersion"]))));
    }
    for root in group_versions {
        let resources = get(server, &root)?;
        for resource in array(&resources["resources"]) {
            let (plural, kind) = (text(&resource["name"]), text(&resource["kind"]));
            if !array(&resource["verbs"]).any(|verb| verb == "list") {
                continue;
            }
            state.kinds.insert((text(&resources["groupVersion"]).to_owned(), kind.to_owned()));
            for item in array(&get(server, &format!("{root}/{plural}"))?["items"]) {
                let metadata = &item["metadata"];
                let namespace = match text(&metadata["namespace"]) {
                    "" => String::new(),
                    namespace => format!("/namespaces/{namespace}"),
                };
                let path = format!("{root}{namespace}/{plural}/{}", text(&metadata["name"]));
                prop_assert!(state.objects.insert(path, item.clone()).is_none());
            }
        }
    }
    Ok(state)
}

/// Checks the relations between the objects.
pub(super) fn check(state: &State) -> Result<(), TestCaseError> {
    let (mut node_ports, mut cluster_ips) = (BTreeSet::new(), BTreeSet::new());
    let mut uids: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for object in state.objects.values() {
        let metadata = &object["metadata"];
        uids.entry(text(&metadata["uid"])).or_default().insert(text(&metadata["namespace"]));
    }
    for (path, object) in &state.objects {
        let metadata = &object["metadata"];
        let namespace = text(&metadata["namespace"]);
        prop_assert!(
            namespace.is_empty() || state.objects.contains_key(&format!("/api/v1/namespaces/{namespace}")),
            "{path}: the namespace does not exist"
        );
        let owners: Vec<&Value> = array(&metadata["ownerReferences"]).collect();
        let is_terminating = !metadata["deletionTimestamp"].is_null();
        let exists = |owner: &&Value| {
            let kind = (text(&owner["apiVersion"]).to_owned(), text(&owner["kind"]).to_owned());
            let namespaces = uids.get(text(&owner["uid"]));
            // An owner of a kind that is not served counts as existing, and a custom kind may not have been served when
            // the object was stored.
            !state.kinds.contains(&kind)
                || kind.1 == "Widget"
                || namespaces.is_some_and(|namespaces| namespaces.contains("") || namespaces.contains(namespace))
        };
        prop_assert!(
            owners.is_empty() || is_terminating || owners.iter().any(exists),
            "{path}: no owner exists: {owners:?}"
        );
        prop_assert!(
            !is_terminating
                || !array(&metadata["finalizers"]).collect::<Vec<_>>().is_empty()
                || !array(&object["spec"]["finalizers"]).collect::<Vec<_>>().is_empty()
                || metadata["deletionGracePeriodSeconds"].as_i64() > Some(0),
            "{path}: nothing delays the deletion"
        );
        if path.contains("/services/") {
            let address = text(&object["spec"]["clusterIP"]);
            prop_assert!(
                matches!(address, "" | "None") || cluster_ips.insert(address),
                "{path}: {address} is not unique"
            );
            for port in array(&object["spec"]["ports"]).filter(|port| !port["nodePort"].is_null()) {
                let is_unique = node_ports.insert((text(&port["protocol"]), port["nodePort"].as_i64()));
                prop_assert!(is_unique, "{path}: node port of {port} is not unique");
            }
        }
    }
    Ok(())
}

/// Checks that a restart changed nothing, except that it creates standard objects that were deleted.
///
/// Objects with a contradictory owner reference are not compared: whether an owner with the UID of an object of another kind
/// exists depends on which kinds were served, and on whether that object existed, when the reference was evaluated.
pub(super) fn check_restored(state: &State, restored: &State) -> Result<(), TestCaseError> {
    let paths: BTreeMap<&str, &String> =
        state.objects.iter().map(|(path, object)| (text(&object["metadata"]["uid"]), path)).collect();
    let is_contradictory = |owner: &Value| {
        let collection = format!("/{}s/", text(&owner["kind"]).to_lowercase());
        paths.get(text(&owner["uid"])).is_some_and(|path| !path.contains(&collection))
    };
    let is_compared = |object: &Value| !array(&object["metadata"]["ownerReferences"]).any(is_contradictory);
    for (path, object) in &restored.objects {
        let is_standard = ["/api/v1/namespaces/kube-", "/apis/scheduling.k8s.io/v1/priorityclasses/system-"]
            .iter()
            .any(|prefix| path.starts_with(prefix));
        let previous = state.objects.get(path);
        let is_equal = previous == Some(object) || !is_compared(object);
        prop_assert!(is_equal || previous.is_none() && is_standard, "{path}: {previous:?} -> {object}");
    }
    let removed: Vec<String> = state
        .objects
        .iter()
        .filter(|(path, object)| !restored.objects.contains_key(*path) && is_compared(object))
        .map(|(path, object)| format!("{path}: {}", object["metadata"]))
        .collect();
    prop_assert!(removed.is_empty(), "a restart removes {removed:?}");
    Ok(())
}

fn get(server: &Server, path: &str) -> Result<Value, TestCaseError> {
    let response = Request::new("GET", path, "application/json", "").response(server);
    let (code, body) = response.ok_or_else(|| TestCaseError::fail(format!("{path} is not a valid path")))?;
    prop_assert_eq!(code, 200, "{}: {}", path, String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).map_err(|error| TestCaseError::fail(format!("{path}: {error}")))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
