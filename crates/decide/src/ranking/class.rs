//! Ranking of the eligible classes of one component.

use std::cmp::Reverse;

use super::{RankingKey, compare, rank_reason, round_score};
use crate::accelerator_request::{AcceleratorRequest, RequestStrength};
use crate::capacity::{EligibleNodes, PodShape};
use crate::decision::Eligibility;
use crate::demand::{ClassSelector, Model, RankingPolicy};
use crate::engine::RejectedContext;
use crate::engine_memory::ModelMemory;
use crate::fit::{self, AcceleratorFit};
use crate::match_context::MatchContext;
use crate::nodes::UnschedulableNodes;
use crate::number_format::FormatSupport;
use crate::preference::{ClassPreference, preference_score};
use crate::quantization::NumberFormat;
use crate::rank_reason::ClassRankReason;
use crate::scoring::{self, Score, ScoringCandidate, ScoringNotes};
use crate::supply::Class;
use crate::variants::{self, TokenRange};

/// An eligible class of one component, with its rank keys.
#[derive(Clone)]
pub(crate) struct RankedClass<'a> {
    pub(crate) class: &'a Class,
    pub(crate) eligibility: Eligibility,
    pub(crate) request: AcceleratorRequest,
    /// US dollars per replica and hour; set if the service sets a cost threshold.
    cost_threshold: Option<f64>,
    /// Request sizes for which the runtime prefers the class.
    pub(crate) request_tokens: Option<TokenRange>,
    /// True if other classes are variants and this one is not.
    is_not_variant: bool,
    /// Whether the free accelerators do not suffice, and the service prefers to use another class of its list now.
    is_full: bool,
    /// Position in `preferredClasses` of the service.
    preferred_position: usize,
    /// Score in `preferenceOrder` of the runtime.
    preference_score: i32,
    capacity: Capacity,
    /// Position in the runtime's list of classes; 0 for policies that ignore the list.
    listed_position: usize,
    /// The number format that the engine converts, because the class has no units for it.
    pub(crate) emulated_format: Option<NumberFormat>,
    /// A stated context length with which the engine does not start.
    pub(crate) rejected_context: Option<RejectedContext>,
    /// Position of the first precision in `preferredPrecisions` that the class computes.
    precision_position: usize,
    score: Score,
}

/// Whether the free accelerators suffice for all replicas, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Capacity {
    Sufficient,
    /// No nodes of the class are known.
    Unknown,
    Insufficient,
}

/// Rank keys that are known before a class is evaluated, see [`pre_capacity_keys`].
pub(crate) struct PreCapacityKeys<'a> {
    preferred: &'a [String],
    /// Whether capacity ranks before the position in the list and the preferences.
    is_capacity_first: bool,
    preferences: &'a [ClassPreference],
    model: Option<&'a Model>,
}

/// Ranks eligible classes, best first, and returns notes about the scores.
pub(crate) fn rank_classes<'a>(
    context: &MatchContext<'_>,
    replicas: u32,
    eligible: Vec<(&'a Class, AcceleratorFit, EligibleNodes)>,
) -> (Vec<RankedClass<'a>>, ScoringNotes) {
    let candidate = |(class, fit, _): &(&'a Class, AcceleratorFit, EligibleNodes)| ScoringCandidate {
        class,
        shape: fit.shape,
        emulated_format: emulated_format(context, class),
    };
    let candidates: Vec<ScoringCandidate<'a>> = eligible.iter().map(candidate).collect();
    let scores = scoring::score_classes(context.demand.selector.ranking, context.model, &candidates);
    let scored = eligible.into_iter().zip(scores.scores);
    let mut ranked: Vec<RankedClass<'a>> =
        scored.map(|((class, fit, nodes), score)| ranked_class(context, replicas, class, fit, nodes, score)).collect();
    sort_by_rank(&mut ranked);
    rank_variants_first(&mut ranked);
    (ranked, scores.notes)
}

/// Whether enough accelerators are free for all replicas; true if the nodes are unknown.
pub(crate) fn has_capacity(nodes: &EligibleNodes, fit: &AcceleratorFit, replicas: u32) -> bool {
    capacity(nodes, &fit.pod(), fit.shape.nodes, replicas) != Capacity::Insufficient
}

/// Returns the keys that rank classes before their capacity: the service's list and the runtime's preferences. `None` if a
/// price, a request size or the memory of the class also ranks before capacity.
pub(crate) fn pre_capacity_keys<'a>(context: &'a MatchContext<'_>) -> Option<PreCapacityKeys<'a>> {
    let has_request_size =
        |preference: &ClassPreference| preference.conditions.iter().any(|condition| condition.request_size.is_some());
    let preferences = &context.requirements.preferences;
    let preferred = &context.demand.selector.preferred;
    let ranks_by_price = context.demand.selector.cost_threshold.is_some();
    let ranks_by_fit = fit::requested_accelerators(context, None).strength == RequestStrength::Hint
        || !context.demand.configurations.is_empty();
    let is_known = !ranks_by_price && !ranks_by_fit && !preferences.iter().any(has_request_size);
    let is_capacity_first = yields_to_free_classes(&context.demand.selector);
    is_known.then(|| PreCapacityKeys { preferred, is_capacity_first, preferences, model: context.model })
}

/// Position in the service's list, then score of the runtime's preference; the smallest key ranks first.
type PreCapacityKey = (usize, Reverse<i32>);

/// Key of a class that neither the service nor the runtime names.
const UNNAMED: PreCapacityKey = (usize::MAX, Reverse(0));

// === impl PreCapacityKeys ===

impl PreCapacityKeys<'_> {
    /// Returns the indices of `classes` classes with their keys, in rank order. `index_of` finds a class by name.
    pub(crate) fn in_order(
        &self,
        classes: usize,
        index_of: impl Fn(&str) -> Option<usize>,
    ) -> impl Iterator<Item = (PreCapacityKey, usize)> {
        let names = self.preferred.iter().chain(self.preferences.iter().map(|preference| &preference.class));
        let mut named: Vec<_> = names.filter_map(|name| Some((self.key(name), index_of(name)?))).collect();
        named.sort_unstable();
        named.dedup();
        let indices: Vec<usize> = named.iter().map(|(_, index)| *index).collect();
        let unnamed = (0..classes).filter(move |index| !indices.contains(index)).map(|index| (UNNAMED, index));
        let after_unnamed = named.split_off(named.partition_point(|(key, _)| *key < UNNAMED));
        named.into_iter().chain(unnamed).chain(after_unnamed)
    }

    fn key(&self, class: &str) -> PreCapacityKey {
        if self.is_capacity_first {
            return if self.preferred.iter().any(|name| name == class) { (0, Reverse(0)) } else { UNNAMED };
        }
        (position(self.preferred, class), Reverse(preference_score(self.preferences, class, self.model)))
    }
}

// === impl RankedClass ===

impl RankedClass<'_> {
    /// Whether a replica costs at most the threshold; true without a threshold.
    pub(crate) fn is_within_threshold(&self) -> bool {
        self.cost_threshold
            .is_none_or(|threshold| self.eligibility.price_per_hour.is_some_and(|price| price <= threshold))
    }

    /// Whether the model does not fit; a script of the service then states the number of accelerators.
    fn is_too_small(&self) -> bool {
        self.eligibility.memory.as_ref().is_some_and(|budget| !budget.fits())
    }

    /// Returns the price of a replica if it exceeds the threshold, otherwise 0, so that the cheapest class above the
    /// threshold ranks first.
    fn price_over_threshold(&self) -> f64 {
        if self.is_within_threshold() { 0.0 } else { self.eligibility.price_per_hour.unwrap_or(f64::INFINITY) }
    }

    fn price_reason(&self, selected: &Self) -> ClassRankReason {
        match self.eligibility.price_per_hour.zip(selected.eligibility.price_per_hour) {
            Some((candidate, selected)) => ClassRankReason::Price { candidate, selected },
            None => ClassRankReason::Unpriced,
        }
    }

    fn score_reason(&self, selected: &Self) -> ClassRankReason {
        let (candidate, selected) = (round_score(self.score.total), round_score(selected.score.total));
        ClassRankReason::Score { ranking: self.eligibility.ranking, candidate, selected }
    }
}

fn sort_by_rank(ranked: &mut [RankedClass<'_>]) {
    let keys = keys();
    ranked.sort_by(|a, b| compare(&keys, a, b));
}

/// Ranks classes that become variants for different request sizes before all others, because they are used together,
/// unless the service prefers another class.
fn rank_variants_first(ranked: &mut [RankedClass<'_>]) {
    let variants = variants::differing_ranges(ranked.iter().map(|class| class.request_tokens));
    let best_position = ranked.first().map(|first| first.preferred_position);
    if variants.iter().any(|(index, _)| ranked.get(*index).map(|class| class.preferred_position) == best_position) {
        ranked.iter_mut().for_each(|class| class.is_not_variant = class.request_tokens.is_none());
        sort_by_rank(ranked);
    }
}

fn ranked_class<'a>(
    context: &MatchContext<'_>,
    replicas: u32,
    class: &'a Class,
    fit: AcceleratorFit,
    nodes: EligibleNodes,
    score: Score,
) -> RankedClass<'a> {
    let memory = fit::memory_budget(context, class, &fit);
    let pod = fit.pod();
    let AcceleratorFit { shape, request, compute, .. } = fit;
    let selector = &context.demand.selector;
    let preferences = &context.requirements.preferences;
    let capacity = capacity(&nodes, &pod, shape.nodes, replicas);
    let price_per_hour = scoring::price_per_hour(class, shape);
    let supported = context.requirements.supported_classes.as_deref();
    let listed_position = supported.map_or(usize::MAX, |names| position(names, &class.name));
    RankedClass {
        class,
        request,
        cost_threshold: selector.cost_threshold,
        request_tokens: variants::request_tokens(preferences, &class.name, context.model),
        is_not_variant: false,
        is_full: capacity == Capacity::Insufficient && yields_to_free_classes(selector),
        preferred_position: position(&selector.preferred, &class.name),
        preference_score: preference_score(preferences, &class.name, context.model),
        capacity,
        listed_position: if selector.ranking == RankingPolicy::FirstAvailable { listed_position } else { 0 },
        emulated_format: emulated_format(context, class),
        rejected_context: context
            .engine_settings(class)
            .rejected_context(context.model_memory.and_then(ModelMemory::context_limit)),
        precision_position: context.precision_position(class),
        eligibility: Eligibility {
            shape,
            ranking: selector.ranking.as_str(),
            score: round_score(score.total),
            cost_score: score.cost.map(round_score),
            performance_score: round_score(score.performance),
            memory,
            compute,
            lacks_only_compute: capacity == Capacity::Insufficient
                && nodes.as_ref().is_some_and(|nodes| {
                    nodes.has_capacity(&PodShape::accelerators(shape.per_node), shape.nodes, replicas.max(1))
                }),
            price_per_hour: price_per_hour.map(round_score),
            replicas: replicas.max(1),
            free_and_total: nodes.as_ref().map(|nodes| (nodes.all.free(), nodes.all.total())),
            has_capacity: capacity != Capacity::Insufficient,
            has_capacity_with_running_pods: capacity != Capacity::Insufficient
                || nodes
                    .as_ref()
                    .is_some_and(|nodes| nodes.has_capacity_with_running_pods(&pod, shape.nodes, replicas.max(1))),
            pods_without_room: nodes
                .as_ref()
                .map_or(0, |nodes| nodes.pods_without_room(&pod, shape.nodes, replicas.max(1))),
            unschedulable: match capacity {
                Capacity::Insufficient => unschedulable_nodes(class, &nodes, (&pod, shape.nodes, replicas.max(1))),
                Capacity::Sufficient | Capacity::Unknown => None,
            },
        },
        score,
    }
}

/// Returns the number format that the engine converts on `class`.
fn emulated_format(context: &MatchContext<'_>, class: &Class) -> Option<NumberFormat> {
    match context.format_support(class) {
        FormatSupport::Emulated(format) => Some(format),
        FormatSupport::Native | FormatSupport::Unsupported(_) => None,
    }
}

fn unschedulable_nodes(
    class: &Class,
    nodes: &EligibleNodes,
    pods: (&PodShape, u32, u32),
) -> Option<UnschedulableNodes> {
    nodes.as_ref()?.unschedulable_nodes(class.availability.as_ref()?, pods)
}

fn capacity(nodes: &EligibleNodes, pod: &PodShape, pods_per_replica: u32, replicas: u32) -> Capacity {
    match nodes {
        None => Capacity::Unknown,
        Some(nodes) if nodes.has_capacity(pod, pods_per_replica, replicas.max(1)) => Capacity::Sufficient,
        Some(_) => Capacity::Insufficient,
    }
}

/// Whether a full class of the service's list ranks below the other ones: the service does not wait for it.
fn yields_to_free_classes(selector: &ClassSelector) -> bool {
    !selector.preferred.is_empty() && !selector.wait_for_preferred
}

fn position(names: &[String], class: &str) -> usize {
    names.iter().position(|name| name == class).unwrap_or(usize::MAX)
}

/// The keys in order. An annotation takes precedence over fields, so the cost threshold precedes the preferred classes.
fn keys<'a>() -> [RankingKey<RankedClass<'a>, ClassRankReason>; 15] {
    [
        RankingKey {
            order: |a, b| a.is_too_small().cmp(&b.is_too_small()),
            reason: |_, _| ClassRankReason::ModelDoesNotFit,
        },
        RankingKey {
            order: |a, b| a.is_not_variant.cmp(&b.is_not_variant),
            reason: |_, _| ClassRankReason::RequestSize,
        },
        RankingKey {
            order: |a, b| b.is_within_threshold().cmp(&a.is_within_threshold()),
            reason: |candidate, _| ClassRankReason::CostThreshold {
                threshold: candidate.cost_threshold.unwrap_or_default(),
            },
        },
        RankingKey {
            order: |a, b| a.price_over_threshold().total_cmp(&b.price_over_threshold()),
            reason: RankedClass::price_reason,
        },
        RankingKey {
            order: |a, b| a.is_full.cmp(&b.is_full),
            reason: |candidate, _| ClassRankReason::Capacity {
                free: candidate.eligibility.free_and_total.map(|(free, _)| free),
            },
        },
        RankingKey {
            order: |a, b| a.preferred_position.cmp(&b.preferred_position),
            reason: |candidate, selected| ClassRankReason::PreferredPosition {
                candidate: candidate.preferred_position.saturating_add(1),
                selected: selected.preferred_position.saturating_add(1),
            },
        },
        RankingKey {
            order: |a, b| b.preference_score.cmp(&a.preference_score),
            reason: |candidate, selected| ClassRankReason::PreferenceScore {
                candidate: candidate.preference_score,
                selected: selected.preference_score,
            },
        },
        RankingKey {
            order: |a, b| a.capacity.cmp(&b.capacity),
            reason: |candidate, _| ClassRankReason::Capacity {
                free: candidate.eligibility.free_and_total.map(|(free, _)| free),
            },
        },
        RankingKey {
            order: |a, b| a.listed_position.cmp(&b.listed_position),
            reason: |_, _| ClassRankReason::ListPosition,
        },
        RankingKey {
            order: |a, b| a.precision_position.cmp(&b.precision_position),
            reason: |_, _| ClassRankReason::PreferredPrecision,
        },
        RankingKey {
            order: |a, b| a.score.price_kind.cmp(&b.score.price_kind),
            reason: |candidate, _| match candidate.score.cost {
                Some(_) => ClassRankReason::OtherPriceKind,
                None => ClassRankReason::Unpriced,
            },
        },
        RankingKey {
            order: |a, b| a.score.lacks_figures.cmp(&b.score.lacks_figures),
            reason: |_, _| ClassRankReason::FiguresMissing,
        },
        RankingKey { order: |a, b| b.score.total.total_cmp(&a.score.total), reason: RankedClass::score_reason },
        RankingKey {
            order: |a, b| a.emulated_format.is_some().cmp(&b.emulated_format.is_some()),
            reason: |candidate, _| {
                candidate.emulated_format.map_or(ClassRankReason::Name, ClassRankReason::FormatEmulated)
            },
        },
        RankingKey { order: |a, b| a.class.name.cmp(&b.class.name), reason: |_, _| ClassRankReason::Name },
    ]
}

/// Returns why `candidate` ranks below the selected class. A class that ranks above it is not used because the current
/// selection is retained.
pub(crate) fn class_rank_reason<'a>(candidate: &RankedClass<'a>, selected: &RankedClass<'a>) -> ClassRankReason {
    rank_reason(&keys(), candidate, selected).unwrap_or(ClassRankReason::CurrentRetained)
}
