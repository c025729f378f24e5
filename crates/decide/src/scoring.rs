//! Scores of eligible classes by cost and performance. The order of two classes depends on nothing but these two: each term is
//! proportional to a value of the class, terms are multiplied, and a class that lacks a value ranks below those that declare it.

use crate::demand::{Model, RankingPolicy};
use crate::number_format;
use crate::quantization::{self, NumberFormat, Precision};
use crate::shape::ReplicaShape;
use crate::supply::{Class, CostTier};

/// Performance that is left of that of all accelerators whenever their number doubles, because they wait for each other: with
/// a fast connection between those of a node, with another one, and between nodes. Assumptions that only rank classes.
const EFFICIENCY_OF_FAST_CONNECTION: f64 = 0.9;
const EFFICIENCY_OF_BUS: f64 = 0.8;
const EFFICIENCY_BETWEEN_NODES: f64 = 0.7;
/// Performance that is left if the engine converts the numbers of the model while it computes. An assumption, too.
const EFFICIENCY_OF_CONVERSION: f64 = 0.8;

/// Features of fast connections between all accelerators of a node.
const FAST_CONNECTIONS: [&str; 6] = ["nvlink", "infinity-fabric", "ici", "neuron-link", "hccs", "roce"];

/// An eligible class with the shape of one replica on it.
#[derive(Clone, Copy)]
pub(crate) struct ScoringCandidate<'a> {
    pub(crate) class: &'a Class,
    pub(crate) shape: ReplicaShape,
    /// The number format of the model that the engine converts, because the class has no units for it.
    pub(crate) emulated_format: Option<NumberFormat>,
}

/// Values that were not used for the scores.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScoringNotes {
    /// Values that the ranking compares and that some class does not declare.
    pub(crate) missing_figures: Vec<&'static str>,
    /// Names of these classes.
    pub(crate) classes_without_figures: Vec<String>,
    /// The kind of price that is compared, and the number of classes that only declare another kind.
    pub(crate) other_prices: Option<(&'static str, usize)>,
}

/// Scores in the order of the candidates; greater is better.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scores {
    pub(crate) scores: Vec<Score>,
    pub(crate) notes: ScoringNotes,
}

/// A score between 0 and 1, relative to the best class, with its terms.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Score {
    pub(crate) total: f64,
    /// `None` if the class declares no comparable price.
    pub(crate) cost: Option<f64>,
    pub(crate) performance: f64,
    /// Kind of the price: classes with another kind, and then those without a price, rank below those with the first one. 0 if
    /// the ranking does not compare prices.
    pub(crate) price_kind: usize,
    /// Whether the class lacks a value that the ranking compares; it then ranks below those that have it.
    pub(crate) lacks_figures: bool,
}

/// A price of a replica. Prices of different kinds are not compared: classes with the first kind rank first.
#[derive(Clone, Copy, PartialEq)]
struct Price {
    /// Index in [`PRICE_KINDS`].
    kind: usize,
    value: f64,
}

/// Values of a replica on a class that rankings compare, apart from its price.
#[derive(Clone, Copy)]
struct Figures {
    /// TFLOPS at the model's precision, which determine the time per token of a prompt.
    compute: Option<f64>,
    /// GB/s, which determine the time per token of the output.
    bandwidth: Option<f64>,
    /// Bytes of memory.
    memory: Option<f64>,
}

// === impl ScoringCandidate ===

impl ScoringCandidate<'_> {
    fn accelerators(&self) -> f64 {
        f64::from(self.shape.accelerators())
    }

    /// Whether the engine converts weights while it computes. Float16 instead of bfloat16 needs no conversion then.
    fn converts_weights(&self) -> bool {
        self.emulated_format.is_some_and(|format| format != NumberFormat::Bfloat16)
    }

    /// Returns the number of accelerators that would have the same performance if they did not wait for each other.
    fn effective_accelerators(&self) -> f64 {
        let is_fast = FAST_CONNECTIONS.iter().any(|feature| self.class.features.contains(*feature));
        let within_node = if is_fast { EFFICIENCY_OF_FAST_CONNECTION } else { EFFICIENCY_OF_BUS };
        let doublings = |count: u32| f64::from(count.max(1)).log2();
        let conversion = if self.converts_weights() { EFFICIENCY_OF_CONVERSION } else { 1.0 };
        let efficiency = conversion
            * within_node.powf(doublings(self.shape.per_node))
            * EFFICIENCY_BETWEEN_NODES.powf(doublings(self.shape.nodes));
        self.accelerators() * efficiency
    }

    fn figures(&self, precision: Precision) -> Figures {
        let precision = if self.converts_weights() { Precision::Half } else { precision };
        let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
        let effective = self.effective_accelerators();
        Figures {
            compute: positive(throughput(precision, self.class)).map(|value| value * effective),
            bandwidth: positive(self.class.bandwidth).map(|value| value * effective),
            memory: positive(self.class.memory.map(|bytes| bytes as f64 * self.accelerators())),
        }
    }
}

// === impl Figures ===

impl Figures {
    /// Returns the inverse of the estimated time per token: the geometric mean of prompt and output, because the two have
    /// different units.
    fn performance(&self) -> Option<f64> {
        Some((self.compute? * self.bandwidth?).sqrt())
    }
}

/// An eligible class with the values that its ranking compares. `balanced` compares classes without a price by performance.
struct RankedValues<'a> {
    class: &'a Class,
    ranking: RankingPolicy,
    price: Option<Price>,
    figures: Figures,
}

/// The best values of all classes, so that scores are between 0 and 1. They do not change the order of the scores.
struct BestValues {
    /// Least price of each kind.
    prices: [f64; PRICE_KINDS.len()],
    performance: f64,
    /// Least memory: the class with the least memory that fits is the best.
    memory: f64,
}

// === impl RankedValues ===

impl<'a> RankedValues<'a> {
    fn new(ranking: RankingPolicy, precision: Precision, candidate: &ScoringCandidate<'a>) -> Self {
        let price = price(candidate);
        let ranking = match (ranking, price) {
            (RankingPolicy::Balanced, None) => RankingPolicy::Performance,
            (ranking, _) => ranking,
        };
        Self { class: candidate.class, ranking, price, figures: candidate.figures(precision) }
    }

    /// Returns the names of the values that the ranking compares and the class does not declare.
    fn missing_figures(&self) -> impl Iterator<Item = &'static str> {
        let (speed, memory) = match self.ranking {
            RankingPolicy::Performance => (true, false),
            RankingPolicy::Balanced => (true, true),
            RankingPolicy::BestFit => (false, true),
            RankingPolicy::Cost | RankingPolicy::FirstAvailable => (false, false),
        };
        let values = [
            ("compute", speed && self.figures.compute.is_none()),
            ("bandwidth", speed && self.figures.bandwidth.is_none()),
            ("memory", memory && self.figures.memory.is_none()),
        ];
        values.into_iter().filter_map(|(name, is_missing)| is_missing.then_some(name))
    }

    fn score(&self, best: &BestValues, ranks_by_price: bool) -> Score {
        let relative_cost = |price: Price| if price.value > 0.0 { best.prices[price.kind] / price.value } else { 1.0 };
        let cost = self.price.map(relative_cost);
        let performance = self.figures.performance().map_or(0.0, |performance| performance / best.performance);
        let memory_fit = self.figures.memory.map_or(0.0, |memory| best.memory / memory);
        let lacks_figures = self.missing_figures().next().is_some();
        let total = match self.ranking {
            RankingPolicy::Performance => performance,
            RankingPolicy::Cost => cost.unwrap_or_default(),
            RankingPolicy::Balanced if lacks_figures => cost.unwrap_or_default(),
            RankingPolicy::Balanced => (cost.unwrap_or_default() * performance * memory_fit).cbrt(),
            RankingPolicy::BestFit => memory_fit,
            RankingPolicy::FirstAvailable => 0.0,
        };
        let price_kind = if ranks_by_price { self.price.map_or(PRICE_KINDS.len(), |price| price.kind) } else { 0 };
        Score { total, cost, performance, price_kind, lacks_figures }
    }
}

// === impl BestValues ===

impl BestValues {
    fn of(values: &[RankedValues<'_>]) -> Self {
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let prices = std::array::from_fn(|kind| {
            let of_kind = values.iter().filter_map(|values| values.price).filter(|price| price.kind == kind);
            least(&mut of_kind.map(|price| price.value))
        });
        let performances = values.iter().filter_map(|values| values.figures.performance());
        let memory = least(&mut values.iter().filter_map(|values| values.figures.memory));
        Self { prices, performance: performances.fold(0.0, f64::max), memory }
    }
}

// === impl ScoringNotes ===

impl ScoringNotes {
    fn new(values: &[RankedValues<'_>], ranks_by_price: bool) -> Self {
        let mut notes = Self::default();
        for class in values {
            let before = notes.missing_figures.len();
            notes.missing_figures.extend(class.missing_figures());
            if notes.missing_figures.len() > before {
                notes.classes_without_figures.push(class.class.name.clone());
            }
        }
        // The order of the classes in the input has no meaning.
        notes.classes_without_figures.sort_unstable();
        let kinds = || values.iter().filter_map(|class| class.price).map(|price| price.kind);
        let first = kinds().min().filter(|_| ranks_by_price);
        if values.iter().any(|class| class.ranking == RankingPolicy::Cost) && first.is_none() {
            notes.missing_figures.push("price");
        }
        notes.missing_figures.sort_unstable();
        notes.missing_figures.dedup();
        let others = kinds().filter(|kind| first.is_some_and(|first| *kind > first)).count();
        let first_kind = first.and_then(|kind| PRICE_KINDS.get(kind)).map(|(name, _)| *name);
        notes.other_prices = first_kind.filter(|_| others > 0).map(|name| (name, others));
        notes
    }
}

/// Scores all candidates by `ranking`.
pub(crate) fn score_classes(
    ranking: RankingPolicy,
    model: Option<&Model>,
    candidates: &[ScoringCandidate<'_>],
) -> Scores {
    let precision = quantization::precision(model.and_then(|model| model.quantization.as_deref()));
    let values: Vec<RankedValues<'_>> =
        candidates.iter().map(|candidate| RankedValues::new(ranking, precision, candidate)).collect();
    let ranks_by_price = matches!(ranking, RankingPolicy::Cost | RankingPolicy::Balanced);
    let best = BestValues::of(&values);
    let scores = values.iter().map(|values| values.score(&best, ranks_by_price)).collect();
    Scores { scores, notes: ScoringNotes::new(&values, ranks_by_price) }
}

/// Returns the price of one replica in dollars per hour.
pub(crate) fn price_per_hour(class: &Class, shape: ReplicaShape) -> Option<f64> {
    class.cost.per_accelerator_hour().map(|price| price * f64::from(shape.accelerators()))
}

/// Returns the throughput at the model's precision. A device without FP4, FP8 or INT8 units runs such models at 16-bit precision. Units
/// for FP4, of which classes declare no figure, are at least as fast as those for FP8.
fn throughput(precision: Precision, class: &Class) -> Option<f64> {
    let performance = &class.performance;
    let half = performance.fp16.or(performance.fp32);
    match precision {
        Precision::Fp4 if number_format::computes(class, "fp4") => performance.fp8.or(half),
        Precision::Fp4 => half,
        Precision::Fp8 => performance.fp8.or(half),
        Precision::Int8 => performance.int8.or(half),
        Precision::Half => half,
    }
}

/// A kind of price: its field, and the price of a replica.
type PriceKind = (&'static str, fn(&ScoringCandidate<'_>) -> Option<f64>);
const PRICE_KINDS: [PriceKind; 3] = [
    ("cost.perHour", |candidate| price_per_hour(candidate.class, candidate.shape)),
    ("cost.perMillionTokens", |candidate| candidate.class.cost.per_million_tokens),
    ("cost.tier", tier),
];

/// Returns the first kind of price that the class declares.
fn price(candidate: &ScoringCandidate<'_>) -> Option<Price> {
    PRICE_KINDS.iter().enumerate().find_map(|(kind, (_, price))| Some(Price { kind, value: price(candidate)? }))
}

fn tier(candidate: &ScoringCandidate<'_>) -> Option<f64> {
    candidate.class.cost.tier.map(|tier| match tier {
        CostTier::Low => 1.0,
        CostTier::Medium => 2.0,
        CostTier::High => 3.0,
    })
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    fn any_class() -> impl Strategy<Value = Class> {
        let figure = || prop::option::weighted(0.8, 1.0..10_000.0_f64);
        let feature = prop::sample::select(vec!["nvlink", "fp8"]);
        (figure(), figure(), figure(), figure(), prop::option::of(1_u64 << 30..1 << 38), feature).prop_map(
            |(fp16, bandwidth, per_hour, per_million_tokens, memory, feature)| {
                let mut class = Class { bandwidth, memory, ..Class::default() };
                class.performance.fp16 = fp16;
                class.cost.per_hour = per_hour;
                class.cost.per_million_tokens = per_million_tokens;
                class.features.insert(feature.to_owned());
                class
            },
        )
    }

    fn any_candidates() -> impl Strategy<Value = Vec<(Class, ReplicaShape)>> {
        let shape = (prop::sample::select(vec![1, 2, 4, 8]), prop::sample::select(vec![1, 2]))
            .prop_map(|(per_node, nodes)| ReplicaShape { per_node, nodes });
        prop::collection::vec((any_class(), shape), 2..8)
    }

    fn any_ranking() -> impl Strategy<Value = RankingPolicy> {
        prop::sample::select(vec![
            RankingPolicy::Performance,
            RankingPolicy::Cost,
            RankingPolicy::Balanced,
            RankingPolicy::BestFit,
        ])
    }

    fn scores(ranking: RankingPolicy, candidates: &[(Class, ReplicaShape)]) -> Vec<Score> {
        let candidates: Vec<ScoringCandidate<'_>> = candidates
            .iter()
            .map(|(class, shape)| ScoringCandidate { class, shape: *shape, emulated_format: None })
            .collect();
        score_classes(ranking, None, &candidates).scores
    }

    /// Compares two scores; those that differ by rounding are equal.
    fn order(a: &Score, b: &Score) -> Ordering {
        let is_close = (a.total - b.total).abs() <= 1e-9 * a.total.max(b.total);
        let totals = if is_close { Ordering::Equal } else { b.total.total_cmp(&a.total) };
        (a.price_kind, a.lacks_figures).cmp(&(b.price_kind, b.lacks_figures)).then(totals)
    }

    proptest! {
        #[test]
        // spec: ACC-77
        fn order_of_two_classes_does_not_depend_on_others(candidates in any_candidates(), ranking in any_ranking()) {
            let all = scores(ranking, &candidates);
            let pair = scores(ranking, &candidates[..2]);
            prop_assert_eq!(order(&all[0], &all[1]), order(&pair[0], &pair[1]));
            prop_assert!(all.iter().all(|score| (0.0..=1.0).contains(&score.total)), "{:?}", all);
        }
    }
}
