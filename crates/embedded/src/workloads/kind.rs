//! The kinds that have a controller here.

use serde_json::Value;

use super::{autoscaler, deployment, disruption, job, leader_worker_set, replica_set, stateful_set, volume_claim};
use crate::object;

/// One object to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    Job,
    LeaderWorkerSet,
    Service,
    DisruptionBudget,
    Autoscaler,
    Claim,
    Volume,
}

pub(super) const KINDS: [Kind; 10] = [
    Kind::Deployment,
    Kind::ReplicaSet,
    Kind::StatefulSet,
    Kind::Job,
    Kind::LeaderWorkerSet,
    Kind::Service,
    Kind::DisruptionBudget,
    Kind::Autoscaler,
    Kind::Claim,
    Kind::Volume,
];

// === impl Key ===

impl Key {
    pub(super) fn of(kind: Kind, object: &Value) -> Self {
        Self { kind, namespace: object::namespace(object).to_owned(), name: object::name(object).to_owned() }
    }
}

// === impl Kind ===

impl Kind {
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Deployment => deployment::RESOURCE,
            Self::ReplicaSet => replica_set::RESOURCE,
            Self::StatefulSet => stateful_set::RESOURCE,
            Self::Job => job::RESOURCE,
            Self::LeaderWorkerSet => leader_worker_set::RESOURCE,
            Self::Service => "services",
            Self::DisruptionBudget => disruption::BUDGETS,
            Self::Autoscaler => autoscaler::RESOURCE,
            Self::Claim => volume_claim::CLAIMS,
            Self::Volume => volume_claim::VOLUMES,
        }
    }

    pub(super) fn component(self) -> &'static str {
        match self {
            Self::Deployment => "deployment-controller",
            Self::ReplicaSet => "replicaset-controller",
            Self::StatefulSet => "statefulset-controller",
            Self::Job => "job-controller",
            Self::LeaderWorkerSet => "leaderworkerset",
            Self::DisruptionBudget => "controllermanager",
            Self::Autoscaler => "horizontal-pod-autoscaler",
            Self::Service => "endpoint-slice-controller",
            Self::Claim | Self::Volume => "persistentvolume-controller",
        }
    }
}
