//! Total orders of eligible classes and compatible runtimes. An order is a list of keys. The first key that differs
//! determines the order, and the reason why the other candidate ranks lower.

mod class;
mod runtime;

use std::cmp::Ordering;

pub(crate) use class::{
    PreCapacityKeys, RankedClass, class_rank_reason, has_capacity, pre_capacity_keys, rank_classes,
};
pub(crate) use runtime::{RuntimeOrder, runtime_order, runtime_rank_reason};

/// One key of an order over `T`.
struct RankingKey<T, R> {
    order: fn(&T, &T) -> Ordering,
    /// Reason why the first candidate ranks below the second on this key.
    reason: fn(&T, &T) -> R,
}

/// Compares two candidates by the first key that differs.
fn compare<T, R>(keys: &[RankingKey<T, R>], a: &T, b: &T) -> Ordering {
    keys.iter().map(|key| (key.order)(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Returns why `candidate` ranks below `selected`; `None` if it does not.
fn rank_reason<T, R>(keys: &[RankingKey<T, R>], candidate: &T, selected: &T) -> Option<R> {
    let key = keys.iter().find(|key| (key.order)(candidate, selected).is_ne())?;
    (key.order)(candidate, selected).is_gt().then(|| (key.reason)(candidate, selected))
}

/// Rounds to four decimals, so that scores are equal on every platform.
fn round_score(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
