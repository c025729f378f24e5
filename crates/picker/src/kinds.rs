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
