//! Scaling a Deployment whose Pods are of several generations, because it is paused or its rollout is under way: each
//! generation grows or shrinks by its part (`pkg/controller/deployment/sync.go`, `util/deployment_util.go`).

use super::super::rolling::Strategy;

/// One ReplicaSet that has Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// `spec.replicas`.
    pub(super) replicas: i64,
    /// What all generations together could have had at the last scaling; `status.replicas` of the Deployment where
    /// nothing tells.
    pub(super) most_before: i64,
}

/// The new `spec.replicas` of each part. `parts` are in the order of their age, oldest first; of equal size the newer
/// grows first and the older shrinks first, and the first takes what is left by rounding.
pub(super) fn scaled(strategy: &Strategy, parts: &[Part]) -> Vec<i64> {
    let allowed = if strategy.desired > 0 { strategy.desired + strategy.max_surge } else { 0 };
    let change = allowed - parts.iter().map(|part| part.replicas).sum::<i64>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    let size = |at: &usize| parts.get(*at).map_or(0, |part| part.replicas);
    match change > 0 {
        true => order.sort_by_key(|at| (-size(at), usize::MAX - at)),
        false => order.sort_by_key(|at| (-size(at), *at)),
    }
    let mut sizes: Vec<i64> = parts.iter().map(|part| part.replicas).collect();
    let mut left = change;
    for at in &order {
        let share = parts.get(*at).map_or(0, |part| part.share(strategy));
        let share = if change > 0 { share.min(left) } else { share.max(left) };
        if let Some(size) = sizes.get_mut(*at).filter(|_| left != 0) {
            *size += share;
            left -= share;
        }
    }
    if let Some(size) = order.first().and_then(|first| sizes.get_mut(*first)) {
        *size = (*size + left).max(0);
    }
    sizes
}

impl Part {
    /// By how much it should change to keep its part of the whole.
    fn share(self, strategy: &Strategy) -> i64 {
        match (strategy.desired, self.most_before) {
            (0, _) => -self.replicas,
            (_, 0) => 0,
            (desired, before) => {
                let whole = self.replicas * (desired + strategy.max_surge);
                (whole as f64 / before as f64).round() as i64 - self.replicas
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The example of the Deployment documentation: ten replicas with a surge of three, 8 old and 5 new, become fifteen.
    #[rstest]
    #[case::up((15, 3), 13, &[8, 5], &[11, 7])]
    #[case::down((5, 3), 13, &[8, 5], &[5, 3])]
    #[case::to_nothing((0, 0), 13, &[8, 5], &[0, 0])]
    #[case::of_equal_size_the_newer_grows((5, 0), 4, &[2, 2], &[2, 3])]
    #[case::of_equal_size_the_older_shrinks((3, 0), 4, &[2, 2], &[1, 2])]
    #[case::three((20, 0), 10, &[5, 3, 2], &[10, 6, 4])]
    #[case::as_before((10, 3), 13, &[8, 5], &[8, 5])]
    fn parts(
        #[case] (desired, max_surge): (i64, i64),
        #[case] most_before: i64,
        #[case] sizes: &[i64],
        #[case] expect: &[i64],
    ) {
        let strategy = Strategy { desired, max_surge, max_unavailable: 0 };
        let parts: Vec<Part> = sizes.iter().map(|replicas| Part { replicas: *replicas, most_before }).collect();
        assert_eq!(scaled(&strategy, &parts), expect);
    }
}
