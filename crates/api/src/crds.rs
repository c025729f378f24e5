//! The CRDs of our kinds, from the Rust types.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use apimachinery::schema::Schema;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::{fusioninfer, inference, ome};

/// Every CRD that ostler serves, in the order to install them.
pub fn crds() -> Vec<Value> {
    CRDS.clone()
}

/// Generated once for the life of the process: that takes longer than everything else a start does.
static CRDS: LazyLock<Vec<Value>> = LazyLock::new(generated);

fn generated() -> Vec<Value> {
    vec![
        crd::<ome::AcceleratorClass>(),
        crd::<ome::BaseModel>(),
        crd::<ome::ClusterBaseModel>(),
        crd::<ome::ServingRuntime>(),
        crd::<ome::ClusterServingRuntime>(),
        crd::<ome::InferenceService>(),
        crd::<fusioninfer::InferenceService>(),
        crd::<inference::BackendPool>(),
        crd::<inference::LLMUseCaseSet>(),
        crd::<inference::LLMUseCase>(),
    ]
}

/// The schema of one of our kinds, as written and compiled; compiling takes longer than checking a document.
pub(crate) struct KindSchema {
    /// `openAPIV3Schema`.
    pub(crate) json: &'static Value,
    compiled: OnceLock<Option<Schema>>,
}

impl KindSchema {
    /// None for a schema that does not compile: a bug that `schemas_are_structural` shows.
    pub(crate) fn compiled(&self) -> Option<&Schema> {
        self.compiled.get_or_init(|| Schema::from_json(self.json).ok()).as_ref()
    }
}

/// Whether a kind is one of ours, at a version that we serve.
pub fn is_served(api_version: &str, kind: &str) -> bool {
    schema(api_version, kind).is_some()
}

/// The schema of one of our kinds.
pub(crate) fn schema(api_version: &str, kind: &str) -> Option<&'static KindSchema> {
    SCHEMAS.get(&(api_version.to_owned(), kind.to_owned()))
}

/// `apiVersion` and kind of each of ours.
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

fn crd<K: CustomResourceExt>() -> Value {
    // The generated struct holds only JSON-compatible values, so this cannot fail; `schemas_are_structural` would show it.
    let mut crd = serde_json::to_value(K::crd()).unwrap_or_default();
    let names = &mut crd["spec"]["names"];
    names["listKind"] = Value::from(format!("{}List", names["kind"].as_str().unwrap_or_default()));
    name_the_name(&mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    crd
}

/// A rule may point to a field that the schema names only, and of metadata a schema may name the name.
fn name_the_name(schema: &mut Value) {
    let rules = schema["x-kubernetes-validations"].as_array();
    if rules.is_some_and(|rules| rules.iter().any(|rule| rule["fieldPath"] == ".metadata.name")) {
        schema["properties"]["metadata"] = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    }
}

#[cfg(test)]
mod served;
#[cfg(test)]
mod tests;
