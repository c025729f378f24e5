//! Ranking of the compatible runtimes.

use std::cmp::{Ordering, Reverse};

use super::{RankingKey, compare, rank_reason};
use crate::compatibility::engine_settings;
use crate::component::Component;
use crate::demand::{Demand, Model};
use crate::naming::{self, NamedSize};
use crate::rank_reason::{RuntimeRankReason, SizeFit};
use crate::supply::{Runtime, Scope, SupportedFormat};

/// The rank keys of a compatible runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuntimeOrder<'a> {
    scope: Scope,
    architecture_unset: bool,
    lacks_router: bool,
    task_distance: u8,
    size: SizeFit,
    pub(crate) priority: Option<i32>,
    lacks_capacity: bool,
    created: Option<&'a str>,
    is_not_namesake: bool,
    name: &'a str,
}

/// Returns the rank keys of `runtime`, with sufficient capacity. `is_namesake`: its name contains the model's name.
pub(crate) fn runtime_order<'a>(
    runtime: &'a Runtime,
    format: Option<&SupportedFormat>,
    demand: &Demand,
    is_namesake: bool,
) -> RuntimeOrder<'a> {
    RuntimeOrder {
        scope: runtime.scope,
        architecture_unset: format.is_none_or(|format| format.architecture.is_none()),
        lacks_router: demand.wants_router && !runtime.has_router,
        task_distance: task_distance(runtime, demand),
        size: size_fit(runtime, demand.model.resolved()),
        priority: format.filter(|format| format.auto_select).and_then(|format| format.priority),
        lacks_capacity: false,
        created: runtime.created.as_deref(),
        is_not_namesake: !is_namesake,
        name: &runtime.name,
    }
}

impl RuntimeOrder<'_> {
    /// Whether both runtimes suit the model equally well, so that only tie-breaks order them.
    pub(crate) fn suits_equally(&self, other: &Self) -> bool {
        self.compare_suitability(other).is_eq()
    }

    /// Compares how well two runtimes suit the model; the lesser one ranks first.
    pub(crate) fn compare_suitability(&self, other: &Self) -> Ordering {
        compare(&suitability_keys(), self, other)
    }

    /// Returns the keys of the runtime if the best class of each component has enough free accelerators, or not.
    pub(crate) fn with_capacity(self, has_capacity: bool) -> Self {
        Self { lacks_capacity: !has_capacity, ..self }
    }

    /// Compares two runtimes by their rank keys; the lesser one ranks first.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.compare_suitability(other).then_with(|| compare(&tie_break_keys(), self, other))
    }
}

/// Keys that compare how well runtimes suit the model. Set priorities rank before unset ones, higher ones first.
fn suitability_keys<'a>() -> [RankingKey<RuntimeOrder<'a>, RuntimeRankReason>; 6] {
    [
        RankingKey { order: |a, b| a.scope.cmp(&b.scope), reason: |_, _| RuntimeRankReason::Scope },
        RankingKey {
            order: |a, b| a.architecture_unset.cmp(&b.architecture_unset),
            reason: |_, _| RuntimeRankReason::ArchitectureUnset,
        },
        RankingKey {
            order: |a, b| a.lacks_router.cmp(&b.lacks_router),
            reason: |_, _| RuntimeRankReason::RouterConfigMissing,
        },
        RankingKey { order: |a, b| a.task_distance.cmp(&b.task_distance), reason: |_, _| RuntimeRankReason::OtherTask },
        RankingKey {
            order: |a, b| a.size.cmp(&b.size),
            reason: |candidate, selected| RuntimeRankReason::Size {
                candidate: candidate.size,
                selected: selected.size,
            },
        },
        RankingKey {
            order: |a, b| b.priority.cmp(&a.priority),
            reason: |candidate, selected| RuntimeRankReason::Priority {
                candidate: candidate.priority,
                selected: selected.priority,
            },
        },
    ]
}

/// Keys among runtimes that suit the model equally; the name makes the order total.
fn tie_break_keys<'a>() -> [RankingKey<RuntimeOrder<'a>, RuntimeRankReason>; 4] {
    [
        RankingKey {
            order: |a, b| a.lacks_capacity.cmp(&b.lacks_capacity),
            reason: |_, _| RuntimeRankReason::NoFreeCapacity,
        },
        RankingKey {
            order: |a, b| Reverse(a.created).cmp(&Reverse(b.created)),
            reason: |candidate, selected| RuntimeRankReason::CreationTime {
                candidate: candidate.created.map(str::to_owned),
                selected: selected.created.map(str::to_owned),
            },
        },
        RankingKey {
            order: |a, b| a.is_not_namesake.cmp(&b.is_not_namesake),
            reason: |_, _| RuntimeRankReason::NotNamesake,
        },
        RankingKey { order: |a, b| a.name.cmp(b.name), reason: |_, _| RuntimeRankReason::Name },
    ]
}

/// Returns why `candidate` ranks below the selected runtime. A runtime that ranks above it is not used because the current
/// selection is retained.
pub(crate) fn runtime_rank_reason<'a>(candidate: &RuntimeOrder<'a>, selected: &RuntimeOrder<'a>) -> RuntimeRankReason {
    let reason_by = |keys: &[RankingKey<RuntimeOrder<'a>, RuntimeRankReason>]| rank_reason(keys, candidate, selected);
    let reason =
        if candidate.suits_equally(selected) { reason_by(&tie_break_keys()) } else { reason_by(&suitability_keys()) };
    reason.unwrap_or(RuntimeRankReason::CurrentRetained)
}

/// Returns how far the task of the runtime's engine is from that of the model; 0 if the model states none.
fn task_distance(runtime: &Runtime, demand: &Demand) -> u8 {
    let task = demand.model.resolved().and_then(|model| model.task);
    let has_engine = runtime.components.contains_key(&Component::Engine);
    task.filter(|_| has_engine).map_or(0, |task| task.distance(engine_settings(demand, runtime).task()))
}

fn size_fit(runtime: &Runtime, model: Option<&Model>) -> SizeFit {
    let size = model.and_then(|model| model.parameters);
    match (runtime.size.min, runtime.size.max, size) {
        // The size in the name of the model is outside of the range: otherwise the runtime would be rejected.
        (_, _, Some(size)) if !runtime.size.contains(size) => SizeFit::Outside(runtime.size.distance(size)),
        (Some(min), Some(max), Some(size)) => SizeFit::TwoSided(size.abs_diff(min).saturating_add(size.abs_diff(max))),
        (Some(bound), None, Some(size)) | (None, Some(bound), Some(size)) => SizeFit::OneSided(size.abs_diff(bound)),
        (None, None, Some(size)) => SizeFit::Unbounded(naming::named_size(&runtime.name, size)),
        (None, None, None) => SizeFit::Unbounded(NamedSize::Unstated),
        (_, _, None) => SizeFit::Unknown,
    }
}
