//! The arithmetic of a rolling update (`pkg/controller/deployment/rolling.go`).

use serde_json::Value;

use super::replica_set;

/// How fast Pods may be replaced; counts of Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strategy {
    pub(crate) desired: i64,
    pub(crate) max_surge: i64,
    pub(crate) max_unavailable: i64,
}

/// What a rollout needs to know of one ReplicaSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// `spec.replicas`.
    pub(crate) replicas: i64,
    /// `status.replicas`.
    pub(crate) current: i64,
    pub(crate) ready: i64,
    pub(crate) available: i64,
}

/// The `spec.replicas` that every ReplicaSet should have next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) new: i64,
    pub(crate) old: Vec<i64>,
}

/// One step of the rollout: the new one grows first; only when it cannot, the old ones shrink.
pub(crate) fn step(strategy: &Strategy, new: &Counts, old: &[Counts]) -> Step {
    let keep: Vec<i64> = old.iter().map(|counts| counts.replicas).collect();
    let grown = grow(strategy, new.replicas, &keep);
    if grown != new.replicas {
        return Step { new: grown, old: keep };
    }
    Step { new: grown, old: shrink(strategy, new, old) }
}

/// How large a ReplicaSet starts that does not exist yet.
pub(crate) fn first(strategy: &Strategy, old: &[Counts]) -> i64 {
    grow(strategy, 0, &old.iter().map(|counts| counts.replicas).collect::<Vec<_>>())
}

fn grow(strategy: &Strategy, new: i64, old: &[i64]) -> i64 {
    if new >= strategy.desired {
        return strategy.desired;
    }
    let total: i64 = new + old.iter().sum::<i64>();
    let room = (strategy.desired + strategy.max_surge - total).max(0);
    new + room.min(strategy.desired - new)
}

fn shrink(strategy: &Strategy, new: &Counts, old: &[Counts]) -> Vec<i64> {
    let mut targets: Vec<i64> = old.iter().map(|counts| counts.replicas).collect();
    let total: i64 = new.replicas + targets.iter().sum::<i64>();
    let minimum = strategy.desired - strategy.max_unavailable;
    let new_unavailable = new.replicas - new.available;
    let mut budget = total - minimum - new_unavailable;
    if budget <= 0 {
        return targets;
    }
    // Pods that are not available cost nothing: they go first, whatever the minimum.
    for (target, counts) in targets.iter_mut().zip(old) {
        let unhealthy = (*target - counts.available).clamp(0, budget);
        *target -= unhealthy;
        budget -= unhealthy;
    }
    let available: i64 = new.available + old.iter().map(|counts| counts.available).sum::<i64>();
    let mut spare = (available - minimum).max(0);
    for target in &mut targets {
        let cut = (*target).min(spare);
        *target -= cut;
        spare -= cut;
    }
    targets
}

// === impl Strategy ===

impl Strategy {
    /// Percentages are of `spec.replicas`: surge rounds up, unavailable rounds down, and both zero means one unavailable
    /// (`ResolveFenceposts`). `Recreate` has neither.
    pub(crate) fn of(deployment: &Value) -> Self {
        let desired = replica_set::replicas(deployment);
        if deployment.pointer("/spec/strategy/type").and_then(Value::as_str) == Some("Recreate") {
            return Self { desired, max_surge: 0, max_unavailable: 0 };
        }
        let field = |name: &str| deployment.pointer(&format!("/spec/strategy/rollingUpdate/{name}"));
        let max_surge = amount(field("maxSurge"), desired, true);
        let max_unavailable = amount(field("maxUnavailable"), desired, false);
        let max_unavailable = if max_surge == 0 && max_unavailable == 0 { 1 } else { max_unavailable };
        Self { desired, max_surge, max_unavailable: max_unavailable.min(desired) }
    }
}

/// A number or a percentage of `of`, 25 % when absent.
pub(crate) fn amount(value: Option<&Value>, of: i64, round_up: bool) -> i64 {
    if let Some(count) = value.and_then(Value::as_i64) {
        return count;
    }
    let percent = value.and_then(Value::as_str).unwrap_or("25%");
    let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or(25);
    let hundredths = percent * of;
    if round_up { (hundredths + 99) / 100 } else { hundredths / 100 }
}

// === impl Counts ===

impl Counts {
    pub(crate) fn of(set: &Value) -> Self {
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

    fn counts(replicas: i64, available: i64) -> Counts {
        Counts { replicas, current: replicas, ready: available, available }
    }

    #[rstest]
    #[case::grows_into_the_surge((4, 1, 1), (0, 0), (4, 4), (1, 4))]
    #[case::waits_for_the_new_ones((4, 1, 0), (1, 0), (4, 4), (1, 4))]
    #[case::may_be_one_short((4, 1, 1), (1, 0), (4, 4), (1, 3))]
    #[case::goes_on((4, 1, 1), (1, 1), (4, 4), (1, 2))]
    #[case::the_last_old_one((4, 1, 1), (4, 4), (1, 1), (4, 0))]
    #[case::broken_old_ones_go_first((2, 1, 0), (1, 1), (2, 0), (1, 1))]
    #[case::broken_new_ones_stop_it((2, 1, 0), (1, 0), (2, 2), (1, 2))]
    #[case::scaled_down((1, 1, 0), (3, 3), (0, 0), (1, 0))]
    fn steps(
        #[case] (desired, max_surge, max_unavailable): (i64, i64, i64),
        #[case] new: (i64, i64),
        #[case] old: (i64, i64),
        #[case] expect: (i64, i64),
    ) {
        let strategy = Strategy { desired, max_surge, max_unavailable };
        let step = step(&strategy, &counts(new.0, new.1), &[counts(old.0, old.1)]);
        assert_eq!(step, Step { new: expect.0, old: vec![expect.1] });
    }
}
