//! Proportional scaling of a Deployment with several active ReplicaSets, because it is paused or a rollout is in
//! progress: each ReplicaSet grows or shrinks in proportion to its size (`pkg/controller/deployment/sync.go`,
//! `util/deployment_util.go`).

use std::cmp::Reverse;

use crate::workloads::rolling_update::RollingUpdateStrategy;

/// The size of one active ReplicaSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplicaSetSize {
    /// `spec.replicas`.
    pub(super) replicas: i64,
    /// `max-replicas` annotation: the size limit of all ReplicaSets at the last scaling; `status.replicas` of the
    /// Deployment when the annotation is missing.
    pub(super) previous_max_replicas: i64,
}

/// Returns the new `spec.replicas` of each ReplicaSet. `replica_sets` is sorted by age, oldest first; among ReplicaSets
/// of equal size, the newest is scaled up first and the oldest is scaled down first. The first ReplicaSet to be scaled
/// also receives the rounding remainder.
pub(super) fn scaled_sizes(strategy: &RollingUpdateStrategy, replica_sets: &[ReplicaSetSize]) -> Vec<i64> {
    let allowed = if strategy.desired > 0 { strategy.max_total() } else { 0 };
    let total = replica_sets.iter().map(|replica_set| replica_set.replicas).fold(0, i64::saturating_add);
    let delta = allowed.saturating_sub(total);
    let mut order: Vec<usize> = (0..replica_sets.len()).collect();
    let size = |index: &usize| replica_sets.get(*index).map_or(0, |replica_set| replica_set.replicas);
    match delta > 0 {
        true => order.sort_by_key(|index| (Reverse(size(index)), Reverse(*index))),
        false => order.sort_by_key(|index| (Reverse(size(index)), *index)),
    }
    let mut sizes: Vec<i64> = replica_sets.iter().map(|replica_set| replica_set.replicas).collect();
    let mut remaining = delta;
    for index in &order {
        let fraction = replica_sets.get(*index).map_or(0, |replica_set| replica_set.fraction(strategy));
        let fraction = if delta > 0 { fraction.min(remaining) } else { fraction.max(remaining) };
        if let Some(size) = sizes.get_mut(*index).filter(|_| remaining != 0) {
            *size = size.saturating_add(fraction);
            remaining = remaining.saturating_sub(fraction);
        }
    }
    if let Some(size) = order.first().and_then(|first| sizes.get_mut(*first)) {
        *size = size.saturating_add(remaining).max(0);
    }
    sizes
}

impl ReplicaSetSize {
    /// Returns the change that keeps the proportion of this ReplicaSet (`getReplicaSetFraction`).
    fn fraction(self, strategy: &RollingUpdateStrategy) -> i64 {
        match (strategy.desired, self.previous_max_replicas) {
            (0, _) => self.replicas.saturating_neg(),
            (_, 0) => 0,
            (_, before) => {
                let scaled = self.replicas.saturating_mul(strategy.max_total());
                ((scaled as f64 / before as f64).round() as i64).saturating_sub(self.replicas)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The example of the Deployment documentation: a Deployment with ten replicas, a surge of three, 8 old and 5 new
    /// Pods is scaled to fifteen replicas.
    #[rstest]
    #[case::scale_up((15, 3), 13, &[8, 5], &[11, 7])]
    #[case::scale_down((5, 3), 13, &[8, 5], &[5, 3])]
    #[case::to_zero((0, 0), 13, &[8, 5], &[0, 0])]
    #[case::newer_of_equal_size_grows((5, 0), 4, &[2, 2], &[2, 3])]
    #[case::older_of_equal_size_shrinks((3, 0), 4, &[2, 2], &[1, 2])]
    #[case::three_replica_sets((20, 0), 10, &[5, 3, 2], &[10, 6, 4])]
    #[case::unchanged((10, 3), 13, &[8, 5], &[8, 5])]
    fn scales_proportionally(
        #[case] (desired, max_surge): (i64, i64),
        #[case] previous_max_replicas: i64,
        #[case] sizes: &[i64],
        #[case] expect: &[i64],
    ) {
        let strategy = RollingUpdateStrategy { desired, max_surge, max_unavailable: 0 };
        let replica_sets: Vec<ReplicaSetSize> =
            sizes.iter().map(|replicas| ReplicaSetSize { replicas: *replicas, previous_max_replicas }).collect();
        assert_eq!(scaled_sizes(&strategy, &replica_sets), expect);
    }
}
