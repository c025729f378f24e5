//! The OpenAPI v3 index and the document of each group version.

use serde_json::{Map, Value, json};

use crate::resources::{Registry, Resource, document_schema};

/// `/openapi/v3`: which documents there are. The hash changes when the resources do, as clients cache by it.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let path = path(&group, &version);
            let hash = fingerprint(&group_version(registry, &group, &version).to_string());
            let url = format!("/openapi/v3/{path}?hash={hash:016X}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/apis/apps/v1`: operations and schemas of one group version.
pub(crate) fn group_version(registry: &Registry, group: &str, version: &str) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    let here = registry.iter().filter(|resource| resource.group == group && resource.version == version);
    for resource in here {
        let (name, definitions) = document_schema(resource);
        schemas.extend(definitions);
        if let Some(schema) = schemas.get_mut(&name).and_then(Value::as_object_mut) {
            schema.insert("x-kubernetes-group-version-kind".to_owned(), json!([gvk(resource)]));
        }
        operations(resource, &name, &mut paths);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": crate::server::VERSION},
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
    let write = ["dryRun", "fieldManager", "fieldValidation"];
    paths.insert(
        collection.clone(),
        json!({"get": operation("list", &["labelSelector", "fieldSelector", "limit", "continue", "watch"]),
               "post": operation("post", &write)}),
    );
    if resource.virtual_only {
        return;
    }
    // The strategic merge type is left out on purpose: these schemas carry no merge keys, and kubectl then uses the
    // ones it has built in.
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({"get": operation("get", &[]), "put": operation("put", &write),
               "patch": operation("patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
               "delete": operation("delete", &["dryRun"])}),
    );
}

/// FNV-1a; only has to change when the text does.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
