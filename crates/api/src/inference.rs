//! `inference.networking.x-k8s.io/v1alpha1`: pools of engines and what clients may ask of them (seed 003).

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Quantity, condition::Condition, duration::Duration, openapi};

/// The API group and version of this module.
pub const API_VERSION: &str = "inference.networking.x-k8s.io/v1alpha1";

/// Engines that share their capacity; owned by the platform.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "inference.networking.x-k8s.io",
    version = "v1alpha1",
    kind = "BackendPool",
    plural = "backendpools",
    namespaced,
    shortname = "bpool",
    category = "inference",
    status = "BackendPoolStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Endpoints","type":"integer","jsonPath":".status.endpoints"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.readyEndpoints"}"#,
    printcolumn = r#"{"name":"Use cases","type":"integer","jsonPath":".status.useCases"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct BackendPoolSpec {
    /// Labels that pick the Pods, in the pool's namespace.
    pub selector: BTreeMap<String, String>,
    /// Each port of each Pod is an endpoint.
    #[schemars(schema_with = "ports")]
    pub target_ports: Vec<u16>,
    /// What the engines are; `vllm` if unset. A Pod label may override.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_server: Option<ModelServer>,
    /// Whether models nobody declared are served; `Deny` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub implicit_use_cases: Option<ImplicitUseCases>,
    /// What a gateway does when the picker cannot answer; `FailClose` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_mode: Option<FailureMode>,
    /// Limits of the requests that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimits>,
}

/// The engine software of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelServer {
    #[default]
    Vllm,
    Sglang,
    Trtllm,
    Triton,
}

/// Whether models nobody declared are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ImplicitUseCases {
    #[default]
    Deny,
    /// With the lowest priority.
    Allow,
}

/// What a gateway does without an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum FailureMode {
    #[default]
    FailClose,
    FailOpen,
}

/// Bounds of the queue in front of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueLimits {
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Requests that may wait; 1000 if unset.
    pub max_requests: Option<i64>,
    /// Bytes of the waiting bodies; `256Mi` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::amount")]
    pub max_bytes: Option<Quantity>,
    /// Longest wait; `30s` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// What the picker sees of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendPoolStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Ports of all selected Pods.
    pub endpoints: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Those of Pods that are ready.
    pub ready_endpoints: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Use cases that refer to the pool.
    pub use_cases: Option<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    /// Keyed by type.
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
}

/// Use cases that share pools; owned by those who serve them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "inference.networking.x-k8s.io",
    version = "v1alpha1",
    kind = "LLMUseCaseSet",
    plural = "llmusecasesets",
    namespaced,
    shortname = "lucs",
    category = "inference",
    status = "UseCaseStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Pools","type":"string","jsonPath":".spec.poolRef[*].name"}"#,
    printcolumn = r#"{"name":"Models","type":"string","jsonPath":".spec.useCases[*].modelName"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct LLMUseCaseSetSpec {
    /// Pools of the same namespace.
    pub pool_ref: Vec<PoolRef>,
    /// Unique by model name on each pool.
    pub use_cases: Vec<UseCase>,
}

/// One use case as an object of its own.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "inference.networking.x-k8s.io",
    version = "v1alpha1",
    kind = "LLMUseCase",
    plural = "llmusecases",
    namespaced,
    shortname = "luc",
    category = "inference",
    status = "UseCaseStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Pools","type":"string","jsonPath":".spec.poolRef[*].name"}"#,
    printcolumn = r#"{"name":"Model","type":"string","jsonPath":".spec.modelName"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct LLMUseCaseSpec {
    /// Pools of the same namespace.
    pub pool_ref: Vec<PoolRef>,
    /// What clients send as `model`.
    #[schemars(length(min = 1))]
    pub model_name: String,
    /// Its presence makes the use case critical.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Weighted versions; empty: the model name itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_models: Vec<TargetModel>,
}

impl LLMUseCaseSpec {
    /// The use case that this object states.
    pub fn use_case(&self) -> UseCase {
        UseCase {
            model_name: self.model_name.clone(),
            objective: self.objective.clone(),
            target_models: self.target_models.clone(),
        }
    }
}

/// A reference to a BackendPool.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// Name of the BackendPool.
    pub name: String,
    /// `BackendPool` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// API version of the pool; that of BackendPool if unset.
    pub api_version: Option<String>,
    /// Accepted as an ObjectReference has it; only the own namespace is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Policies for one model name that clients send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UseCase {
    /// What clients send as `model`.
    #[schemars(length(min = 1))]
    pub model_name: String,
    /// Its presence makes the use case critical.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Weighted versions; empty: the model name itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_models: Vec<TargetModel>,
}

/// The latency that a use case wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Objective {
    /// End-to-end time divided by output tokens, P95 over the operator's window.
    #[serde(
        rename = "desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests",
        skip_serializing_if = "Option::is_none"
    )]
    pub latency_per_output_token: Option<Duration>,
}

/// A model or LoRA adapter as the engines know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetModel {
    /// What is sent to the engine as `model`.
    pub target_model_name: String,
    /// Share of the traffic relative to the other targets; 1 if unset.
    #[schemars(range(min = 0, max = 1_000_000), extend("format" = "int32"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// What became of a use case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UseCaseStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    /// Keyed by type.
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
}

fn ports(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 8,
        "items": {"type": "integer", "minimum": 1, "maximum": 65535},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lint, manifest};

    #[test]
    fn pools_and_use_cases_read_and_lint_clean() {
        let documents = manifest::read("f.yaml", include_str!("manifest/example_pool.yaml")).unwrap();
        for document in &documents {
            assert_eq!(lint::check(document), [], "{}", document.object());
        }
        let pool: BackendPool = documents[0].parse().unwrap();
        assert_eq!(pool.spec.target_ports, [8000]);
        assert_eq!(pool.spec.queue.unwrap().timeout.unwrap().to_string(), "30s");
        let set: LLMUseCaseSet = documents[1].parse().unwrap();
        let objective = set.spec.use_cases[0].objective.clone().unwrap();
        assert_eq!(objective.latency_per_output_token.unwrap().to_string(), "60ms");
        let flat: LLMUseCase = documents[2].parse().unwrap();
        assert_eq!(flat.spec.use_case().model_name, "plain");
    }
}
