//! The kinds that the operator reads and makes.

use cluster::neighbours::DEFINITIONS;
use cluster::{Form, Keeping, Kind};
use plan::labels;

/// `ome.io` service.
pub const OME_SERVICE: Kind = Kind::namespaced("ome.io", "v1beta1", "InferenceService", "inferenceservices");
/// Runtime of one namespace.
pub const RUNTIME: Kind = Kind::namespaced("ome.io", "v1beta1", "ServingRuntime", "servingruntimes");
/// Runtime of the cluster.
pub const CLUSTER_RUNTIME: Kind = Kind::cluster("ome.io", "v1beta1", "ClusterServingRuntime", "clusterservingruntimes");
/// Model of one namespace.
pub const MODEL: Kind = Kind::namespaced("ome.io", "v1beta1", "BaseModel", "basemodels");
/// Model of the cluster.
pub const CLUSTER_MODEL: Kind = Kind::cluster("ome.io", "v1beta1", "ClusterBaseModel", "clusterbasemodels");
/// Accelerator class.
pub const CLASS: Kind = Kind::cluster("ome.io", "v1beta1", "AcceleratorClass", "acceleratorclasses");
/// Role-based service.
pub const ROLES_SERVICE: Kind = Kind::namespaced("fusioninfer.io", "v1alpha1", "InferenceService", "inferenceservices");
/// Pool of engines.
pub const POOL: Kind = Kind::namespaced("inference.networking.x-k8s.io", "v1alpha1", "BackendPool", "backendpools");
/// Model names on pools.
pub const USE_CASES: Kind =
    Kind::namespaced("inference.networking.x-k8s.io", "v1alpha1", "LLMUseCaseSet", "llmusecasesets");
/// Groups of Pods over several nodes.
pub const LEADER_WORKER_SET: Kind =
    Kind::namespaced("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets");
/// Volcano's gang.
pub const POD_GROUP: Kind = Kind::namespaced("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups");
/// Deployment.
pub const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
/// Service of Kubernetes.
pub const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");
/// Autoscaler.
pub const AUTOSCALER: Kind =
    Kind::namespaced("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
/// What drains leave of Pods.
pub const DISRUPTION: Kind = Kind::namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
/// KEDA's autoscaler.
pub const SCALED_OBJECT: Kind = Kind::namespaced("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects");
/// Pod.
pub const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
/// Node.
pub const NODE: Kind = Kind::cluster("", "v1", "Node", "nodes");

/// Label of everything that we make: of kinds that a cluster has very many of, the rest is not watched.
pub const OURS_BY_LABEL: &str = "app.kubernetes.io/managed-by=ostler";
/// One state of an object's history.
pub const REVISION: Kind =
    Kind::namespaced("apps", "v1", "ControllerRevision", "controllerrevisions").labelled(OURS_BY_LABEL);
/// The ConfigMap of the base set.
pub const BASE_SET: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
/// ConfigMap of a router.
pub const CONFIG_MAP: Kind = BASE_SET.labelled(OURS_BY_LABEL);
/// Whom a router's picker is.
pub const ACCOUNT: Kind = Kind::namespaced("", "v1", "ServiceAccount", "serviceaccounts").labelled(OURS_BY_LABEL);
/// What it may do.
pub const ROLE: Kind = Kind::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles").labelled(OURS_BY_LABEL);
/// That it may.
pub const ROLE_BINDING: Kind =
    Kind::namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings").labelled(OURS_BY_LABEL);
/// What gateways of others pick from.
pub const INFERENCE_POOL: Kind =
    Kind::namespaced("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools");
/// What leads requests from a Gateway to a pool.
pub const HTTP_ROUTE: Kind = Kind::namespaced("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes");
/// Kueue's ResourceFlavor, the preferred version first; one of them is watched.
pub const FLAVORS: [Kind; 2] = [
    Kind::cluster("kueue.x-k8s.io", "v1beta2", "ResourceFlavor", "resourceflavors"),
    Kind::cluster("kueue.x-k8s.io", "v1beta1", "ResourceFlavor", "resourceflavors"),
];

/// Served by every cluster: watched from the start.
pub const BUILTIN: &[Kind] = &[DEPLOYMENT, SERVICE, AUTOSCALER, DISRUPTION, POD, NODE];

/// Kinds by CustomResourceDefinition, ours and the neighbours': watched as soon as they are served.
pub const DEFINED: &[Kind] = &[
    OME_SERVICE,
    RUNTIME,
    CLUSTER_RUNTIME,
    MODEL,
    CLUSTER_MODEL,
    CLASS,
    ROLES_SERVICE,
    POOL,
    USE_CASES,
    LEADER_WORKER_SET,
    POD_GROUP,
    SCALED_OBJECT,
    INFERENCE_POOL,
    HTTP_ROUTE,
];

/// Kinds of which only our own objects are watched, from the start.
pub const LABELLED: &[Kind] = &[REVISION, CONFIG_MAP, ACCOUNT, ROLE, ROLE_BINDING];

/// Kinds that only we bring: without them there is nothing to do.
pub const OURS: &[Kind] =
    &[OME_SERVICE, RUNTIME, CLUSTER_RUNTIME, MODEL, CLUSTER_MODEL, CLASS, ROLES_SERVICE, POOL, USE_CASES];

/// Everything that a service may own, in the order of pruning: what routes requests goes before what answers them.
pub const MADE: &[Kind] = &[
    HTTP_ROUTE,
    INFERENCE_POOL,
    USE_CASES,
    POOL,
    SCALED_OBJECT,
    AUTOSCALER,
    DISRUPTION,
    SERVICE,
    DEPLOYMENT,
    CONFIG_MAP,
    ROLE_BINDING,
    ROLE,
    ACCOUNT,
    LEADER_WORKER_SET,
    POD_GROUP,
    REVISION,
];

/// Label on the Pods of each kind of service that names it.
pub(crate) const POD_LABELS: [(&str, Kind); 2] = [(labels::OME_SERVICE, OME_SERVICE), (labels::SERVICE, ROLES_SERVICE)];
/// Names its LeaderWorkerSet on every Pod of one.
pub(crate) const LEADER_WORKER_SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";

/// How objects of `kind` are kept: what services choose from is few and read all together, everything else is many and
/// read one by one.
pub(crate) fn keeping(kind: Kind) -> Keeping {
    match kind {
        POD => Keeping { form: Form::Text, labels: &[labels::OME_SERVICE, labels::SERVICE, LEADER_WORKER_SET_NAME] },
        RUNTIME | CLUSTER_RUNTIME | MODEL | CLUSTER_MODEL | CLASS | BASE_SET => Keeping::default(),
        kind if FLAVORS.contains(&kind) || kind == DEFINITIONS => Keeping::default(),
        _ => Keeping { form: Form::Text, labels: &[] },
    }
}
