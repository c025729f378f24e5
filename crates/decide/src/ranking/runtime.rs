//! Compatible runtimes, best first.

use std::cmp::{Ordering, Reverse};

use super::{Key, compare, step};
use crate::demand::{Demand, Model};
use crate::outranked::{RuntimeStep, SizeFit};
use crate::size::SizeRange;
use crate::supply::{Format, Runtime, Scope};

/// All that a compatible runtime is ranked by.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeOrder<'a> {
    scope: Scope,
    architecture_unstated: bool,
    size: SizeFit,
    pub(crate) priority: Option<i32>,
    no_capacity: bool,
    created: Option<&'a str>,
    /// The runtime does not carry the model's name.
    stranger: bool,
    name: &'a str,
}

/// `namesake`: it carries the model's name. `no_capacity`: the best class of some component has too few free accelerators.
#[must_use]
pub(crate) fn runtime<'a>(
    runtime: &'a Runtime,
    entry: Option<&Format>,
    demand: &Demand,
    namesake: bool,
    no_capacity: bool,
) -> RuntimeOrder<'a> {
    RuntimeOrder {
        scope: runtime.scope,
        architecture_unstated: entry.is_none_or(|entry| entry.architecture.is_none()),
        size: size_fit(runtime.size, demand.model.known()),
        priority: entry.filter(|entry| entry.auto_select).and_then(|entry| entry.priority),
        no_capacity,
        created: runtime.created.as_deref(),
        stranger: !namesake,
        name: &runtime.name,
    }
}

impl RuntimeOrder<'_> {
    /// Neither suits the model better than the other: a choice among them is nobody's.
    #[must_use]
    pub fn suits_equally(&self, other: &Self) -> bool {
        compare(&suitability(), self, other).is_eq()
    }

    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        compare(&suitability(), self, other).then_with(|| compare(&tie_breaks(), self, other))
    }
}

/// What runtime and model say of each other. Stated priorities come before unstated ones, higher first.
fn suitability<'a>() -> [Key<RuntimeOrder<'a>, RuntimeStep>; 4] {
    [
        Key { order: |a, b| a.scope.cmp(&b.scope), told: |_, _| RuntimeStep::Scope },
        Key {
            order: |a, b| a.architecture_unstated.cmp(&b.architecture_unstated),
            told: |_, _| RuntimeStep::ArchitectureUnstated,
        },
        Key {
            order: |a, b| a.size.cmp(&b.size),
            told: |own, best| RuntimeStep::Size { own: own.size, winner: best.size },
        },
        Key {
            order: |a, b| b.priority.cmp(&a.priority),
            told: |own, best| RuntimeStep::Priority { own: own.priority, winner: best.priority },
        },
    ]
}

/// Among those that suit equally; the name makes the order total.
fn tie_breaks<'a>() -> [Key<RuntimeOrder<'a>, RuntimeStep>; 4] {
    [
        Key { order: |a, b| a.no_capacity.cmp(&b.no_capacity), told: |_, _| RuntimeStep::NoFreeCapacity },
        Key {
            order: |a, b| Reverse(a.created).cmp(&Reverse(b.created)),
            told: |own, best| RuntimeStep::Older {
                own: own.created.map(str::to_owned),
                winner: best.created.map(str::to_owned),
            },
        },
        Key { order: |a, b| a.stranger.cmp(&b.stranger), told: |_, _| RuntimeStep::Stranger },
        Key { order: |a, b| a.name.cmp(b.name), told: |_, _| RuntimeStep::Name },
    ]
}

/// The first key by which `loser` comes after `winner`; one that comes before only lost because another is kept.
#[must_use]
pub fn runtime_step<'a>(loser: &RuntimeOrder<'a>, winner: &RuntimeOrder<'a>) -> RuntimeStep {
    let by = |keys: &[Key<RuntimeOrder<'a>, RuntimeStep>]| step(keys, loser, winner);
    if loser.suits_equally(winner) { by(&tie_breaks()) } else { by(&suitability()) }.unwrap_or(RuntimeStep::Kept)
}

fn size_fit(range: SizeRange, model: Option<&Model>) -> SizeFit {
    let Some(size) = model.and_then(|model| model.parameters) else { return SizeFit::Unknown };
    match (range.min, range.max) {
        (Some(min), Some(max)) => SizeFit::TwoSided(size.abs_diff(min).saturating_add(size.abs_diff(max))),
        (Some(bound), None) | (None, Some(bound)) => SizeFit::OneSided(size.abs_diff(bound)),
        (None, None) => SizeFit::Unbounded,
    }
}
