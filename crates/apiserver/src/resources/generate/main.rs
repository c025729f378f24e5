//! Writes the schemas of the built-in kinds next to this directory: `cargo run` here after an upgrade of k8s-openapi.
//!
//! `schemas.txt` has one line `APIVERSION KIND DEFINITION SCHEMA` per kind: the name of its definition and its structural
//! schema with everything inlined, or `null` for a recursive type. `definitions.txt` has one line `NAME SCHEMA` per
//! definition that a kind references, for OpenAPI documents.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::Resource;
use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// The contents of the two files.
#[derive(Default)]
struct Output {
    schemas: String,
    definitions: BTreeMap<String, Value>,
}

fn main() -> std::io::Result<()> {
    let mut output = Output::default();
    output.add::<api::core::v1::Namespace>();
    output.add::<api::core::v1::Node>();
    output.add::<api::core::v1::Pod>();
    output.add::<api::core::v1::Service>();
    output.add::<api::core::v1::Endpoints>();
    output.add::<api::core::v1::ConfigMap>();
    output.add::<api::core::v1::Secret>();
    output.add::<api::core::v1::ServiceAccount>();
    output.add::<api::core::v1::Event>();
    output.add::<api::core::v1::PersistentVolumeClaim>();
    output.add::<api::core::v1::PersistentVolume>();
    output.add::<api::apps::v1::Deployment>();
    output.add::<api::apps::v1::ReplicaSet>();
    output.add::<api::apps::v1::StatefulSet>();
    output.add::<api::apps::v1::ControllerRevision>();
    output.add::<api::batch::v1::Job>();
    output.add::<api::coordination::v1::Lease>();
    output.add::<api::rbac::v1::Role>();
    output.add::<api::rbac::v1::RoleBinding>();
    output.add::<api::rbac::v1::ClusterRole>();
    output.add::<api::rbac::v1::ClusterRoleBinding>();
    output.add::<api::networking::v1::Ingress>();
    output.add::<api::discovery::v1::EndpointSlice>();
    output.add::<api::autoscaling::v1::HorizontalPodAutoscaler>();
    output.add::<api::autoscaling::v2::HorizontalPodAutoscaler>();
    output.add::<api::policy::v1::PodDisruptionBudget>();
    output.add::<api::events::v1::Event>();
    output.add::<api::storage::v1::StorageClass>();
    output.add::<api::scheduling::v1::PriorityClass>();
    output.add_recursive::<CustomResourceDefinition>();
    output.add::<api::authentication::v1::SelfSubjectReview>();
    output.add::<api::authorization::v1::SelfSubjectRulesReview>();
    output.add::<api::authorization::v1::SelfSubjectAccessReview>();
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::write(directory.join("schemas.txt"), output.schemas)?;
    let lines = output.definitions.iter().map(|(name, schema)| format!("{name} {schema}\n"));
    std::fs::write(directory.join("definitions.txt"), lines.collect::<String>())
}

// === impl Output ===

impl Output {
    fn add<T: JsonSchema + Resource>(&mut self) {
        self.add_kind::<T>(&structural_schema::<T>());
    }

    fn add_recursive<T: JsonSchema + Resource>(&mut self) {
        self.add_kind::<T>(&Value::Null);
    }

    fn add_kind<T: JsonSchema + Resource>(&mut self, schema: &Value) {
        let _ = writeln!(self.schemas, "{} {} {} {schema}", T::API_VERSION, T::KIND, T::schema_name());
        let mut generator = SchemaGenerator::new(SchemaSettings::openapi3());
        let _ = generator.subschema_for::<T>();
        let mut definitions = generator.take_definitions(true);
        definitions.values_mut().for_each(wrap_references);
        self.definitions.extend(definitions);
    }
}

/// Generates the structural schema of `T` with everything inlined. `T` must not be recursive.
fn structural_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    let mut schema = Value::from(SchemaGenerator::new(settings).into_root_schema_for::<T>());
    make_structural(&mut schema);
    if let Some(members) = schema.as_object_mut() {
        members.remove("$schema");
        members.remove("components");
        if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert("metadata".to_owned(), json!({"type": "object"}));
        }
    }
    schema
}

/// Wraps `$ref` with siblings into `allOf`, as kube-apiserver does: OpenAPI 3.0 ignores siblings of `$ref`.
fn wrap_references(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(wrap_references);
            // A property may be named `$ref`, as in the schema of custom resource definitions.
            if members.len() > 1
                && members.get("$ref").is_some_and(Value::is_string)
                && let Some(reference) = members.remove("$ref")
            {
                members.insert("allOf".to_owned(), json!([{"$ref": reference}]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        _ => {}
    }
}

/// Converts the generated schema into a structural schema.
fn make_structural(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    let is_quantity = members
        .get("description")
        .and_then(Value::as_str)
        .is_some_and(|text| text.starts_with("Quantity is a fixed-point representation"));
    members.remove("description");
    if is_quantity {
        members.remove("type");
        members.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
        return;
    }
    let fields = ["properties", "additionalProperties", "x-kubernetes-int-or-string"];
    if !fields.iter().any(|field| members.contains_key(*field))
        && matches!(members.get("type").and_then(Value::as_str), None | Some("object"))
    {
        members.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    }
    for field in ["items", "additionalProperties"] {
        if let Some(child) = members.get_mut(field) {
            make_structural(child);
        }
    }
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(make_structural);
    }
}
