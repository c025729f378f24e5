//! Custom resource definitions: what they say becomes resources before anyone can read that they are established.
//!
//! Versions convert by renaming (`strategy: None`); conversion webhooks are refused.

mod check;
mod deprecation;
mod names;

pub(crate) use check::causes;

use std::sync::Arc;

use apimachinery::schema::Schema;
use apimachinery::structure::Structure;
use serde_json::{Map, Value, json};

use crate::object;
use crate::resources::{Registry, Resource, ScalePaths};
use crate::server::Server;
use crate::table::PrinterColumn;
use crate::workloads::condition;
use crate::write::{Face, Options, Proposal};

/// Storage name of the definitions themselves.
pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Holds a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Fills in what a definition leaves out.
pub(crate) fn default(definition: &mut Value) {
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

/// Writes which versions may be stored.
pub(crate) fn note_stored(definition: &mut Value) {
    let stored = versions(definition).find(|version| version["storage"] == true).map(|version| version["name"].clone());
    let status = object::members(
        object::members(definition)
            .entry("status")
            .or_insert_with(|| json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null})),
    );
    let versions = status.entry("storedVersions").or_insert(Value::Null);
    if versions.is_null() {
        *versions = json!([]);
    }
    if let (Some(all), Some(stored)) = (versions.as_array_mut(), stored)
        && !all.contains(&stored)
    {
        all.push(stored);
    }
}

/// Says in the status whether the names are free, and serves the definition if they are.
pub(crate) fn settle(server: &Server, name: &str) {
    let Some(resource) = server.registry().by_name(STORAGE) else { return };
    let options = Options { manager: "kube-apiserver".to_owned(), ..Options::default() };
    let propose = |current: Option<&Value>| {
        let mut definition = current.cloned().unwrap_or_default();
        let status = names::settled(server, &definition, &object::time(server.now()));
        object::members(&mut definition).insert("status".to_owned(), status);
        Ok(Proposal::Written(definition))
    };
    match server.modify(&resource, Face::Status, "", name, &options, &propose) {
        Ok(outcome) if is_established(&outcome.object) => install(server, &outcome.object),
        Ok(_) => {}
        Err(error) => tracing::warn!(name, %error, "the status of a definition was not written"),
    }
}

fn is_established(definition: &Value) -> bool {
    condition::is_true(definition, "Established")
}

/// Serves the stored definitions and no others.
pub(crate) fn reload(server: &Server) {
    let definitions = server.list(STORAGE);
    server.change_registry(|registry| {
        *registry = Registry::builtin();
        for definition in definitions.iter().filter(|definition| is_established(definition)) {
            resources(definition).for_each(|resource| registry.insert(resource));
        }
    });
    for definition in definitions.iter().filter(|definition| !is_established(definition)) {
        settle(server, object::name(definition));
    }
}

/// Serves what the definition says, instead of what it said before.
fn install(server: &Server, definition: &Value) {
    let resources: Vec<Resource> = resources(definition).collect();
    server.change_registry(|registry| {
        registry.remove(object::name(definition));
        for resource in resources {
            registry.insert(resource);
        }
    });
}

/// Serves it no longer.
pub(crate) fn uninstall(server: &Server, definition: &Value) {
    server.change_registry(|registry| registry.remove(object::name(definition)));
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

/// One resource for each served version.
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
    let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
    resource.singular = text("/spec/names/singular").to_owned();
    resource.list_kind = text("/spec/names/listKind").to_owned();
    resource.short_names = owned(object::strings(definition.pointer("/spec/names/shortNames")));
    resource.categories = owned(object::strings(definition.pointer("/spec/names/categories")));
    resource.namespaced = text("/spec/scope") == "Namespaced";
    resource.status = version.pointer("/subresources/status").is_some();
    resource.scale = version.pointer("/subresources/scale").map(scale_paths);
    resource.columns = columns(version);
    let selectable = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    resource.deprecation = deprecation::warning(definition, version);
    resource.selectable =
        selectable.map(|field| object::text(field, "/jsonPath").trim_start_matches('.').to_owned()).collect();
    if let Some(storage) = versions(definition).find(|version| version["storage"] == true) {
        resource.storage_api_version = format!("{group}/{}", object::text(storage, "/name"));
    }
    if let Some(raw) = version.pointer("/schema/openAPIV3Schema") {
        resource.structure = Arc::new(Structure::from_schema(raw));
        resource.has_defaults = mentions(raw, "default");
        resource.has_rules = mentions(raw, "x-kubernetes-validations");
        match Schema::from_json(raw) {
            Ok(schema) => resource.set_custom_schema(schema, raw.clone()),
            Err(error) => tracing::error!(kind = resource.kind, error, "an accepted schema does not read"),
        }
    }
    resource
}

/// Whether a schema or one inside it has the keyword.
fn mentions(schema: &Value, keyword: &str) -> bool {
    match schema {
        Value::Object(members) => {
            members.contains_key(keyword) || members.values().any(|inner| mentions(inner, keyword))
        }
        Value::Array(items) => items.iter().any(|inner| mentions(inner, keyword)),
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
