//! The strategy of a rollout, and the fields of Deployments and LeaderWorkerSets that contain it.

use serde_json::{Value, json};

use crate::kinds::LEADER_WORKER_SET;

/// How a rollout replaces the replicas of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RolloutStrategy {
    /// An additional new replica is ready before an old one stops. This number of replicas may be unavailable, because they are
    /// not ready already.
    Surge(u32),
    /// At most this number of replicas is unavailable: old replicas stop before new ones start.
    InPlace(u32),
    /// All old Pods of a Deployment stop before new ones start.
    Recreate,
}

/// Returns the field in the `spec` of a workload with its strategy.
pub(super) fn strategy_field(workload: &Value) -> &'static str {
    if workload["kind"] == LEADER_WORKER_SET.kind { "rolloutStrategy" } else { "strategy" }
}

// === impl RolloutStrategy ===

impl RolloutStrategy {
    /// Reads the strategy of a live workload.
    pub(super) fn from_workload(workload: &Value) -> RolloutStrategy {
        let strategy = &workload["spec"][strategy_field(workload)];
        let limits = match workload["kind"] == LEADER_WORKER_SET.kind {
            true => &strategy["rollingUpdateConfiguration"],
            false => &strategy["rollingUpdate"],
        };
        let max_unavailable = limits["maxUnavailable"].as_u64().and_then(|count| u32::try_from(count).ok());
        match () {
            () if strategy["type"] == "Recreate" => RolloutStrategy::Recreate,
            () if limits["maxSurge"] == 0 => RolloutStrategy::InPlace(max_unavailable.unwrap_or(1).max(1)),
            () => RolloutStrategy::Surge(max_unavailable.unwrap_or(0)),
        }
    }

    /// Renders the strategy of a workload of this kind with `desired` replicas. The groups of a LeaderWorkerSet before `partition`
    /// are not updated.
    pub(super) fn to_json(self, kind: &Value, desired: u32, partition: u32) -> Value {
        let (max_surge, max_unavailable) = match self {
            RolloutStrategy::Surge(unavailable) => (1, unavailable),
            RolloutStrategy::InPlace(unavailable) => (0, unavailable),
            RolloutStrategy::Recreate => (0, desired.max(1)),
        };
        match self {
            _ if *kind == LEADER_WORKER_SET.kind => {
                let limits = json!({"partition": partition, "maxSurge": max_surge, "maxUnavailable": max_unavailable});
                json!({"type": "RollingUpdate", "rollingUpdateConfiguration": limits})
            }
            RolloutStrategy::Recreate => json!({"type": "Recreate"}),
            RolloutStrategy::Surge(_) | RolloutStrategy::InPlace(_) => {
                let limits = json!({"maxSurge": max_surge, "maxUnavailable": max_unavailable});
                json!({"type": "RollingUpdate", "rollingUpdate": limits})
            }
        }
    }
}
