//! How good an eligible class is: cost, speed, or both. Every term is relative to the best eligible class.

use crate::demand::{Model, RankingPolicy};
use crate::quantization::{self, Precision};
use crate::shape::ReplicaShape;
use crate::supply::{Class, CostTier};

/// One eligible class in the shape that would carry the component.
#[derive(Clone, Copy)]
pub struct ScoringCandidate<'a> {
    pub class: &'a Class,
    pub shape: ReplicaShape,
}

impl ScoringCandidate<'_> {
    fn count(&self) -> f64 {
        f64::from(self.shape.accelerators())
    }

    /// Dollars per hour of one replica.
    #[must_use]
    pub fn price_per_hour(&self) -> Option<f64> {
        self.class.cost.per_accelerator_hour().map(|price| price * self.count())
    }
}

/// What the scores had to do without.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoringNotes {
    /// Terms that were left out for all because a class does not state them.
    pub dropped: Vec<&'static str>,
    /// Classes with a price of another kind than the one compared: (kind, how many).
    pub other_prices: Option<(&'static str, usize)>,
}

/// Scores in the contenders' order; greater is better.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    pub scores: Vec<Score>,
    pub notes: ScoringNotes,
}

/// A score between 0 and 1 with the terms behind it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    pub total: f64,
    /// `None`: unpriced while others are priced; comes after them.
    pub cost: Option<f64>,
    pub performance: f64,
    pub unpriced: bool,
}

/// Scores all contenders by `ranking`.
#[must_use]
pub fn score_classes(ranking: RankingPolicy, model: Option<&Model>, contenders: &[ScoringCandidate<'_>]) -> Scores {
    let costs = cost_terms(contenders);
    let ranking = match (ranking, &costs) {
        (RankingPolicy::Balanced, None) => RankingPolicy::Performance,
        (ranking, _) => ranking,
    };
    let mut notes = ScoringNotes { dropped: Vec::new(), other_prices: costs.as_ref().and_then(|costs| costs.others) };
    if costs.is_none() && ranking == RankingPolicy::Cost {
        notes.dropped.push("price");
    }
    let memory = match ranking {
        RankingPolicy::Balanced | RankingPolicy::BestFit => tightness(contenders),
        _ => relative(contenders.iter().map(memory)),
    };
    let precision = quantization::precision(model.and_then(|model| model.quantization.as_deref()));
    let compute = relative(contenders.iter().map(|c| Some(compute(precision, c.class)? * c.count())));
    let bandwidth = relative(contenders.iter().map(|c| Some(c.class.bandwidth? * c.count())));
    let terms = [("compute", 0.4, compute), ("bandwidth", 0.4, bandwidth), ("memory", 0.2, memory.clone())];
    let missing = terms.iter().filter(|(_, _, term)| term.is_none()).map(|(name, ..)| *name);
    match ranking {
        RankingPolicy::Balanced | RankingPolicy::Performance => notes.dropped.extend(missing),
        RankingPolicy::BestFit => notes.dropped.extend(missing.filter(|name| *name == "memory")),
        RankingPolicy::Cost | RankingPolicy::FirstAvailable => {}
    }
    let of = (0..contenders.len())
        .map(|index| {
            let performance = weighted(&terms, index);
            let cost = costs.as_ref().map(|costs| costs.of.get(index).copied().flatten());
            score(ranking, performance, cost, memory.as_ref().and_then(|all| all.get(index)).copied())
        })
        .collect();
    Scores { scores: of, notes }
}

/// `cost`: outer `None` if nobody states a price, inner if this class does not.
fn score(ranking: RankingPolicy, performance: f64, cost: Option<Option<f64>>, tightness: Option<f64>) -> Score {
    let unpriced = matches!(cost, Some(None)) && matches!(ranking, RankingPolicy::Cost | RankingPolicy::Balanced);
    let priced = cost.flatten();
    let total = match ranking {
        RankingPolicy::Performance => performance,
        RankingPolicy::Cost => priced.unwrap_or(0.0),
        RankingPolicy::Balanced => priced.map_or(performance, |cost| (cost * performance).sqrt()),
        RankingPolicy::BestFit => tightness.unwrap_or(0.0),
        RankingPolicy::FirstAvailable => 0.0,
    };
    Score { total, cost: priced, performance, unpriced }
}

fn weighted(terms: &[(&str, f64, Option<Vec<f64>>)], index: usize) -> f64 {
    let stated = terms.iter().filter_map(|(_, weight, values)| Some((*weight, *values.as_ref()?.get(index)?)));
    let (sum, weights) = stated.fold((0.0, 0.0), |(sum, all), (weight, value)| (sum + weight * value, all + weight));
    if weights > 0.0 { sum / weights } else { 0.0 }
}

/// Each value relative to the greatest; `None` if any class lacks it, since kinds are never mixed silently.
fn relative(values: impl Iterator<Item = Option<f64>>) -> Option<Vec<f64>> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    let best = values.iter().copied().fold(0.0, f64::max);
    (best > 0.0).then(|| values.iter().map(|value| value / best).collect())
}

/// The least memory that still fits is the best: a 7B model belongs on the smaller class, a 70B one on the larger.
fn tightness(contenders: &[ScoringCandidate<'_>]) -> Option<Vec<f64>> {
    let totals: Vec<f64> = contenders.iter().map(memory).collect::<Option<_>>()?;
    let least = totals.iter().copied().fold(f64::INFINITY, f64::min);
    Some(totals.iter().map(|total| if *total > 0.0 { least / total } else { 0.0 }).collect())
}

fn memory(contender: &ScoringCandidate<'_>) -> Option<f64> {
    contender.class.memory.map(|bytes| bytes as f64 * contender.count())
}

/// Throughput at the model's precision; a device without fp8 or int8 units computes such models in 16 bit.
fn compute(precision: Precision, class: &Class) -> Option<f64> {
    let throughput = &class.performance;
    let wide = throughput.fp16.or(throughput.fp32);
    match precision {
        Precision::Fp8 => throughput.fp8.or(wide),
        Precision::Int8 => throughput.int8.or(wide),
        Precision::Half => wide,
    }
}

/// A way to state a price: hourly, per million tokens, tier.
type PriceKind = (&'static str, fn(&ScoringCandidate<'_>) -> Option<f64>);
const PRICE_KINDS: [PriceKind; 3] = [
    ("cost.perHour", |contender| contender.price_per_hour()),
    ("cost.perMillionTokens", per_million_tokens),
    ("cost.tier", tier),
];

struct CostTerms {
    of: Vec<Option<f64>>,
    /// The kind compared, and how many classes state a price of another kind only.
    others: Option<(&'static str, usize)>,
}

/// Cheapest relative to each, in the first kind of price that any class states. Kinds are never mixed: a class that states
/// another one only counts as unpriced.
fn cost_terms(contenders: &[ScoringCandidate<'_>]) -> Option<CostTerms> {
    let by_kind = PRICE_KINDS.iter().map(|(kind, of)| (*kind, contenders.iter().map(of).collect::<Vec<_>>()));
    let (kind, prices) = by_kind.into_iter().find(|(_, prices)| prices.iter().any(Option::is_some))?;
    let cheapest = prices.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let relative = |price: f64| if price > 0.0 { cheapest / price } else { 1.0 };
    let priced_otherwise = |contender: &ScoringCandidate<'_>| PRICE_KINDS.iter().any(|(_, of)| of(contender).is_some());
    let others = contenders.iter().zip(&prices).filter(|(one, price)| price.is_none() && priced_otherwise(one)).count();
    let of = prices.iter().map(|price| price.map(relative)).collect();
    Some(CostTerms { of, others: (others > 0).then_some((kind, others)) })
}

fn per_million_tokens(contender: &ScoringCandidate<'_>) -> Option<f64> {
    contender.class.cost.per_million_tokens
}

fn tier(contender: &ScoringCandidate<'_>) -> Option<f64> {
    contender.class.cost.tier.map(|tier| match tier {
        CostTier::Low => 1.0,
        CostTier::Medium => 2.0,
        CostTier::High => 3.0,
    })
}
