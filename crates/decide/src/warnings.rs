//! What was done nonetheless, and that the owner should know.

use std::collections::BTreeMap;

use crate::assess::Assessed;
use crate::code;
use crate::demand::{ComponentDemand, Demand, ModelDemand};
use crate::merge::placement;
use crate::offers::ComponentOutcome;
use crate::ranking::RankedClass;
use crate::reason::Warning;
use crate::supply::{Runtime, RuntimeComponent, Supply};

/// All warnings of a feasible decision, each once.
pub(crate) fn all(demand: &Demand, supply: &Supply, assessed: &[Assessed<'_>], index: usize) -> Vec<Warning> {
    let Some(winner) = assessed.get(index) else { return demand.warnings.clone() };
    let components = winner.components();
    let mut all = demand.warnings.clone();
    all.extend(ambiguous(assessed, winner));
    all.extend(own_engine(demand, assessed, winner));
    all.extend(stale(assessed, winner));
    all.extend(unchecked(demand, winner));
    for component in components {
        all.extend(about(demand, supply, winner.runtime, component));
    }
    let skipped = components.iter().all(|component| !component.considered);
    if skipped && supply.accelerator_aware {
        let why = "no accelerator class was considered: neither the runtime nor the service uses an accelerator field, or no class exists";
        all.push(Warning::new(code::warning::ACCELERATOR_NOT_CONSIDERED, why));
    }
    let mut once: Vec<Warning> = Vec::new();
    for warning in all {
        if !once.contains(&warning) {
            once.push(warning);
        }
    }
    once
}

/// Two that tie up to and including priority: a choice that nobody made.
fn ambiguous<'a>(assessed: &[Assessed<'a>], winner: &Assessed<'a>) -> Option<Warning> {
    let order = winner.order()?;
    let equal = |one: &&Assessed<'_>| one.order().is_some_and(|other| other.suits_equally(order));
    let mut others = assessed.iter().filter(|one| !std::ptr::eq(*one, winner)).filter(equal);
    let other = others.next()?;
    let more = match others.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let message = format!(
        "{} and {}{more} fit equally well and have equal priority; give one a higher priority or name one in spec.runtime.name",
        winner.runtime.name, other.runtime.name
    );
    Some(Warning::new(code::warning::AMBIGUOUS_RUNTIMES, message))
}

/// The model found no runtime, but the service says itself how to run it.
fn own_engine(demand: &Demand, assessed: &[Assessed<'_>], winner: &Assessed<'_>) -> Option<Warning> {
    let model = demand.model.known().filter(|_| winner.runtime.is_own())?;
    let (nearest, count) = (assessed.iter().find(|one| !one.runtime.is_own()), assessed.len() - 1);
    let nearest = nearest.and_then(|one| Some(format!("; nearest: {} — {}", one.runtime.name, one.rejection()?)));
    let message = format!(
        "none of {count} runtimes serves {}{}; the service's own engine runs as it is",
        model.name,
        nearest.unwrap_or_default()
    );
    Some(Warning::new(code::outcome::NO_COMPATIBLE_RUNTIME, message))
}

/// A named runtime was taken at its word: nobody said what it is to serve.
fn unchecked(demand: &Demand, winner: &Assessed<'_>) -> Option<Warning> {
    let unstated = matches!(demand.model, ModelDemand::Unstated) && demand.runtime.is_some();
    let name = &winner.runtime.name;
    let message = format!("the service names no model: whether {name} serves it, and whether it fits, was not checked");
    unstated.then(|| Warning::new(code::warning::MODEL_UNSTATED, message))
}

/// The incumbent is kept although something else would be chosen now.
fn stale<'a>(assessed: &[Assessed<'a>], winner: &Assessed<'a>) -> Option<Warning> {
    let best = assessed.first()?;
    let accept = "`ostler redecide` accepts it";
    if !std::ptr::eq(best, winner) && best.order().is_some() {
        let message = format!("{} would be chosen now instead of {}; {accept}", best.runtime.name, winner.runtime.name);
        return Some(Warning::new(code::warning::DECISION_STALE, message));
    }
    let moved = winner.components().iter().find(|component| component.kept != 0)?;
    let (now, used) = (moved.ranked.first()?, moved.chosen()?);
    let message = format!("{} would be chosen now instead of {}; {accept}", now.class.name, used.class.name);
    Some(Warning::new(code::warning::DECISION_STALE, message))
}

fn about(demand: &Demand, supply: &Supply, runtime: &Runtime, outcome: &ComponentOutcome<'_>) -> Vec<Warning> {
    let mut all = Vec::new();
    all.extend(parallelism(outcome));
    let Some(chosen) = outcome.chosen() else { return all };
    let need = demand.components.get(&outcome.component);
    all.extend(size_unstated(demand, chosen));
    all.extend(capacity(outcome, chosen));
    all.extend(need.and_then(|need| beyond_threshold(need, chosen)));
    let default = (ComponentDemand::default(), RuntimeComponent::default());
    let offer = runtime.components.get(&outcome.component).unwrap_or(&default.1);
    let need = need.unwrap_or(&default.0);
    all.extend(another_resource(need, offer, supply, outcome, chosen));
    all.extend(left_out(outcome));
    all.extend(placement::merge(chosen.class, offer, need).warnings);
    all
}

/// Nobody can tell whether a model of unknown size fits, so the smallest number was taken.
fn size_unstated(demand: &Demand, chosen: &RankedClass<'_>) -> Option<Warning> {
    let model = demand.model.known().filter(|model| model.parameters.is_none())?;
    let message = format!(
        "model {} states no modelParameterSize: whether it fits {} was not checked",
        model.name, chosen.class.name
    );
    Some(Warning::new(code::warning::MODEL_SIZE_UNSTATED, message))
}

fn parallelism(outcome: &ComponentOutcome<'_>) -> Option<Warning> {
    let component = outcome.component.as_str();
    let (stated, nodes) = match outcome.chosen() {
        Some(chosen) => (chosen.stated, chosen.eligibility.shape.nodes),
        None => (outcome.stated, outcome.nodes),
    };
    let (parallelism, resources) = stated.mismatch(nodes)?;
    let taken = if outcome.chosen().is_some() { format!("; {parallelism} are requested") } else { String::new() };
    let message = format!(
        "{component}: flags or variables split the model over {parallelism} accelerators, resources ask for {resources}{taken}"
    );
    Some(Warning::new(code::warning::PARALLELISM_MISMATCH, message))
}

fn capacity(outcome: &ComponentOutcome<'_>, chosen: &RankedClass<'_>) -> Option<Warning> {
    let (class, eligibility) = (chosen.class, &chosen.eligibility);
    let Some((free, total)) = eligibility.free else {
        return Some(Warning::new(
            code::warning::AVAILABILITY_UNKNOWN,
            format!("nothing is known of the nodes of {}", class.name),
        ));
    };
    if eligibility.enough {
        return None;
    }
    let (component, shape) = (outcome.component.as_str(), eligibility.shape);
    let wanted = shape.accelerators().saturating_mul(outcome.replicas.max(1));
    let scattered = if free >= wanted { format!(", but not {} on one node", shape.per_node) } else { String::new() };
    let message = format!(
        "{component} needs {wanted} × {}, {free} of {total} are free where it may run{scattered}; it waits",
        class.name
    );
    Some(Warning::new(code::warning::NO_FREE_CAPACITY, message))
}

/// Every class's resource is one concept, so who writes another vendor's gets the class's: the owner of the service, or of
/// an image that may be for one vendor only, should know.
fn another_resource(
    need: &ComponentDemand,
    offer: &RuntimeComponent,
    supply: &Supply,
    outcome: &ComponentOutcome<'_>,
    chosen: &RankedClass<'_>,
) -> Option<Warning> {
    let (component, class) = (outcome.component.as_str(), chosen.class);
    let (own, per_node) = (class.resource_name()?, chosen.eligibility.shape.per_node);
    let accelerators = supply.accelerator_resources();
    let other = |stated: &BTreeMap<String, u32>| {
        let mut others = stated.iter().filter(|(name, count)| **count > 0 && *name != own);
        others.find(|(name, _)| accelerators.contains(*name)).map(|(name, count)| format!("{count} × {name}"))
    };
    let of_runtime = || other(&offer.resources).filter(|_| need.selector.preferred.is_empty());
    let (who, asked) = match other(&need.resources) {
        Some(asked) => ("the service", asked),
        None => ("the runtime", of_runtime()?),
    };
    let message = format!(
        "{component}: {who} asks for {asked}; {} is requested as {own}, {per_node} accelerators per Pod; to choose the vendor, name a class in spec.acceleratorSelector.preferredClasses",
        class.name
    );
    Some(Warning::new(code::warning::ACCELERATOR_RESOURCE_REPLACED, message))
}

fn beyond_threshold(need: &ComponentDemand, chosen: &RankedClass<'_>) -> Option<Warning> {
    let threshold = need.selector.cost_threshold.filter(|_| !chosen.within_threshold())?;
    let price = match chosen.eligibility.hourly {
        Some(price) => format!("costs ${price:.2}/h"),
        None => "states no price".to_owned(),
    };
    let message = format!("no class is within ${threshold}/h per replica; {} {price}", chosen.class.name);
    Some(Warning::new(code::warning::COST_THRESHOLD_EXCEEDED, message))
}

fn left_out(outcome: &ComponentOutcome<'_>) -> Vec<Warning> {
    let mut all = Vec::new();
    if outcome.ranked.len() < 2 {
        return all;
    }
    let component = outcome.component.as_str();
    if !outcome.notes.dropped.is_empty() {
        let terms = outcome.notes.dropped.join(", ");
        let message = format!("{component}: not every eligible class states its {terms}; left out for all");
        all.push(Warning::new(code::warning::SCORE_TERM_DROPPED, message));
    }
    if let Some((kind, others)) = outcome.notes.other_prices {
        let message = format!(
            "{component}: compared by {kind}; {others} eligible classes state another kind of price only and come after"
        );
        all.push(Warning::new(code::warning::PRICE_KINDS_DIFFER, message));
    }
    all
}
