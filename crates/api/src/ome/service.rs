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
    validation = Rule::new("size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("must start with a letter, hold only a-z, 0-9 and - and be at most 63 characters long, because Services are named after it").field_path(".metadata.name"),
    printcolumn = r#"{"name":"Model","type":"string","jsonPath":".spec.model.name"}"#,
    printcolumn = r#"{"name":"Runtime","type":"string","jsonPath":".status.decision.runtime.name"}"#,
    printcolumn = r#"{"name":"Class","type":"string","jsonPath":".status.components.engine.selectedAccelerator.acceleratorClass"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"URL","type":"string","jsonPath":".status.url"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = openapi::rule(
    "has(self.model) || has(self.runtime) || has(self.predictor) || (has(self.engine) && (has(self.engine.runner) || has(self.engine.containers) || has(self.engine.leader)))",
    "nothing to serve; name a model under `model`, or bring an engine of your own under `engine.runner`",
))]
pub struct InferenceServiceSpec {
    /// What to serve; without it the engine brings its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Unset: the best compatible runtime with `autoSelect` is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<ServingRuntimeRef>,
    /// Which accelerators to use; any that fit if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = balanced)]
    pub accelerator_selector: Option<AcceleratorSelector>,
    /// The engine, over what the runtime says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<Component>,
    /// The decoder of prefill/decode disaggregated serving, over what the runtime says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder: Option<Component>,
    /// The router in front of the engines, over what the runtime says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<Component>,
    /// Deprecated: read as the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::object")]
    pub predictor: Option<Component>,
    /// Deployed upstream field: parameters of a KEDA autoscaler.
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
    /// Name of a BaseModel or ClusterBaseModel.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `BaseModel` or `ClusterBaseModel`; unset: the namespace first, then the cluster.
    #[schemars(extend("enum" = ["BaseModel", "ClusterBaseModel"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `ome.io`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Protocol the clients speak; `openAI` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::protocol")]
    pub protocol_version: Option<String>,
    /// Names of fine-tuned weights; kept, without effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fine_tuned_weights: Vec<String>,
}

/// The runtime to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServingRuntimeRef {
    /// Name of a ServingRuntime or ClusterServingRuntime.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Accepted; the namespace is always searched before the cluster.
    #[schemars(extend("enum" = ["ServingRuntime", "ClusterServingRuntime"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `ome.io`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
}

/// What was decided and what runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceStatus {
    /// The generation of the spec that the status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One `Ready`, and a condition per stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
    /// Where clients reach the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where clients in the cluster reach the service.
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
    /// Kept for clients of the deployed API.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub model_status: Option<Value>,
}

/// One component's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// Where this component answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Replicas wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Replicas that answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// The accelerator it got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_accelerator: Option<SelectedAccelerator>,
}

/// The accelerator a component got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectedAccelerator {
    /// Name of the AcceleratorClass.
    pub accelerator_class: String,
    /// Why this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Labels of the nodes it may run on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// What each Pod asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_requests: BTreeMap<String, String>,
}

/// The strategy's default, stated where the service selects; a component's override inherits the service's instead.
fn balanced(selector: &mut schemars::Schema) {
    if let Some(strategy) = selector.pointer_mut("/properties/strategy").and_then(Value::as_object_mut) {
        strategy.insert("default".to_owned(), Value::from("balanced"));
    }
}
