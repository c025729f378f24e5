//! Custom resource definitions. The resources of a definition are served before its condition `Established` becomes
//! visible.
//!
//! Conversion between versions changes only `apiVersion` (`strategy: None`). Conversion webhooks are not supported.

mod accepted_names;
mod deprecation;
mod validation;

pub(crate) use validation::causes;

use std::sync::Arc;

use apimachinery::{Schema, condition, openapi_merge_schema};
use serde_json::{Map, Value, json};

use crate::object;
use crate::resources::{PrinterColumn, Registry, Resource, ScalePaths};
use crate::server::Server;
use crate::write::{Proposal, Subresource, WriteOptions};

/// Name under which custom resource definitions are stored.
pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Finalizer that retains a definition until its custom resources are deleted.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Applies the defaults of a definition.
pub(crate) fn apply_defaults(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").map(object::members) else { return };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let Some(names) = spec.get_mut("names").map(object::members) else { return };
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return;
    }
    names.entry("singular").or_insert_with(|| json!(kind.to_lowercase()));
    names.entry("listKind").or_insert_with(|| json!(format!("{kind}List")));
}

/// Adds the storage version to `status.storedVersions`.
pub(crate) fn record_storage_version(definition: &mut Value) {
    let storage_version =
        versions(definition).find(|version| version["storage"] == true).map(|version| version["name"].clone());
    let status = object::members(
        object::members(definition)
            .entry("status")
            .or_insert_with(|| json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null})),
    );
    let versions = status.entry("storedVersions").or_insert(Value::Null);
    if versions.is_null() {
        *versions = json!([]);
    }
    if let (Some(stored_versions), Some(storage_version)) = (versions.as_array_mut(), storage_version)
        && !stored_versions.contains(&storage_version)
    {
        stored_versions.push(storage_version);
    }
}

/// Updates `acceptedNames` and the conditions of a definition, and serves its resources once it is established.
pub(crate) fn reconcile_status(server: &Server, name: &str) {
    let Some(resource) = server.registry().by_name(STORAGE) else { return };
    let options = WriteOptions { manager: "kube-apiserver".to_owned(), ..WriteOptions::default() };
    let propose = |current: Option<&Value>| {
        let mut definition = current.cloned().unwrap_or_default();
        let status = accepted_names::naming_status(server, &definition, &object::format_time(server.now()));
        object::members(&mut definition).insert("status".to_owned(), status);
        Ok(Proposal::Update(definition))
    };
    match server.modify(&resource, Subresource::Status, "", name, &options, &propose) {
        Ok(result) if is_established(&result.object) => install(server, &result.object),
        Ok(_) => {}
        Err(error) => tracing::warn!(name, %error, "failed to update the status of a custom resource definition"),
    }
}

fn is_established(definition: &Value) -> bool {
    condition::is_true(definition, "Established")
}

/// Rebuilds the registry from the stored definitions that are established, and reconciles the others.
pub(crate) fn reload_all(server: &Server) {
    let definitions = server.list(STORAGE);
    server.update_registry(|registry| {
        *registry = Registry::builtin();
        for definition in definitions.iter().filter(|definition| is_established(definition)) {
            resources(definition).for_each(|resource| registry.insert(resource));
        }
    });
    for definition in definitions.iter().filter(|definition| !is_established(definition)) {
        reconcile_status(server, object::name(definition));
    }
}

/// Updates the served resources to those of the current definition.
fn install(server: &Server, definition: &Value) {
    let resources: Vec<Resource> = resources(definition).collect();
    server.update_registry(|registry| {
        registry.remove(object::name(definition));
        for resource in resources {
            registry.insert(resource);
        }
    });
}

/// Stops serving the resources of a definition.
pub(crate) fn uninstall(server: &Server, definition: &Value) {
    server.update_registry(|registry| registry.remove(object::name(definition)));
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

/// Returns a resource for each served version.
fn resources(definition: &Value) -> impl Iterator<Item = Resource> {
    versions(definition).filter(|version| version["served"] == true).map(|version| resource(definition, version))
}

fn resource(definition: &Value, version: &Value) -> Resource {
    let text = |pointer: &str| object::text(definition, pointer);
    let group = text("/spec/group");
    let mut resource = Resource::new_custom(
        group,
        object::text(version, "/name"),
        text("/spec/names/plural"),
        text("/spec/names/kind"),
    );
    let to_strings = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
    resource.singular = text("/spec/names/singular").to_owned();
    resource.list_kind = text("/spec/names/listKind").to_owned();
    resource.short_names = to_strings(object::strings(definition.pointer("/spec/names/shortNames")));
    resource.categories = to_strings(object::strings(definition.pointer("/spec/names/categories")));
    resource.namespaced = text("/spec/scope") == "Namespaced";
    resource.has_status = version.pointer("/subresources/status").is_some();
    resource.scale = version.pointer("/subresources/scale").map(scale_paths);
    resource.printer_columns = columns(version);
    let selectable = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    resource.deprecation_warning = deprecation::warning(definition, version);
    resource.selectable_fields =
        selectable.map(|field| object::text(field, "/jsonPath").trim_start_matches('.').to_owned()).collect();
    if let Some(storage) = versions(definition).find(|version| version["storage"] == true) {
        resource.storage_api_version = format!("{group}/{}", object::text(storage, "/name"));
    }
    if let Some(raw) = version.pointer("/schema/openAPIV3Schema") {
        resource.merge_schema = Arc::new(openapi_merge_schema(raw));
        resource.has_defaults = has_keyword(raw, "default");
        resource.has_rules = has_keyword(raw, "x-kubernetes-validations");
        match Schema::from_json(raw) {
            Ok(schema) => resource.set_custom_schema(schema, raw.clone()),
            Err(error) => {
                tracing::error!(kind = resource.kind, error, "failed to parse the schema of an accepted definition");
            }
        }
    }
    resource
}

/// Reports whether a schema or one of its nested schemas contains the keyword.
fn has_keyword(schema: &Value, keyword: &str) -> bool {
    match schema {
        Value::Object(members) => {
            members.contains_key(keyword) || members.values().any(|inner| has_keyword(inner, keyword))
        }
        Value::Array(items) => items.iter().any(|inner| has_keyword(inner, keyword)),
        _ => false,
    }
}

fn scale_paths(scale: &Value) -> ScalePaths {
    let pointer = |field: &str| object::text(scale, &format!("/{field}")).replace('.', "/");
    ScalePaths {
        spec_replicas: pointer("specReplicasPath"),
        status_replicas: pointer("statusReplicasPath"),
        selector: Some(pointer("labelSelectorPath")).filter(|path| !path.is_empty()),
    }
}

fn columns(version: &Value) -> Vec<PrinterColumn> {
    let columns = version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten();
    let column = |column: &Map<String, Value>| {
        let text = |field: &str| column.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        PrinterColumn {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: text("description"),
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            path: text("jsonPath"),
        }
    };
    columns.filter_map(Value::as_object).map(column).collect()
}
