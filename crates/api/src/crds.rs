//! The CRDs of the ostler kinds, generated from the Rust types.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use apimachinery::Schema;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::{fusioninfer, inference, ome};

/// Returns all CRDs of ostler, in installation order.
pub fn crds() -> Vec<Value> {
    CRDS.clone()
}

/// Generated once per process, because generation dominates the startup time.
static CRDS: LazyLock<Vec<Value>> = LazyLock::new(generate_crds);

fn generate_crds() -> Vec<Value> {
    vec![
        generate_crd::<ome::AcceleratorClass>(),
        generate_crd::<ome::BaseModel>(),
        generate_crd::<ome::ClusterBaseModel>(),
        generate_crd::<ome::ServingRuntime>(),
        generate_crd::<ome::ClusterServingRuntime>(),
        generate_crd::<ome::InferenceService>(),
        generate_crd::<fusioninfer::InferenceService>(),
        generate_crd::<inference::BackendPool>(),
        generate_crd::<inference::LLMUseCaseSet>(),
        generate_crd::<inference::LLMUseCase>(),
    ]
}

/// The schema of an ostler kind, as JSON and compiled on first use.
pub(crate) struct KindSchema {
    /// `openAPIV3Schema`.
    pub(crate) json: &'static Value,
    compiled: OnceLock<Option<Schema>>,
}

impl KindSchema {
    /// Returns the compiled schema; `None` if it does not compile, which the test `schemas_are_structural` excludes.
    pub(crate) fn compiled(&self) -> Option<&Schema> {
        self.compiled.get_or_init(|| Schema::from_json(self.json).ok()).as_ref()
    }
}

/// Reports whether ostler serves a kind at this API version.
pub fn is_served_kind(api_version: &str, kind: &str) -> bool {
    schema(api_version, kind).is_some()
}

/// Returns the schema of an ostler kind.
pub(crate) fn schema(api_version: &str, kind: &str) -> Option<&'static KindSchema> {
    SCHEMAS.get(&(api_version.to_owned(), kind.to_owned()))
}

/// Returns the `apiVersion` and kind of each ostler kind.
pub(crate) fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    SCHEMAS.keys().map(|(api_version, kind)| (api_version.as_str(), kind.as_str()))
}

static SCHEMAS: LazyLock<BTreeMap<(String, String), KindSchema>> = LazyLock::new(schemas);

fn schemas() -> BTreeMap<(String, String), KindSchema> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut schemas = BTreeMap::new();
    for crd in CRDS.iter() {
        let spec = &crd["spec"];
        let version = &spec["versions"][0];
        let api_version = format!("{}/{}", text(&spec["group"]), text(&version["name"]));
        let json = &version["schema"]["openAPIV3Schema"];
        let schema = KindSchema { json, compiled: OnceLock::new() };
        schemas.insert((api_version, text(&spec["names"]["kind"])), schema);
    }
    schemas
}

fn generate_crd<K: CustomResourceExt>() -> Value {
    // The generated struct is always serializable; the test `schemas_are_structural` verifies it.
    let mut crd = serde_json::to_value(K::crd()).unwrap_or_default();
    let names = &mut crd["spec"]["names"];
    names["listKind"] = Value::from(format!("{}List", names["kind"].as_str().unwrap_or_default()));
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    declare_metadata_name(schema);
    add_null_to_optional_enums(schema);
    crd
}

/// Adds `null` to the values of optional enums, since `nullable` alone does not permit it. `schemars` omits it for enums
/// whose variants have descriptions.
fn add_null_to_optional_enums(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("nullable") == Some(&Value::Bool(true))
                && let Some(Value::Array(values)) = members.get_mut("enum")
                && !values.contains(&Value::Null)
            {
                values.push(Value::Null);
            }
            members.values_mut().for_each(add_null_to_optional_enums);
        }
        Value::Array(items) => items.iter_mut().for_each(add_null_to_optional_enums),
        _ => {}
    }
}

/// Declares `metadata.name` if a rule uses it as its `fieldPath`, which must refer to a declared field.
fn declare_metadata_name(schema: &mut Value) {
    let rules = schema["x-kubernetes-validations"].as_array();
    if rules.is_some_and(|rules| rules.iter().any(|rule| rule["fieldPath"] == ".metadata.name")) {
        schema["properties"]["metadata"] = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    }
}

#[cfg(test)]
mod served;
#[cfg(test)]
mod tests;
