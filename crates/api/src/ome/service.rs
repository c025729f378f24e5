//! InferenceService: "serve this model", with as much or as little said about how.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AcceleratorSelector, Component};
use crate::{condition::Condition, openapi};

/// A model to serve.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "InferenceService",
    plural = "inferenceservices",
    namespaced,
    shortname = "isvc",
    category = "inference",
    status = "InferenceServiceStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Model","type":"string","jsonPath":".spec.model.name"}"#,
    printcolumn = r#"{"name":"Runtime","type":"string","jsonPath":".status.decision.runtime.name"}"#,
    printcolumn = r#"{"name":"Class","type":"string","jsonPath":".status.components.engine.selectedAccelerator.acceleratorClass"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"URL","type":"string","jsonPath":".status.url"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Unset: the best compatible runtime with `autoSelect` is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<ServingRuntimeRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = balanced)]
    pub accelerator_selector: Option<AcceleratorSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<Component>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder: Option<Component>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<Component>,
    /// Deprecated: read as the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::object")]
    pub predictor: Option<Component>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub keda_config: Option<Value>,
    /// Story 6 of seed 000 writes annotations here; those of the metadata win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The model to serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRef {
    pub name: String,
    /// `BaseModel` or `ClusterBaseModel`; unset: the namespace first, then the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Protocol the clients speak; `openAI` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fine_tuned_weights: Vec<String>,
}

/// The runtime to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServingRuntimeRef {
    pub name: String,
    /// Accepted; the namespace is always searched before the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
}

/// What was decided and what runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub address: Option<Value>,
    /// By component: engine, decoder, router.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, ComponentStatus>,
    /// The decision with its candidates, rejections and warnings, as `ostler plan -o json` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub decision: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub model_status: Option<Value>,
}

/// One component's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_accelerator: Option<SelectedAccelerator>,
}

/// The accelerator a component got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectedAccelerator {
    pub accelerator_class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_requests: BTreeMap<String, String>,
}

/// The strategy's default, stated where the service selects; a component's override inherits the service's instead.
fn balanced(selector: &mut schemars::Schema) {
    if let Some(strategy) = selector.pointer_mut("/properties/strategy").and_then(Value::as_object_mut) {
        strategy.insert("default".to_owned(), Value::from("balanced"));
    }
}
