//! The watched kinds.

use api::inference::PICKER_CONFIG_SELECTOR;
use cluster::Kind;

/// API group of the pools and use cases.
const GROUP: &str = "inference.networking.x-k8s.io";
pub(crate) const BACKEND_POOL: Kind = Kind::namespaced(GROUP, "v1alpha1", "BackendPool", "backendpools");
pub(crate) const USE_CASE_SET: Kind = Kind::namespaced(GROUP, "v1alpha1", "LLMUseCaseSet", "llmusecasesets");
pub(crate) const USE_CASE: Kind = Kind::namespaced(GROUP, "v1alpha1", "LLMUseCase", "llmusecases");
pub(crate) const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
/// Workloads that the gateway scales.
pub(crate) const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
pub(crate) const LEADER_WORKER_SET: Kind =
    Kind::namespaced("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets");

/// ConfigMaps with an EndpointPickerConfig.
pub(crate) const PICKER_CONFIG: Kind =
    Kind::namespaced("", "v1", "ConfigMap", "configmaps").with_label_selector(PICKER_CONFIG_SELECTOR);

/// Kind of the pools of endpoint pickers. Those of v1alpha2 are known to their endpoint pickers only.
pub(crate) const INFERENCE_POOL: &str = "InferencePool";
/// API group of InferencePools of v1.
pub(crate) const INFERENCE_POOL_GROUP: &str = "inference.networking.k8s.io";

/// InferencePools of v1.
pub(crate) const INFERENCE_POOL_V1: Kind =
    Kind::namespaced(INFERENCE_POOL_GROUP, "v1", INFERENCE_POOL, "inferencepools");

const LLM_D_GROUP: &str = "llm-d.ai";
/// InferenceObjectives of both API groups. That of llm-d is the newer one.
pub(crate) const INFERENCE_OBJECTIVES: [Kind; 2] = [
    Kind::namespaced(LLM_D_GROUP, "v1alpha2", "InferenceObjective", "inferenceobjectives"),
    Kind::namespaced(GROUP, "v1alpha2", "InferenceObjective", "inferenceobjectives"),
];
/// InferenceModelRewrites of both API groups.
pub(crate) const MODEL_REWRITES: [Kind; 2] = [
    Kind::namespaced(LLM_D_GROUP, "v1alpha2", "InferenceModelRewrite", "inferencemodelrewrites"),
    Kind::namespaced(GROUP, "v1alpha2", "InferenceModelRewrite", "inferencemodelrewrites"),
];

/// API group of the Gateway API.
const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
pub(crate) const GATEWAY_CLASS: Kind = Kind::cluster_scoped(GATEWAY_GROUP, "v1", "GatewayClass", "gatewayclasses");
pub(crate) const GATEWAY: Kind = Kind::namespaced(GATEWAY_GROUP, "v1", "Gateway", "gateways");
pub(crate) const HTTP_ROUTE: Kind = Kind::namespaced(GATEWAY_GROUP, "v1", "HTTPRoute", "httproutes");
/// The version that all releases of the Gateway API serve.
pub(crate) const REFERENCE_GRANT: Kind =
    Kind::namespaced(GATEWAY_GROUP, "v1beta1", "ReferenceGrant", "referencegrants");
pub(crate) const NAMESPACE: Kind = Kind::cluster_scoped("", "v1", "Namespace", "namespaces");
