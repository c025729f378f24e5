//! Total orders over what may serve: classes of one component, and runtimes. The first difference decides.

use std::cmp::{Ordering, Reverse};

use crate::assess::ComponentOutcome;
use crate::decision::Eligibility;
use crate::demand::{Model, Ranking, Selector};
use crate::eligibility::Case;
use crate::fit::{Fit, Stated};
use crate::fleet::Usable;
use crate::naming;
use crate::outranked::{ClassStep, RuntimeStep, SizeFit};
use crate::strategy::{self, Contender, Score};
use crate::supply::{Class, Format, Runtime, Scope, SizeRange};
use crate::variants::{self, TokenRange};

/// One entry of a runtime's `preferenceOrder`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preference {
    pub class: String,
    /// 0–100.
    pub score: i32,
    /// ORed; empty means always.
    pub conditions: Vec<Condition>,
}

/// All comparisons of one list item hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Condition {
    /// Against the model's parameter count.
    pub model_size: Option<Comparison>,
    /// Against the prompt's tokens: known per request only, so it never decides here.
    pub request_size: Option<Comparison>,
}

/// `<30B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    pub operator: Operator,
    pub value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

impl Comparison {
    #[must_use]
    pub fn holds(self, value: u64) -> bool {
        let order = value.cmp(&self.value);
        match self.operator {
            Operator::Less => order.is_lt(),
            Operator::LessOrEqual => order.is_le(),
            Operator::Equal => order.is_eq(),
            Operator::GreaterOrEqual => order.is_ge(),
            Operator::Greater => order.is_gt(),
        }
    }
}

/// The runtime's liking for `class`: the best score among entries whose conditions hold, 0 without one.
#[must_use]
pub fn preference(runtime: &Runtime, class: &str, model: Option<&Model>) -> i32 {
    let entries = runtime.requirements.preferences.iter().filter(|entry| entry.class == class);
    entries.filter(|entry| holds(&entry.conditions, model)).map(|entry| entry.score).max().unwrap_or(0)
}

fn holds(conditions: &[Condition], model: Option<&Model>) -> bool {
    conditions.is_empty() || conditions.iter().any(|condition| condition.holds_for(model))
}

impl Condition {
    /// As far as the model goes; a model without a size satisfies no comparison.
    #[must_use]
    pub fn holds_for(&self, model: Option<&Model>) -> bool {
        let parameters = model.and_then(|model| model.parameters);
        self.model_size.is_none_or(|comparison| parameters.is_some_and(|parameters| comparison.holds(parameters)))
    }
}

/// An eligible class of one component, ranked.
pub struct RankedClass<'a> {
    pub class: &'a Class,
    pub eligibility: Eligibility,
    pub stated: Stated,
    pub within_threshold: bool,
    /// Request sizes that the runtime prefers the class for.
    pub request_tokens: Option<TokenRange>,
    position: usize,
    preference: i32,
    capacity: Capacity,
    listed: usize,
    score: Score,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Capacity {
    Enough,
    Unknown,
    TooLittle,
}

/// What the scores had to do without.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    /// Terms that were left out for all because a class does not state them.
    pub dropped: Vec<&'static str>,
    /// Classes with a price of another kind than the one compared: (kind, how many).
    pub other_prices: Option<(&'static str, usize)>,
}

/// Ranks eligible classes, best first, with remarks on the scores.
#[must_use]
pub fn classes<'a>(
    case: &Case<'_>,
    replicas: u32,
    eligible: Vec<(&'a Class, Fit, Usable)>,
) -> (Vec<RankedClass<'a>>, Notes) {
    let contenders: Vec<Contender<'a>> =
        eligible.iter().map(|(class, fit, _)| Contender { class, shape: fit.shape }).collect();
    let selector = &case.component.selector;
    let scores = strategy::scores(selector.ranking, case.model, &contenders);
    let standings = eligible.into_iter().zip(scores.of);
    let mut ranked: Vec<RankedClass<'a>> =
        standings.map(|((class, fit, usable), score)| standing(case, replicas, class, fit, usable, score)).collect();
    ranked.sort_by(|a, b| class_order(selector, a, b));
    by_request_size(&mut ranked);
    (ranked, scores.notes)
}

/// Classes that the runtime prefers for requests of differing sizes are used together, so they come before those that would
/// be used alone, unless the service itself asks for another one first.
fn by_request_size(ranked: &mut [RankedClass<'_>]) {
    let places = variants::differing(ranked);
    let asked_first = ranked.first().map(|first| first.position);
    if places.iter().any(|(place, _)| ranked.get(*place).map(|class| class.position) == asked_first) {
        ranked.sort_by_key(|class| class.request_tokens.is_none());
    }
}

fn standing<'a>(
    case: &Case<'_>,
    replicas: u32,
    class: &'a Class,
    fit: Fit,
    usable: Usable,
    score: Score,
) -> RankedClass<'a> {
    let (shape, selector) = (fit.shape, &case.component.selector);
    let wanted = shape.nodes.saturating_mul(replicas.max(1));
    let capacity = match &usable {
        None => Capacity::Unknown,
        Some(nodes) if nodes.slots(shape.per_node) >= wanted => Capacity::Enough,
        Some(_) => Capacity::TooLittle,
    };
    let hourly = Contender { class, shape }.hourly();
    let place = |names: &[String]| names.iter().position(|name| *name == class.name).unwrap_or(usize::MAX);
    RankedClass {
        class,
        stated: fit.stated,
        within_threshold: within(selector.cost_threshold, hourly),
        request_tokens: variants::request_tokens(case.runtime, &class.name, case.model),
        position: place(&selector.preferred),
        preference: preference(case.runtime, &class.name, case.model),
        capacity,
        listed: case.runtime.requirements.classes.as_deref().map_or(usize::MAX, place),
        eligibility: Eligibility {
            shape,
            ranking: selector.ranking.as_str(),
            score: rounded(score.total),
            cost: score.cost.map(rounded),
            performance: rounded(score.performance),
            hourly: hourly.map(rounded),
            replicas: replicas.max(1),
            free: usable.map(|nodes| (nodes.free(), nodes.total())),
            enough: capacity != Capacity::TooLittle,
        },
        score,
    }
}

fn within(threshold: Option<f64>, hourly: Option<f64>) -> bool {
    threshold.is_none_or(|threshold| hourly.is_some_and(|price| price <= threshold))
}

/// An annotation outranks the service's fields, so the threshold comes first. Beyond it, the cheapest is taken.
fn class_order(selector: &Selector, a: &RankedClass<'_>, b: &RankedClass<'_>) -> Ordering {
    let beyond = selector.cost_threshold.is_some() && !a.within_threshold && !b.within_threshold;
    let price = |class: &RankedClass<'_>| class.eligibility.hourly.unwrap_or(f64::INFINITY);
    let cheapest = if beyond { price(a).total_cmp(&price(b)) } else { Ordering::Equal };
    let first_listed = match selector.ranking {
        Ranking::FirstAvailable => a.listed.cmp(&b.listed),
        _ => Ordering::Equal,
    };
    b.within_threshold
        .cmp(&a.within_threshold)
        .then(cheapest)
        .then(a.position.cmp(&b.position))
        .then(b.preference.cmp(&a.preference))
        .then(a.capacity.cmp(&b.capacity))
        .then(first_listed)
        .then(a.score.unpriced.cmp(&b.score.unpriced))
        .then(b.score.total.total_cmp(&a.score.total))
        .then_with(|| a.class.name.cmp(&b.class.name))
}

/// The first step of the order by which `loser` comes after `winner`; `None` if it does not.
#[must_use]
pub fn class_step(selector: &Selector, loser: &RankedClass<'_>, winner: &RankedClass<'_>) -> ClassStep {
    let both = |of: fn(&RankedClass<'_>) -> Option<f64>| of(loser).zip(of(winner));
    let prices = both(|class| class.eligibility.hourly);
    if loser.request_tokens.is_none() && winner.request_tokens.is_some() && class_order(selector, loser, winner).is_le()
    {
        return ClassStep::RequestSize;
    }
    if class_order(selector, loser, winner).is_le() {
        return ClassStep::Kept;
    }
    if loser.within_threshold != winner.within_threshold {
        return ClassStep::CostThreshold { threshold: selector.cost_threshold.unwrap_or_default() };
    }
    if selector.cost_threshold.is_some() && !loser.within_threshold && prices.is_some_and(|(a, b)| a > b) {
        let (own, winner) = prices.unwrap_or_default();
        return ClassStep::Price { own, winner };
    }
    if loser.position != winner.position {
        return ClassStep::Preferred { own: loser.position.saturating_add(1), winner: winner.position + 1 };
    }
    if loser.preference != winner.preference {
        return ClassStep::Preference { own: loser.preference, winner: winner.preference };
    }
    if loser.capacity != winner.capacity {
        return ClassStep::Capacity { free: loser.eligibility.free.map(|(free, _)| free) };
    }
    if selector.ranking == Ranking::FirstAvailable && loser.listed != winner.listed {
        return ClassStep::Listed;
    }
    if loser.score.unpriced != winner.score.unpriced {
        return ClassStep::Unpriced;
    }
    let (own, best) = (loser.score.total, winner.score.total);
    if own.total_cmp(&best).is_ne() {
        return ClassStep::Score { ranking: selector.ranking.as_str(), own: rounded(own), winner: rounded(best) };
    }
    ClassStep::Name
}

/// Four decimals: scores are shown, compared in tests, and equal on every machine.
fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// What a runtime is ranked by before classes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Suitability {
    scope: Scope,
    architecture_unstated: bool,
    size: SizeFit,
    /// Stated before unstated, higher first.
    pub(crate) priority: Reverse<Option<i32>>,
}

/// The whole order of runtimes; the last terms make it total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimeOrder<'a> {
    pub suitability: Suitability,
    pub no_capacity: bool,
    newest: Reverse<Option<&'a str>>,
    /// The runtime does not carry the model's name.
    stranger: bool,
    name: &'a str,
}

#[must_use]
pub(crate) fn runtime<'a>(
    runtime: &'a Runtime,
    entry: Option<&Format>,
    model: Option<&Model>,
    components: &[ComponentOutcome<'_>],
) -> RuntimeOrder<'a> {
    let priority = entry.filter(|entry| entry.auto_select).and_then(|entry| entry.priority);
    RuntimeOrder {
        suitability: Suitability {
            scope: runtime.scope,
            architecture_unstated: entry.is_none_or(|entry| entry.architecture.is_none()),
            size: size_fit(runtime.size, model),
            priority: Reverse(priority),
        },
        no_capacity: components.iter().any(|one| one.chosen().is_some_and(|best| !best.eligibility.enough)),
        newest: Reverse(runtime.created.as_deref()),
        stranger: !model.is_some_and(|model| naming::is_namesake(&runtime.name, &model.name)),
        name: &runtime.name,
    }
}

/// The first step of the order by which `loser` comes after `winner`.
#[must_use]
pub fn runtime_step(loser: &RuntimeOrder<'_>, winner: &RuntimeOrder<'_>) -> RuntimeStep {
    let (own, best) = (&loser.suitability, &winner.suitability);
    if loser <= winner {
        return RuntimeStep::Kept;
    }
    if own.scope != best.scope {
        return RuntimeStep::Scope;
    }
    if own.architecture_unstated != best.architecture_unstated {
        return RuntimeStep::ArchitectureUnstated;
    }
    if own.size != best.size {
        return RuntimeStep::Size { own: own.size, winner: best.size };
    }
    if own.priority != best.priority {
        return RuntimeStep::Priority { own: own.priority.0, winner: best.priority.0 };
    }
    if loser.no_capacity != winner.no_capacity {
        return RuntimeStep::NoFreeCapacity;
    }
    if loser.newest != winner.newest {
        return RuntimeStep::Older {
            own: loser.newest.0.map(str::to_owned),
            winner: winner.newest.0.map(str::to_owned),
        };
    }
    if loser.stranger != winner.stranger {
        return RuntimeStep::Stranger;
    }
    RuntimeStep::Name
}

fn size_fit(range: SizeRange, model: Option<&Model>) -> SizeFit {
    let Some(size) = model.and_then(|model| model.parameters) else { return SizeFit::Unknown };
    match (range.min, range.max) {
        (Some(min), Some(max)) => SizeFit::TwoSided(size.abs_diff(min).saturating_add(size.abs_diff(max))),
        (Some(bound), None) | (None, Some(bound)) => SizeFit::OneSided(size.abs_diff(bound)),
        (None, None) => SizeFit::Unbounded,
    }
}
