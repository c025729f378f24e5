//! The kinds that have a controller.

use apimachinery::{disruption_budget, object, persistent_volume};
use serde_json::Value;

use super::{deployment, horizontal_pod_autoscaler, job, leader_worker_set, replica_set, stateful_set};

/// The key of an object in the work queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WorkloadKey {
    pub(super) kind: WorkloadKind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// A kind that has a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkloadKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    Job,
    LeaderWorkerSet,
    Service,
    PodDisruptionBudget,
    HorizontalPodAutoscaler,
    PersistentVolumeClaim,
    PersistentVolume,
}

/// All kinds that have a controller.
pub(super) const WORKLOAD_KINDS: [WorkloadKind; 10] = [
    WorkloadKind::Deployment,
    WorkloadKind::ReplicaSet,
    WorkloadKind::StatefulSet,
    WorkloadKind::Job,
    WorkloadKind::LeaderWorkerSet,
    WorkloadKind::Service,
    WorkloadKind::PodDisruptionBudget,
    WorkloadKind::HorizontalPodAutoscaler,
    WorkloadKind::PersistentVolumeClaim,
    WorkloadKind::PersistentVolume,
];

// === impl WorkloadKey ===

impl WorkloadKey {
    /// Returns the key of an object.
    pub(super) fn new(kind: WorkloadKind, object: &Value) -> Self {
        Self { kind, namespace: object::namespace(object).to_owned(), name: object::name(object).to_owned() }
    }
}

// === impl WorkloadKind ===

impl WorkloadKind {
    /// Returns the storage name of the resource.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Deployment => deployment::RESOURCE,
            Self::ReplicaSet => replica_set::RESOURCE,
            Self::StatefulSet => stateful_set::RESOURCE,
            Self::Job => job::RESOURCE,
            Self::LeaderWorkerSet => leader_worker_set::RESOURCE,
            Self::Service => "services",
            Self::PodDisruptionBudget => disruption_budget::RESOURCE,
            Self::HorizontalPodAutoscaler => horizontal_pod_autoscaler::RESOURCE,
            Self::PersistentVolumeClaim => persistent_volume::CLAIMS,
            Self::PersistentVolume => persistent_volume::VOLUMES,
        }
    }

    /// Returns the reporting component of events, as kube-controller-manager names it.
    pub(super) fn component(self) -> &'static str {
        match self {
            Self::Deployment => "deployment-controller",
            Self::ReplicaSet => "replicaset-controller",
            Self::StatefulSet => "statefulset-controller",
            Self::Job => "job-controller",
            Self::LeaderWorkerSet => "leaderworkerset",
            Self::PodDisruptionBudget => "controllermanager",
            Self::HorizontalPodAutoscaler => "horizontal-pod-autoscaler",
            Self::Service => "endpoint-slice-controller",
            Self::PersistentVolumeClaim | Self::PersistentVolume => "persistentvolume-controller",
        }
    }
}
