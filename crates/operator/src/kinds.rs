//! Kinds that the operator reads and writes.

use cluster::{CUSTOM_RESOURCE_DEFINITION, CachePolicy, Kind, Representation};
use plan::labels::{self, LEADER_WORKER_SET_NAME};

/// InferenceService of `ome.io`.
pub const OME_SERVICE: Kind = Kind::namespaced("ome.io", "v1beta1", "InferenceService", "inferenceservices");
/// Namespaced ServingRuntime.
pub const SERVING_RUNTIME: Kind = Kind::namespaced("ome.io", "v1beta1", "ServingRuntime", "servingruntimes");
/// ClusterServingRuntime.
pub const CLUSTER_SERVING_RUNTIME: Kind =
    Kind::cluster_scoped("ome.io", "v1beta1", "ClusterServingRuntime", "clusterservingruntimes");
/// Namespaced BaseModel.
pub const BASE_MODEL: Kind = Kind::namespaced("ome.io", "v1beta1", "BaseModel", "basemodels");
/// ClusterBaseModel.
pub const CLUSTER_BASE_MODEL: Kind = Kind::cluster_scoped("ome.io", "v1beta1", "ClusterBaseModel", "clusterbasemodels");
/// AcceleratorClass.
pub const ACCELERATOR_CLASS: Kind = Kind::cluster_scoped("ome.io", "v1beta1", "AcceleratorClass", "acceleratorclasses");
/// Role-based InferenceService of `fusioninfer.io`.
pub const FUSIONINFER_SERVICE: Kind =
    Kind::namespaced("fusioninfer.io", "v1alpha1", "InferenceService", "inferenceservices");
/// BackendPool: the endpoints of a model.
pub const BACKEND_POOL: Kind =
    Kind::namespaced("inference.networking.x-k8s.io", "v1alpha1", "BackendPool", "backendpools");
/// LLMUseCaseSet: model names served by pools.
pub const LLM_USE_CASE_SET: Kind =
    Kind::namespaced("inference.networking.x-k8s.io", "v1alpha1", "LLMUseCaseSet", "llmusecasesets");
/// LLMUseCase: one model name. Only endpoint pickers and gateways read it.
pub const LLM_USE_CASE: Kind =
    Kind::namespaced("inference.networking.x-k8s.io", "v1alpha1", "LLMUseCase", "llmusecases");
/// LeaderWorkerSet: groups of Pods across nodes.
pub(crate) const LEADER_WORKER_SET: Kind =
    Kind::namespaced("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets");
/// Volcano's PodGroup: Pods that are scheduled together.
pub(crate) const POD_GROUP: Kind = Kind::namespaced("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups");
/// Deployment.
pub const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
/// Service of the core API.
pub(crate) const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");
/// HorizontalPodAutoscaler.
pub(crate) const HORIZONTAL_POD_AUTOSCALER: Kind =
    Kind::namespaced("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
/// PodDisruptionBudget.
pub(crate) const POD_DISRUPTION_BUDGET: Kind =
    Kind::namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
/// KEDA's ScaledObject.
pub(crate) const SCALED_OBJECT: Kind = Kind::namespaced("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects");
/// Pod.
pub const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
/// Node.
pub const NODE: Kind = Kind::cluster_scoped("", "v1", "Node", "nodes");

/// Selector of the objects that ostler manages. Kinds with very many objects in a cluster are watched with this
/// selector.
const MANAGED_BY_SELECTOR: &str = "app.kubernetes.io/managed-by=ostler";
/// ControllerRevision of a service.
pub const CONTROLLER_REVISION: Kind = Kind::namespaced("apps", "v1", "ControllerRevision", "controllerrevisions")
    .with_label_selector(MANAGED_BY_SELECTOR);
/// ConfigMap of the base set of accelerator classes.
pub(crate) const BASE_SET_CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
/// ConfigMap of a router.
pub(crate) const CONFIG_MAP: Kind = BASE_SET_CONFIG_MAP.with_label_selector(MANAGED_BY_SELECTOR);
/// ServiceAccount of a router's endpoint picker.
pub(crate) const SERVICE_ACCOUNT: Kind =
    Kind::namespaced("", "v1", "ServiceAccount", "serviceaccounts").with_label_selector(MANAGED_BY_SELECTOR);
/// Role of a router's endpoint picker.
pub(crate) const ROLE: Kind =
    Kind::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles").with_label_selector(MANAGED_BY_SELECTOR);
/// RoleBinding of a router's endpoint picker.
pub(crate) const ROLE_BINDING: Kind =
    Kind::namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
        .with_label_selector(MANAGED_BY_SELECTOR);
/// InferencePool of the Gateway API Inference Extension.
pub(crate) const INFERENCE_POOL: Kind =
    Kind::namespaced("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools");
/// HTTPRoute of the Gateway API.
pub(crate) const HTTP_ROUTE: Kind = Kind::namespaced("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes");
/// Versions of Kueue's ResourceFlavor, the preferred one first; only one of them is watched.
pub(crate) const RESOURCE_FLAVORS: [Kind; 2] = [
    Kind::cluster_scoped("kueue.x-k8s.io", "v1beta2", "ResourceFlavor", "resourceflavors"),
    Kind::cluster_scoped("kueue.x-k8s.io", "v1beta1", "ResourceFlavor", "resourceflavors"),
];

/// Both kinds of services.
pub(crate) const SERVICES: [Kind; 2] = [OME_SERVICE, FUSIONINFER_SERVICE];
/// Custom resources that decisions depend on.
pub(crate) const SELECTION_KINDS: [Kind; 5] =
    [CLUSTER_SERVING_RUNTIME, SERVING_RUNTIME, CLUSTER_BASE_MODEL, BASE_MODEL, ACCELERATOR_CLASS];

/// Kinds that every cluster serves; watched from the start.
pub(crate) const BUILTIN: &[Kind] = &[DEPLOYMENT, SERVICE, HORIZONTAL_POD_AUTOSCALER, POD_DISRUPTION_BUDGET, POD, NODE];

/// Custom resources of ostler and of the optional integrations; watched once they are served.
pub(crate) const CUSTOM_RESOURCES: &[Kind] = &[
    OME_SERVICE,
    SERVING_RUNTIME,
    CLUSTER_SERVING_RUNTIME,
    BASE_MODEL,
    CLUSTER_BASE_MODEL,
    ACCELERATOR_CLASS,
    FUSIONINFER_SERVICE,
    BACKEND_POOL,
    LLM_USE_CASE_SET,
    LEADER_WORKER_SET,
    POD_GROUP,
    SCALED_OBJECT,
    INFERENCE_POOL,
    HTTP_ROUTE,
];

/// Kinds that are watched from the start with a label selector, so that only objects managed by ostler are observed.
pub(crate) const LABEL_FILTERED: &[Kind] = &[CONTROLLER_REVISION, CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING];

/// Kinds of ostler's own CustomResourceDefinitions; the operator does nothing without them.
pub(crate) const OSTLER_APIS: &[Kind] = &[
    OME_SERVICE,
    SERVING_RUNTIME,
    CLUSTER_SERVING_RUNTIME,
    BASE_MODEL,
    CLUSTER_BASE_MODEL,
    ACCELERATOR_CLASS,
    FUSIONINFER_SERVICE,
    BACKEND_POOL,
    LLM_USE_CASE_SET,
];

/// Kinds of objects that a service may own, in the order of pruning: routes before the endpoints that they reference.
pub const OWNED: &[Kind] = &[
    HTTP_ROUTE,
    INFERENCE_POOL,
    LLM_USE_CASE_SET,
    BACKEND_POOL,
    SCALED_OBJECT,
    HORIZONTAL_POD_AUTOSCALER,
    POD_DISRUPTION_BUDGET,
    SERVICE,
    DEPLOYMENT,
    CONFIG_MAP,
    ROLE_BINDING,
    ROLE,
    SERVICE_ACCOUNT,
    LEADER_WORKER_SET,
    POD_GROUP,
    CONTROLLER_REVISION,
];

/// Label of Pods that contains the name of their service, for each kind of service.
pub(crate) const POD_LABELS: [(&str, Kind); 2] =
    [(labels::OME_SERVICE, OME_SERVICE), (labels::SERVICE, FUSIONINFER_SERVICE)];

/// Returns how objects of `kind` are cached. Objects that services select from are few and are read together, so they
/// are cached as JSON trees; other objects are many and are read one at a time, so they are cached as text.
pub(crate) fn cache_policy(kind: Kind) -> CachePolicy {
    match kind {
        POD => CachePolicy {
            representation: Representation::Serialized,
            indexed_labels: &[labels::OME_SERVICE, labels::SERVICE, LEADER_WORKER_SET_NAME],
            ..CachePolicy::default()
        },
        SERVING_RUNTIME
        | CLUSTER_SERVING_RUNTIME
        | BASE_MODEL
        | CLUSTER_BASE_MODEL
        | ACCELERATOR_CLASS
        | BASE_SET_CONFIG_MAP => CachePolicy::default(),
        kind if RESOURCE_FLAVORS.contains(&kind) || kind == CUSTOM_RESOURCE_DEFINITION => CachePolicy::default(),
        _ => CachePolicy { representation: Representation::Serialized, ..CachePolicy::default() },
    }
}
