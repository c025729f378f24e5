//! Scores of eligible classes by cost and performance. Every term is relative to the best eligible class.

use crate::demand::{Model, RankingPolicy};
use crate::quantization::{self, Precision};
use crate::shape::ReplicaShape;
use crate::supply::{Class, CostTier};

/// An eligible class with the shape of one replica on it.
#[derive(Clone, Copy)]
pub(crate) struct ScoringCandidate<'a> {
    pub(crate) class: &'a Class,
    pub(crate) shape: ReplicaShape,
}

/// Values that were not used for the scores.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScoringNotes {
    /// Terms that are dropped for all classes because at least one class does not declare them.
    pub(crate) dropped_terms: Vec<&'static str>,
    /// The kind of price that is compared, and the number of classes that only declare another kind.
    pub(crate) other_prices: Option<(&'static str, usize)>,
}

/// Scores in the order of the candidates; greater is better.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scores {
    pub(crate) scores: Vec<Score>,
    pub(crate) notes: ScoringNotes,
}

/// A score between 0 and 1 with its terms.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Score {
    pub(crate) total: f64,
    /// `None` if the class declares no comparable price.
    pub(crate) cost: Option<f64>,
    pub(crate) performance: f64,
    /// Whether the class has no price while others have one; it then ranks below them.
    pub(crate) unpriced: bool,
}

struct CostTerms {
    terms: Vec<Option<f64>>,
    /// See [`ScoringNotes::other_prices`].
    other_prices: Option<(&'static str, usize)>,
}

// === impl ScoringCandidate ===

impl ScoringCandidate<'_> {
    fn accelerators(&self) -> f64 {
        f64::from(self.shape.accelerators())
    }

    /// Returns the price of one replica in dollars per hour.
    pub(crate) fn price_per_hour(&self) -> Option<f64> {
        self.class.cost.per_accelerator_hour().map(|price| price * self.accelerators())
    }
}

/// Scores all candidates by `ranking`.
pub(crate) fn score_classes(
    ranking: RankingPolicy,
    model: Option<&Model>,
    candidates: &[ScoringCandidate<'_>],
) -> Scores {
    let costs = cost_terms(candidates);
    let ranking = match (ranking, &costs) {
        (RankingPolicy::Balanced, None) => RankingPolicy::Performance,
        (ranking, _) => ranking,
    };
    let mut notes =
        ScoringNotes { dropped_terms: Vec::new(), other_prices: costs.as_ref().and_then(|costs| costs.other_prices) };
    if costs.is_none() && ranking == RankingPolicy::Cost {
        notes.dropped_terms.push("price");
    }
    let memory = match ranking {
        RankingPolicy::Balanced | RankingPolicy::BestFit => memory_fit(candidates),
        _ => relative_to_greatest(candidates.iter().map(memory)),
    };
    let precision = quantization::precision(model.and_then(|model| model.quantization.as_deref()));
    let compute = relative_to_greatest(
        candidates.iter().map(|candidate| Some(throughput(precision, candidate.class)? * candidate.accelerators())),
    );
    let bandwidth = relative_to_greatest(
        candidates.iter().map(|candidate| Some(candidate.class.bandwidth? * candidate.accelerators())),
    );
    let terms = [("compute", 0.4, compute), ("bandwidth", 0.4, bandwidth), ("memory", 0.2, memory.clone())];
    let missing = terms.iter().filter(|(_, _, term)| term.is_none()).map(|(name, ..)| *name);
    match ranking {
        RankingPolicy::Balanced | RankingPolicy::Performance => notes.dropped_terms.extend(missing),
        RankingPolicy::BestFit => notes.dropped_terms.extend(missing.filter(|name| *name == "memory")),
        RankingPolicy::Cost | RankingPolicy::FirstAvailable => {}
    }
    let scores = (0..candidates.len())
        .map(|index| {
            let performance = weighted_mean(&terms, index);
            let cost = costs.as_ref().map(|costs| costs.terms.get(index).copied().flatten());
            score(ranking, performance, cost, memory.as_ref().and_then(|terms| terms.get(index)).copied())
        })
        .collect();
    Scores { scores, notes }
}

/// Combines the terms of one class. `cost`: outer `None` if no class declares a price, inner `None` if this class does not.
fn score(ranking: RankingPolicy, performance: f64, cost: Option<Option<f64>>, memory_fit: Option<f64>) -> Score {
    let unpriced = matches!(cost, Some(None)) && matches!(ranking, RankingPolicy::Cost | RankingPolicy::Balanced);
    let cost = cost.flatten();
    let total = match ranking {
        RankingPolicy::Performance => performance,
        RankingPolicy::Cost => cost.unwrap_or(0.0),
        RankingPolicy::Balanced => cost.map_or(performance, |cost| (cost * performance).sqrt()),
        RankingPolicy::BestFit => memory_fit.unwrap_or(0.0),
        RankingPolicy::FirstAvailable => 0.0,
    };
    Score { total, cost, performance, unpriced }
}

fn weighted_mean(terms: &[(&str, f64, Option<Vec<f64>>)], index: usize) -> f64 {
    let declared = terms.iter().filter_map(|(_, weight, values)| Some((*weight, *values.as_ref()?.get(index)?)));
    let (sum, weights) =
        declared.fold((0.0, 0.0), |(sum, weights), (weight, value)| (sum + weight * value, weights + weight));
    if weights > 0.0 { sum / weights } else { 0.0 }
}

/// Returns each value relative to the greatest; `None` if a class does not declare the value.
fn relative_to_greatest(values: impl Iterator<Item = Option<f64>>) -> Option<Vec<f64>> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    let greatest = values.iter().copied().fold(0.0, f64::max);
    (greatest > 0.0).then(|| values.iter().map(|value| value / greatest).collect())
}

/// Returns the least memory relative to the memory of each class: the class with the least memory that fits is the best.
fn memory_fit(candidates: &[ScoringCandidate<'_>]) -> Option<Vec<f64>> {
    let replica_memories: Vec<f64> = candidates.iter().map(memory).collect::<Option<_>>()?;
    let least = replica_memories.iter().copied().fold(f64::INFINITY, f64::min);
    Some(replica_memories.iter().map(|total| if *total > 0.0 { least / total } else { 0.0 }).collect())
}

fn memory(candidate: &ScoringCandidate<'_>) -> Option<f64> {
    candidate.class.memory.map(|bytes| bytes as f64 * candidate.accelerators())
}

/// Returns the throughput at the model's precision. A device without FP8 or INT8 units runs such models at 16-bit precision.
fn throughput(precision: Precision, class: &Class) -> Option<f64> {
    let performance = &class.performance;
    let half = performance.fp16.or(performance.fp32);
    match precision {
        Precision::Fp8 => performance.fp8.or(half),
        Precision::Int8 => performance.int8.or(half),
        Precision::Half => half,
    }
}

/// A kind of price: its field, and the price of a replica.
type PriceKind = (&'static str, fn(&ScoringCandidate<'_>) -> Option<f64>);
const PRICE_KINDS: [PriceKind; 3] = [
    ("cost.perHour", |candidate| candidate.price_per_hour()),
    ("cost.perMillionTokens", |candidate| candidate.class.cost.per_million_tokens),
    ("cost.tier", tier),
];

/// Returns the cheapest price relative to each price, of the first kind of price that any class declares. A class that only
/// declares another kind counts as unpriced.
fn cost_terms(candidates: &[ScoringCandidate<'_>]) -> Option<CostTerms> {
    let by_kind = PRICE_KINDS.iter().map(|(kind, price)| (*kind, candidates.iter().map(price).collect::<Vec<_>>()));
    let (kind, prices) = by_kind.into_iter().find(|(_, prices)| prices.iter().any(Option::is_some))?;
    let cheapest = prices.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let relative = |price: f64| if price > 0.0 { cheapest / price } else { 1.0 };
    let has_other_price =
        |candidate: &ScoringCandidate<'_>| PRICE_KINDS.iter().any(|(_, price)| price(candidate).is_some());
    let candidates_priced_by_other_kind =
        candidates.iter().zip(&prices).filter(|(candidate, price)| price.is_none() && has_other_price(candidate));
    let other_price_count = candidates_priced_by_other_kind.count();
    let terms = prices.iter().map(|price| price.map(relative)).collect();
    Some(CostTerms { terms, other_prices: (other_price_count > 0).then_some((kind, other_price_count)) })
}

fn tier(candidate: &ScoringCandidate<'_>) -> Option<f64> {
    candidate.class.cost.tier.map(|tier| match tier {
        CostTier::Low => 1.0,
        CostTier::Medium => 2.0,
        CostTier::High => 3.0,
    })
}
