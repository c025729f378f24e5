//! The OpenAPI v3 index and the documents of group versions.

use std::hash::Hasher as _;

use serde_json::{Map, Value, json};

use crate::resources::{Registry, Resource, openapi_definitions};

/// Returns `/openapi/v3`, the index of documents. Clients cache documents by hash, which changes with the content.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let path = path(&group, &version);
            let hash = content_hash(&group_version_document(registry, &group, &version).to_string());
            let url = format!("/openapi/v3/{path}?hash={hash:016X}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// Returns `/openapi/v3/apis/GROUP/VERSION`, the operations and schemas of a group version.
pub(crate) fn group_version_document(registry: &Registry, group: &str, version: &str) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    let served = registry.iter().filter(|resource| resource.group == group && resource.version == version);
    for resource in served {
        let (name, definitions) = openapi_definitions(resource);
        schemas.extend(definitions);
        if let Some(schema) = schemas.get_mut(&name).and_then(Value::as_object_mut) {
            schema.insert("x-kubernetes-group-version-kind".to_owned(), json!([gvk(resource)]));
        }
        operations(resource, &name, &mut paths);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": crate::version::KUBERNETES_VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn gvk(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

fn operations(resource: &Resource, schema: &str, paths: &mut Map<String, Value>) {
    let root = path(&resource.group, &resource.version);
    let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
    let collection = format!("/{root}/{scope}{}", resource.plural);
    let operation = |action: &str, parameters: &[&str]| {
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
            .collect();
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk(resource),
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": {"application/json": {
                "schema": {"$ref": format!("#/components/schemas/{schema}")}}}}},
        })
    };
    let write_parameters = ["dryRun", "fieldManager", "fieldValidation"];
    paths.insert(
        collection.clone(),
        json!({"get": operation("list", &["labelSelector", "fieldSelector", "limit", "continue", "watch"]),
               "post": operation("post", &write_parameters)}),
    );
    if resource.create_only {
        return;
    }
    // Without the strategic merge patch type, kubectl uses its built-in merge keys; these schemas contain none.
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({"get": operation("get", &[]), "put": operation("put", &write_parameters),
               "patch": operation("patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
               "delete": operation("delete", &["dryRun"])}),
    );
}

/// Hashes a document. Clients use the hash as a cache key; it is not security-relevant.
fn content_hash(text: &str) -> u64 {
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}
