//! Discovery documents: legacy discovery per group and version, and aggregated discovery.

use serde_json::{Value, json};

use crate::resources::{Registry, Resource};

/// Verbs of custom resources, in the order of kube-apiserver.
const CUSTOM_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// Verbs of built-in resources, in the order of kube-apiserver.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Returns the response of `/api`: the versions of the core group.
pub(crate) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    })
}

/// Returns the response of `/apis`: all named groups.
pub(crate) fn groups(registry: &Registry) -> Value {
    let names = registry.groups().into_keys().filter(|group| !group.is_empty());
    let groups: Vec<Value> = names.filter_map(|name| group(registry, &name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns the response of `/apis/GROUP`.
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let groups = registry.groups();
    let versions: Vec<Value> = groups
        .get(name)?
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    Some(json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": versions.first(),
    }))
}

/// Returns the response of `/api/v1` or `/apis/GROUP/VERSION`: the resources of a group version.
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let served = served_resources(registry, group, version);
    if served.is_empty() {
        return None;
    }
    let resources: Vec<Value> = served.iter().flat_map(|resource| entries(resource)).collect();
    let group_version = served.first().map(|resource| resource.api_version());
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

/// Returns the response of `/api` or `/apis` to clients that accept `APIGroupDiscoveryList`.
pub(crate) fn aggregated(registry: &Registry, core: bool, version: &str) -> Value {
    let groups = registry.groups().into_iter().filter(|(group, _)| group.is_empty() == core);
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> =
                        served_resources(registry, &group, version).into_iter().map(aggregated_entry).collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            let metadata = if core {
                json!({"creationTimestamp": null})
            } else {
                json!({"name": group, "creationTimestamp": null})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    })
}

fn served_resources<'a>(registry: &'a Registry, group: &str, version: &str) -> Vec<&'a Resource> {
    registry
        .iter()
        .map(AsRef::as_ref)
        .filter(|resource| resource.group == group && resource.version == version)
        .collect()
}

fn verbs(resource: &Resource) -> &'static [&'static str] {
    match (resource.create_only, resource.custom) {
        (true, _) => &VERBS[..1],
        (_, true) => &CUSTOM_VERBS,
        _ => &VERBS,
    }
}

/// Returns each subresource with its name, its verbs and its group, version and kind.
fn subresources(resource: &Resource) -> Vec<(&'static str, &'static [&'static str], [String; 3])> {
    let own_gvk = [resource.group.clone(), resource.version.clone(), resource.kind.clone()];
    let mut subresources: Vec<(&str, &[&str], _)> = Vec::new();
    if resource.has_status {
        subresources.push(("status", &["get", "patch", "update"], own_gvk.clone()));
    }
    if resource.scale.is_some() {
        let scale = ["autoscaling", "v1", "Scale"].map(str::to_owned);
        subresources.push(("scale", &["get", "patch", "update"], scale));
    }
    if resource.storage == "pods" {
        subresources.push(("log", &["get"], own_gvk));
        subresources.push(("binding", &["create"], [String::new(), "v1".to_owned(), "Binding".to_owned()]));
        subresources.push(("eviction", &["create"], ["policy", "v1", "Eviction"].map(str::to_owned)));
    }
    subresources
}

fn entries(resource: &Resource) -> Vec<Value> {
    let mut main_entry = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        main_entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        main_entry["categories"] = json!(resource.categories);
    }
    let subresources = subresources(resource).into_iter().map(|(name, verbs, [group, version, kind])| {
        let mut entry = json!({
            "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
            "kind": kind, "verbs": verbs,
        });
        if (&group, &version) != (&resource.group, &resource.version) {
            entry["group"] = json!(group);
            entry["version"] = json!(version);
        }
        entry
    });
    std::iter::once(main_entry).chain(subresources).collect()
}

fn aggregated_entry(resource: &Resource) -> Value {
    let response_kind = |[group, version, kind]: [String; 3]| json!({"group": group, "version": version, "kind": kind});
    let subresources: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|(name, verbs, gvk)| json!({"subresource": name, "responseKind": response_kind(gvk), "verbs": verbs}))
        .collect();
    let mut entry = json!({
        "resource": resource.plural, "singularResource": resource.singular, "verbs": verbs(resource),
        "responseKind": response_kind([resource.group.clone(), resource.version.clone(), resource.kind.clone()]),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
    });
    for (field, values) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !values.is_empty() {
            entry[field] = json!(values);
        }
    }
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}
