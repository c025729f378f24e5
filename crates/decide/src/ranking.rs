//! Total orders over what may serve. Each order is one list of keys: the first key by which two differ decides which comes
//! first, and tells why the other one lost.

mod class;
mod runtime;

use std::cmp::Ordering;

pub use class::{EarlyKeys, RankedClass, class_step, classes, early_keys, has_capacity};
pub(crate) use runtime::runtime;
pub use runtime::{RuntimeOrder, runtime_step};

pub use crate::strategy::Notes;

/// One key of an order over `T`.
struct Key<T, S> {
    order: fn(&T, &T) -> Ordering,
    /// Why the first of the two comes after the second by this key.
    told: fn(&T, &T) -> S,
}

/// `a` against `b`, by the first key that tells them apart.
fn compare<T, S>(keys: &[Key<T, S>], a: &T, b: &T) -> Ordering {
    keys.iter().map(|key| (key.order)(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Why `loser` comes after `winner`; `None` if it does not.
fn step<T, S>(keys: &[Key<T, S>], loser: &T, winner: &T) -> Option<S> {
    let key = keys.iter().find(|key| (key.order)(loser, winner).is_ne())?;
    (key.order)(loser, winner).is_gt().then(|| (key.told)(loser, winner))
}

/// Four decimals: scores are shown, compared in tests, and equal on every machine.
fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
