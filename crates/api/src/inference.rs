//! `inference.networking.x-k8s.io/v1alpha1`: pools of engines and their use cases (seed 003).

use std::collections::BTreeMap;

use apimachinery::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{condition::Condition, duration::Duration, openapi};

/// The API group of every kind in this module.
pub const GROUP: &str = "inference.networking.x-k8s.io";

/// The API version of every kind in this module.
pub const API_VERSION: &str = "inference.networking.x-k8s.io/v1alpha1";

/// Annotation of a BackendPool that names a ConfigMap of its namespace with an EndpointPickerConfig, and label of that
/// ConfigMap.
pub const PICKER_CONFIG_KEY: &str = "ostler.io/picker-config";

/// Label selector of the ConfigMaps with an EndpointPickerConfig.
pub const PICKER_CONFIG_SELECTOR: &str = "ostler.io/picker-config=true";

/// A pool of engines, managed by the platform team.
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
    /// Labels that select the Pods, in the namespace of the pool.
    pub selector: BTreeMap<String, String>,
    /// Ports of the Pods; each port of each Pod is an endpoint.
    #[schemars(schema_with = "ports")]
    pub target_ports: Vec<u16>,
    /// Model server of the Pods; `vllm` if unset. A Pod label can override it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_server: Option<ModelServer>,
    /// Whether models without a use case are served; `Deny` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub implicit_use_cases: Option<ImplicitUseCases>,
    /// Behavior of a gateway if the endpoint picker is unavailable; `FailClose` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_mode: Option<FailureMode>,
    /// Limits of the request queue; those that are unset have defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimits>,
    /// The gateway scales a workload to zero replicas while the pool receives no requests; never if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_to_zero: Option<ScaleToZero>,
}

/// The model server of a pool; `vllm` if unset. A Pod label can override it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelServer {
    /// vLLM.
    #[default]
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    Trtllm,
    /// NVIDIA Triton Inference Server.
    Triton,
}

/// Whether models without a use case are served; `Deny` if unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ImplicitUseCases {
    /// Requests for such models are rejected.
    #[default]
    Deny,
    /// Such models are served with the lowest priority.
    Allow,
}

/// Behavior of a gateway if the endpoint picker is unavailable; `FailClose` if unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum FailureMode {
    /// Reject the request.
    #[default]
    FailClose,
    /// Forward the request to any endpoint.
    FailOpen,
}

/// Limits of the request queue of a pool; unset limits have defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueLimits {
    /// Maximum number of queued requests; 1000 if unset.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<i64>,
    /// Maximum total size of the queued request bodies; `256Mi` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::quantity")]
    pub max_bytes: Option<Quantity>,
    /// Maximum time in the queue; `30s` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

impl QueueLimits {
    /// Default of [`Self::max_requests`].
    pub const DEFAULT_MAX_REQUESTS: usize = 1_000;

    /// Default of [`Self::max_bytes`] in bytes.
    pub const DEFAULT_MAX_BYTES: u64 = 256 * 1024 * 1024;

    /// Default of [`Self::timeout`].
    pub const DEFAULT_TIMEOUT: Duration = Duration(std::time::Duration::from_secs(30));
}

/// Scaling of a workload between zero and one replica by the requests to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleToZero {
    /// Workload of the Pods, in the namespace of the pool. An autoscaler may scale it between one and more replicas.
    pub target_ref: ScaleTargetRef,
    /// Time without requests after which the workload has no replicas; `5m` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Duration>,
    /// Maximum time in the queue while no Pod is ready; that of the queue if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout: Option<Duration>,
}

/// A workload with the subresource `scale`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleTargetRef {
    /// Kind of the workload.
    pub kind: ScaleTargetKind,
    /// Name of the workload.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Kinds of workloads that the gateway scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ScaleTargetKind {
    /// `apps/v1` Deployment.
    Deployment,
    /// `leaderworkerset.x-k8s.io/v1` LeaderWorkerSet.
    LeaderWorkerSet,
}

/// State of a pool, as observed by the endpoint picker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendPoolStatus {
    /// Number of endpoints: ports of all selected Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<i32>,
    /// Number of endpoints of ready Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_endpoints: Option<i32>,
    /// Number of use cases that reference the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_cases: Option<i32>,
    /// When a request was last in progress in RFC 3339 format, recorded with a delay of up to a minute; only for pools with
    /// `scaleToZero`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_request_time: Option<String>,
    /// Conditions, keyed by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
}

/// A set of use cases that share pools, managed by the team that owns the workloads.
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
#[schemars(transform = openapi::validation_rule(
    "self.useCases.all(a, self.useCases.exists_one(b, b.modelName == a.modelName))",
    "modelName of each use case must be unique; remove the duplicate",
))]
pub struct LLMUseCaseSetSpec {
    /// Pools in the same namespace.
    pub pool_ref: Vec<PoolRef>,
    /// Use cases; model names are unique per pool.
    // The limits bound the cost of the rule.
    #[schemars(length(max = 256))]
    pub use_cases: Vec<UseCase>,
}

/// A single use case.
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
    /// Pools in the same namespace.
    pub pool_ref: Vec<PoolRef>,
    /// Model name in the requests of clients.
    #[schemars(length(min = 1))]
    pub model_name: String,
    /// Latency objective; a use case with an objective is critical, and not if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Weighted target models; the model name itself if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_models: Vec<TargetModel>,
}

/// A reference to a BackendPool or an InferencePool.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// Name of the pool.
    pub name: String,
    /// Kind of the pool, `BackendPool` or `InferencePool`; `BackendPool` if unset. Pools of both kinds with the same name are
    /// the same pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// API version of the pool; the API version of BackendPool if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Namespace of the pool; that of the object itself if unset. No other one is supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Policies for requests with one model name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UseCase {
    /// Model name in the requests of clients.
    #[schemars(length(min = 1, max = 253))]
    pub model_name: String,
    /// Latency objective; a use case with an objective is critical, and not if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Weighted target models; the model name itself if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_models: Vec<TargetModel>,
}

/// Latency objective of a use case, which makes it critical; not critical if unset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Objective {
    /// Desired end-to-end latency divided by the number of output tokens, at the 95th percentile over multiple requests; critical
    /// without a target if unset.
    #[serde(
        rename = "desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests",
        skip_serializing_if = "Option::is_none"
    )]
    pub latency_per_output_token: Option<Duration>,
}

/// A model or LoRA adapter of the engines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetModel {
    /// Model name in the requests to the engines.
    pub target_model_name: String,
    /// Weight relative to the other target models; 1 if unset.
    #[schemars(range(min = 0, max = 1_000_000), extend("format" = "int32"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// State of a use case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UseCaseStatus {
    /// Conditions, keyed by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::conditions")]
    pub conditions: Vec<Condition>,
    /// Measured latencies of the use cases with a latency objective, by pool; updated every 30 seconds at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objectives: Vec<ObjectiveStatus>,
}

/// Measured latency of a use case on one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectiveStatus {
    /// Model name of the use case.
    pub model_name: String,
    /// Name of the pool.
    pub pool: String,
    /// Desired end-to-end latency divided by the number of output tokens, at the 95th percentile.
    pub desired: Duration,
    /// Measured latency; unset if the window has fewer than 50 requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Duration>,
    /// Whether the measured latency is at most the desired one; unset if nothing is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attained: Option<bool>,
}

// === impl LLMUseCaseSpec ===

impl LLMUseCaseSpec {
    /// Returns the use case without the pool references.
    pub fn use_case(&self) -> UseCase {
        UseCase {
            model_name: self.model_name.clone(),
            objective: self.objective.clone(),
            target_models: self.target_models.clone(),
        }
    }
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

    /// Columns: spec of an LLMUseCaseSet in the namespace `team`, error.
    // spec: GW-37
    #[rstest::rstest]
    #[case::unique("{poolRef: [{name: p, namespace: team}], useCases: [{modelName: a}, {modelName: b}]}", None)]
    #[case::duplicate(
        "{poolRef: [{name: p}], useCases: [{modelName: a}, {modelName: a}]}",
        Some("spec: modelName of each use case must be unique")
    )]
    #[case::namespace(
        "{poolRef: [{name: p}, {name: q, namespace: x}], useCases: []}",
        Some("spec.poolRef[1].namespace: `x` is not the namespace of the object, which is `team`")
    )]
    #[case::objective(
        "{poolRef: [{name: p}], useCases: [{modelName: a, objective: {desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests: 60ms}}]}",
        None
    )]
    #[case::malformed_objective(
        "{poolRef: [{name: p}], useCases: [{modelName: a, objective: {desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests: fast}}]}",
        Some("spec.useCases[0].objective.desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests: ")
    )]
    fn use_cases_are_validated(#[case] spec: &str, #[case] expect: Option<&str>) {
        let text = format!(
            "apiVersion: {API_VERSION}\nkind: LLMUseCaseSet\nmetadata: {{name: s, namespace: team}}\nspec: {spec}\n"
        );
        let document = manifest::parse_manifest("f.yaml", &text).unwrap().remove(0);
        let findings: Vec<String> = lint::lint_document(&document)
            .into_iter()
            .map(|finding| format!("{}: {}", finding.path, finding.message))
            .collect();
        assert_eq!(findings.len(), usize::from(expect.is_some()), "{findings:?}");
        assert!(findings.iter().all(|finding| finding.starts_with(expect.unwrap())), "{findings:?}");
    }

    #[test]
    fn pools_and_use_cases_parse_without_findings() {
        let documents = manifest::parse_manifest("f.yaml", include_str!("manifest/example_pool.yaml")).unwrap();
        for document in &documents {
            assert_eq!(lint::lint_document(document), [], "{}", document.display_name());
        }
        let pool: BackendPool = documents[0].parse().unwrap();
        assert_eq!(pool.spec.target_ports, [8000]);
        assert_eq!(pool.spec.queue.unwrap().timeout.unwrap().to_string(), "30s");
        let set: LLMUseCaseSet = documents[1].parse().unwrap();
        let objective = set.spec.use_cases[0].objective.clone().unwrap();
        assert_eq!(objective.latency_per_output_token.unwrap().to_string(), "60ms");
        let inline_use_case: LLMUseCase = documents[2].parse().unwrap();
        assert_eq!(inline_use_case.spec.use_case().model_name, "plain");
    }
}
