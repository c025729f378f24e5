//! The calculations of a rolling update (`pkg/controller/deployment/rolling.go`).

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, reason = "numbers of users enter every computation"))]

use apimachinery::scaled_int_or_percent;
use serde_json::Value;

use super::replica_set;

/// The limits of a rolling update, in numbers of Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RollingUpdateStrategy {
    /// `spec.replicas` of the Deployment.
    pub(crate) desired: i64,
    pub(crate) max_surge: i64,
    pub(crate) max_unavailable: i64,
}

/// The replica counts of one ReplicaSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReplicaCounts {
    /// `spec.replicas`.
    pub(crate) replicas: i64,
    /// `status.replicas`.
    pub(crate) current: i64,
    pub(crate) ready: i64,
    pub(crate) available: i64,
}

/// The next `spec.replicas` of every ReplicaSet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RolloutStep {
    pub(crate) new: i64,
    pub(crate) old: Vec<i64>,
}

/// Returns the next step of the rollout: the new ReplicaSet is scaled up first. The old ones are scaled down only if
/// the new one cannot be scaled up.
pub(crate) fn next_step(strategy: &RollingUpdateStrategy, new: &ReplicaCounts, old: &[ReplicaCounts]) -> RolloutStep {
    let current_sizes: Vec<i64> = old.iter().map(|counts| counts.replicas).collect();
    let new_size = scaled_up_size(strategy, new.replicas, &current_sizes);
    if new_size != new.replicas {
        return RolloutStep { new: new_size, old: current_sizes };
    }
    RolloutStep { new: new_size, old: scaled_down_sizes(strategy, new, old) }
}

/// Returns the initial size of a new ReplicaSet.
pub(crate) fn initial_replicas(strategy: &RollingUpdateStrategy, old: &[ReplicaCounts]) -> i64 {
    scaled_up_size(strategy, 0, &old.iter().map(|counts| counts.replicas).collect::<Vec<_>>())
}

/// Returns the size of the new ReplicaSet, limited by `maxSurge` (`NewRSNewReplicas`).
fn scaled_up_size(strategy: &RollingUpdateStrategy, new: i64, old: &[i64]) -> i64 {
    if new >= strategy.desired {
        return strategy.desired;
    }
    let allowed = strategy.max_total().saturating_sub(sum(new, old)).max(0);
    new.saturating_add(allowed.min(strategy.desired.saturating_sub(new)))
}

/// Returns the sizes of the old ReplicaSets, limited by `maxUnavailable` (`reconcileOldReplicaSets`).
fn scaled_down_sizes(strategy: &RollingUpdateStrategy, new: &ReplicaCounts, old: &[ReplicaCounts]) -> Vec<i64> {
    let mut targets: Vec<i64> = old.iter().map(|counts| counts.replicas).collect();
    let min_available = strategy.min_available();
    let new_unavailable = new.replicas.saturating_sub(new.available);
    let mut max_scale_down = sum(new.replicas, &targets).saturating_sub(min_available).saturating_sub(new_unavailable);
    if max_scale_down <= 0 {
        return targets;
    }
    // Unavailable Pods are removed first, because this does not reduce availability.
    for (target, counts) in targets.iter_mut().zip(old) {
        let unhealthy = target.saturating_sub(counts.available).clamp(0, max_scale_down);
        *target = target.saturating_sub(unhealthy);
        max_scale_down = max_scale_down.saturating_sub(unhealthy);
    }
    let old_available: Vec<i64> = old.iter().map(|counts| counts.available).collect();
    let mut excess = sum(new.available, &old_available).saturating_sub(min_available).max(0);
    for target in &mut targets {
        let removed = (*target).min(excess);
        *target = target.saturating_sub(removed);
        excess = excess.saturating_sub(removed);
    }
    targets
}

/// Returns the total size of the new and the old ReplicaSets.
fn sum(new: i64, old: &[i64]) -> i64 {
    old.iter().copied().fold(new, i64::saturating_add)
}

// === impl RollingUpdateStrategy ===

impl RollingUpdateStrategy {
    /// Reads the strategy of a Deployment. Percentages are relative to `spec.replicas`: `maxSurge` is rounded up and
    /// `maxUnavailable` is rounded down. If both are zero, one Pod may be unavailable (`ResolveFenceposts`). `Recreate`
    /// has neither.
    pub(crate) fn new(deployment: &Value) -> Self {
        let desired = replica_set::replicas(deployment);
        if deployment.pointer("/spec/strategy/type").and_then(Value::as_str) == Some("Recreate") {
            return Self { desired, max_surge: 0, max_unavailable: 0 };
        }
        let field = |name: &str| deployment.pointer(&format!("/spec/strategy/rollingUpdate/{name}"));
        let max_surge = scaled_int_or_percent(field("maxSurge"), desired, true);
        let max_unavailable = scaled_int_or_percent(field("maxUnavailable"), desired, false);
        let max_unavailable = if max_surge == 0 && max_unavailable == 0 { 1 } else { max_unavailable };
        Self { desired, max_surge, max_unavailable: max_unavailable.min(desired) }
    }

    /// Returns the largest number of Pods during the update.
    pub(crate) fn max_total(&self) -> i64 {
        self.desired.saturating_add(self.max_surge)
    }

    /// Returns the smallest number of available Pods during the update.
    pub(crate) fn min_available(&self) -> i64 {
        self.desired.saturating_sub(self.max_unavailable)
    }
}

// === impl ReplicaCounts ===

impl ReplicaCounts {
    pub(crate) fn new(set: &Value) -> Self {
        let status = |field: &str| set.pointer(&format!("/status/{field}")).and_then(Value::as_i64).unwrap_or(0);
        Self {
            replicas: replica_set::replicas(set),
            current: status("replicas"),
            ready: status("readyReplicas"),
            available: status("availableReplicas"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn counts(replicas: i64, available: i64) -> ReplicaCounts {
        ReplicaCounts { replicas, current: replicas, ready: available, available }
    }

    #[rstest]
    #[case::scales_up_within_surge((4, 1, 1), (0, 0), (4, 4), (1, 4))]
    #[case::waits_for_new_pods((4, 1, 0), (1, 0), (4, 4), (1, 4))]
    #[case::uses_max_unavailable((4, 1, 1), (1, 0), (4, 4), (1, 3))]
    #[case::continues((4, 1, 1), (1, 1), (4, 4), (1, 2))]
    #[case::scales_down_last_old_pod((4, 1, 1), (4, 4), (1, 1), (4, 0))]
    #[case::unhealthy_old_pods_first((2, 1, 0), (1, 1), (2, 0), (1, 1))]
    #[case::unhealthy_new_pods_block((2, 1, 0), (1, 0), (2, 2), (1, 2))]
    #[case::scaled_down((1, 1, 0), (3, 3), (0, 0), (1, 0))]
    fn computes_next_step(
        #[case] (desired, max_surge, max_unavailable): (i64, i64, i64),
        #[case] new: (i64, i64),
        #[case] old: (i64, i64),
        #[case] expect: (i64, i64),
    ) {
        let strategy = RollingUpdateStrategy { desired, max_surge, max_unavailable };
        let step = next_step(&strategy, &counts(new.0, new.1), &[counts(old.0, old.1)]);
        assert_eq!(step, RolloutStep { new: expect.0, old: vec![expect.1] });
    }
}
