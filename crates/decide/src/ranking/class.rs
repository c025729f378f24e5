//! Eligible classes of one component, best first.

use std::cmp::Reverse;

use super::{Key, compare, rounded, step};
use crate::case::Case;
use crate::decision::Eligibility;
use crate::demand::{Model, Ranking};
use crate::fit::{Fit, Stated};
use crate::outranked::ClassStep;
use crate::preference::{Preference, preference};
use crate::room::Usable;
use crate::strategy::{self, Contender, Notes, Score};
use crate::supply::Class;
use crate::variants::{self, TokenRange};

/// An eligible class of one component, ranked.
#[derive(Clone)]
pub struct RankedClass<'a> {
    pub class: &'a Class,
    pub eligibility: Eligibility,
    pub stated: Stated,
    /// Dollars per hour and replica, if the service states a threshold.
    threshold: Option<f64>,
    /// Request sizes that the runtime prefers the class for.
    pub request_tokens: Option<TokenRange>,
    /// Others are used together, each for requests of some sizes; this one would be used alone.
    alone: bool,
    position: usize,
    preference: i32,
    capacity: Capacity,
    /// Place in the runtime's list, where that counts.
    listed: usize,
    score: Score,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Capacity {
    Enough,
    Unknown,
    TooLittle,
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
    let scores = strategy::scores(case.component.selector.ranking, case.model, &contenders);
    let standings = eligible.into_iter().zip(scores.of);
    let mut ranked: Vec<RankedClass<'a>> =
        standings.map(|((class, fit, usable), score)| standing(case, replicas, class, fit, usable, score)).collect();
    sort(&mut ranked);
    by_request_size(&mut ranked);
    (ranked, scores.notes)
}

fn sort(ranked: &mut [RankedClass<'_>]) {
    let keys = keys();
    ranked.sort_by(|a, b| compare(&keys, a, b));
}

/// Classes that the runtime prefers for requests of differing sizes are used together, so they come before those that would
/// be used alone, unless the service itself asks for another one first.
fn by_request_size(ranked: &mut [RankedClass<'_>]) {
    let places = variants::differing(ranked.iter().map(|class| class.request_tokens));
    let asked_first = ranked.first().map(|first| first.position);
    if places.iter().any(|(place, _)| ranked.get(*place).map(|class| class.position) == asked_first) {
        ranked.iter_mut().for_each(|class| class.alone = class.request_tokens.is_none());
        sort(ranked);
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
    let selector = &case.component.selector;
    let capacity = capacity(&usable, fit, replicas);
    let hourly = Contender { class, shape: fit.shape }.hourly();
    let listed = case.requirements.classes.as_deref().map_or(usize::MAX, |names| position(names, &class.name));
    RankedClass {
        class,
        stated: fit.stated,
        threshold: selector.cost_threshold,
        request_tokens: variants::request_tokens(&case.requirements.preferences, &class.name, case.model),
        alone: false,
        position: position(&selector.preferred, &class.name),
        preference: preference(&case.requirements.preferences, &class.name, case.model),
        capacity,
        listed: if selector.ranking == Ranking::FirstAvailable { listed } else { 0 },
        eligibility: Eligibility {
            shape: fit.shape,
            ranking: selector.ranking.as_str(),
            score: rounded(score.total),
            cost: score.cost.map(rounded),
            performance: rounded(score.performance),
            hourly: hourly.map(rounded),
            replicas: replicas.max(1),
            free: usable.map(|nodes| (nodes.all.free(), nodes.all.total())),
            enough: capacity != Capacity::TooLittle,
        },
        score,
    }
}

/// Whether as many accelerators are free as the replicas take, as far as anybody knows.
#[must_use]
pub fn has_capacity(usable: &Usable, fit: Fit, replicas: u32) -> bool {
    capacity(usable, fit, replicas) != Capacity::TooLittle
}

fn capacity(usable: &Usable, fit: Fit, replicas: u32) -> Capacity {
    match usable {
        None => Capacity::Unknown,
        Some(nodes) if nodes.have_room(fit.shape.per_node, fit.shape.nodes, replicas.max(1)) => Capacity::Enough,
        Some(_) => Capacity::TooLittle,
    }
}

/// Keys by which classes are ranked before their capacity, where these are known of a class before anything else is: those
/// of the service's list and of the runtime's preferences. `None` where more than these comes before capacity.
#[must_use]
pub fn early_keys<'a>(case: &'a Case<'_>) -> Option<EarlyKeys<'a>> {
    let by_size = |one: &Preference| one.conditions.iter().any(|condition| condition.request_size.is_some());
    let preferences = &case.requirements.preferences;
    let priced = case.component.selector.cost_threshold.is_some();
    let known = !priced && !preferences.iter().any(by_size);
    known.then(|| EarlyKeys { preferred: &case.component.selector.preferred, preferences, model: case.model })
}

/// Position in the service's list, then the runtime's preference; the less, the earlier.
type EarlyKey = (usize, Reverse<i32>);

/// Of a class that neither names.
const UNNAMED: EarlyKey = (usize::MAX, Reverse(0));

/// See [`early_keys`].
pub struct EarlyKeys<'a> {
    preferred: &'a [String],
    preferences: &'a [Preference],
    model: Option<&'a Model>,
}

impl EarlyKeys<'_> {
    /// Places of so many classes with their keys, the earliest first. `find` tells the place of a name.
    pub fn in_order(
        &self,
        classes: usize,
        find: impl Fn(&str) -> Option<usize>,
    ) -> impl Iterator<Item = (EarlyKey, usize)> {
        let names = self.preferred.iter().chain(self.preferences.iter().map(|one| &one.class));
        let mut named: Vec<_> = names.filter_map(|name| Some((self.key(name), find(name)?))).collect();
        named.sort_unstable();
        named.dedup();
        let places: Vec<usize> = named.iter().map(|(_, place)| *place).collect();
        let others = (0..classes).filter(move |place| !places.contains(place)).map(|place| (UNNAMED, place));
        let later = named.split_off(named.partition_point(|(key, _)| *key < UNNAMED));
        named.into_iter().chain(others).chain(later)
    }

    fn key(&self, class: &str) -> EarlyKey {
        (position(self.preferred, class), Reverse(preference(self.preferences, class, self.model)))
    }
}

fn position(names: &[String], class: &str) -> usize {
    names.iter().position(|name| name == class).unwrap_or(usize::MAX)
}

impl RankedClass<'_> {
    /// No threshold is stated, or a replica costs no more.
    #[must_use]
    pub fn within_threshold(&self) -> bool {
        self.threshold.is_none_or(|threshold| self.eligibility.hourly.is_some_and(|price| price <= threshold))
    }

    /// What a replica costs, where that is more than the threshold: the cheapest of these comes first.
    fn beyond(&self) -> f64 {
        if self.within_threshold() { 0.0 } else { self.eligibility.hourly.unwrap_or(f64::INFINITY) }
    }

    fn beyond_step(&self, winner: &Self) -> ClassStep {
        match self.eligibility.hourly.zip(winner.eligibility.hourly) {
            Some((own, winner)) => ClassStep::Price { own, winner },
            None => ClassStep::Unpriced,
        }
    }

    fn score_step(&self, winner: &Self) -> ClassStep {
        let (own, winner) = (rounded(self.score.total), rounded(winner.score.total));
        ClassStep::Score { ranking: self.eligibility.ranking, own, winner }
    }
}

/// The whole order. An annotation outranks the service's fields, so the threshold comes before the preferred classes.
fn keys<'a>() -> [Key<RankedClass<'a>, ClassStep>; 10] {
    [
        Key { order: |a, b| a.alone.cmp(&b.alone), told: |_, _| ClassStep::RequestSize },
        Key {
            order: |a, b| b.within_threshold().cmp(&a.within_threshold()),
            told: |own, _| ClassStep::CostThreshold { threshold: own.threshold.unwrap_or_default() },
        },
        Key { order: |a, b| a.beyond().total_cmp(&b.beyond()), told: RankedClass::beyond_step },
        Key {
            order: |a, b| a.position.cmp(&b.position),
            told: |own, best| ClassStep::Preferred {
                own: own.position.saturating_add(1),
                winner: best.position.saturating_add(1),
            },
        },
        Key {
            order: |a, b| b.preference.cmp(&a.preference),
            told: |own, best| ClassStep::Preference { own: own.preference, winner: best.preference },
        },
        Key {
            order: |a, b| a.capacity.cmp(&b.capacity),
            told: |own, _| ClassStep::Capacity { free: own.eligibility.free.map(|(free, _)| free) },
        },
        Key { order: |a, b| a.listed.cmp(&b.listed), told: |_, _| ClassStep::Listed },
        Key { order: |a, b| a.score.unpriced.cmp(&b.score.unpriced), told: |_, _| ClassStep::Unpriced },
        Key { order: |a, b| b.score.total.total_cmp(&a.score.total), told: RankedClass::score_step },
        Key { order: |a, b| a.class.name.cmp(&b.class.name), told: |_, _| ClassStep::Name },
    ]
}

/// The first key by which `loser` comes after `winner`; one that comes before is only out of use because another is kept.
#[must_use]
pub fn class_step<'a>(loser: &RankedClass<'a>, winner: &RankedClass<'a>) -> ClassStep {
    step(&keys(), loser, winner).unwrap_or(ClassStep::Kept)
}
