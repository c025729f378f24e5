//! Resources that custom resource definitions declare.

use std::sync::Arc;

use apimachinery::{Schema, object, openapi_merge_schema};
use serde_json::{Map, Value};

use super::definition::versions;
use super::deprecation;
use super::resource::{PrinterColumn, Resource, ScalePaths};

/// Returns a resource for each served version of a definition.
pub(crate) fn custom_resources(definition: &Value) -> impl Iterator<Item = Resource> {
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
