//! InferenceService: a model to serve, with optional runtime, accelerators and components.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AcceleratorSelector, Component};
use crate::{condition::Condition, openapi};

/// A service that serves a model.
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
    validation = Rule::new("size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("must start with a letter, contain only a-z, 0-9 and -, and have at most 63 characters, because Services are named after it").field_path(".metadata.name"),
    printcolumn = r#"{"name":"Model","type":"string","jsonPath":".spec.model.name"}"#,
    printcolumn = r#"{"name":"Runtime","type":"string","jsonPath":".status.decision.runtime.name"}"#,
    printcolumn = r#"{"name":"Class","type":"string","jsonPath":".status.components.engine.selectedAccelerator.acceleratorClass"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"URL","type":"string","jsonPath":".status.url"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = openapi::validation_rule(
    "has(self.model) || has(self.runtime) || has(self.predictor) || (has(self.engine) && (has(self.engine.runner) || has(self.engine.containers) || has(self.engine.leader)))",
    "no model, runtime or engine container is set; set `model`, or add an engine container under `engine.runner`",
))]
pub struct InferenceServiceSpec {
    /// Model to serve; if unset, the engine provides its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Runtime to use; if unset, the best compatible runtime with `autoSelect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<ServingRuntimeRef>,
    /// Accelerators to use; if unset, all suitable classes are eligible.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default_balanced_strategy)]
    pub accelerator_selector: Option<AcceleratorSelector>,
    /// Overrides of the engine of the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<Component>,
    /// Overrides of the decoder of the runtime, for disaggregated prefill and decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder: Option<Component>,
    /// Overrides of the router of the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<Component>,
    /// Deprecated: alias of `engine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::object")]
    pub predictor: Option<Component>,
    /// Upstream OME field: parameters of a KEDA autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub keda_config: Option<Value>,
    /// Annotations that control selection; those in the metadata take precedence.
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
    /// `BaseModel` or `ClusterBaseModel`; if unset, the namespace is searched first, then the cluster.
    #[schemars(extend("enum" = ["BaseModel", "ClusterBaseModel"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// API group: `ome.io`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Protocol of the clients; `openAI` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::protocol")]
    pub protocol_version: Option<String>,
    /// LoRA adapters: names of models with the storage of an adapter, or `NAME=LOCATION`, such as `sql=hf://org/name`.
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
    /// `ServingRuntime` or `ClusterServingRuntime`; accepted without effect: the namespace is always searched first, then the
    /// cluster.
    #[schemars(extend("enum" = ["ServingRuntime", "ClusterServingRuntime"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// API group: `ome.io`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
}

/// Selection decision and state of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceStatus {
    /// Generation of the spec that the status was computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Condition `Ready`, and one condition per stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
    /// URL of the service for clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Address of the service for clients in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub address: Option<Value>,
    /// State by component: engine, decoder or router.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, ComponentStatus>,
    /// Decision: the selected runtime, the candidates that came closest, the number of rejected ones by code, and warnings.
    /// `ostler explain` shows all candidates.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub decision: Option<Value>,
    /// State of the model, for clients of the upstream OME API.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::object")]
    pub model_status: Option<Value>,
}

/// State of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// URL of the component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Number of desired replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of ready replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Nodes per replica, if a replica has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i32>,
    /// Accelerator that was selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_accelerator: Option<SelectedAccelerator>,
    /// Replica sets by prompt size, if they use different accelerators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::objects")]
    pub variants: Vec<Value>,
}

/// The accelerator that was selected for a component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectedAccelerator {
    /// Name of the AcceleratorClass.
    pub accelerator_class: String,
    /// Reason of the selection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Labels of the nodes that the Pods may run on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Resource requests of each Pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_requests: BTreeMap<String, String>,
}

/// Sets the default of `strategy` for services only; components inherit it from the service.
fn default_balanced_strategy(selector: &mut schemars::Schema) {
    if let Some(strategy) = selector.pointer_mut("/properties/strategy").and_then(Value::as_object_mut) {
        strategy.insert("default".to_owned(), Value::from("balanced"));
    }
}
