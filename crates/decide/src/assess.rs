//! One runtime against one demand: compatible, and with which classes?

use crate::compatibility;
use crate::demand::{Component, ComponentDemand, Demand};
use crate::eligibility::{self, Case};
use crate::ranking::{self, RankedClass, RuntimeOrder};
use crate::reason::{ClassRejection, Rejection};
use crate::supply::{Format, Runtime, RuntimeComponent, Supply};

/// A runtime with what came of it.
pub(crate) struct Assessed<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) outcome: Outcome<'a>,
}

pub(crate) enum Outcome<'a> {
    Viable { order: RuntimeOrder, components: Vec<ComponentOutcome<'a>> },
    Rejected { rejection: Rejection, components: Vec<ComponentOutcome<'a>> },
}

/// All classes for one component. Empty lists: the accelerator step did not run.
pub(crate) struct ComponentOutcome<'a> {
    pub(crate) component: Component,
    pub(crate) replicas: u32,
    /// Shape where no class is involved.
    pub(crate) nodes: u32,
    pub(crate) ranked: Vec<RankedClass<'a>>,
    pub(crate) rejected: Vec<(String, ClassRejection)>,
    /// Index of the class in use: the best one, or the incumbent's.
    pub(crate) kept: usize,
    /// Score terms left out because a class lacks them.
    pub(crate) dropped: Vec<&'static str>,
    /// The accelerator step ran.
    pub(crate) considered: bool,
}

impl<'a> ComponentOutcome<'a> {
    pub(crate) fn chosen(&self) -> Option<&RankedClass<'a>> {
        self.ranked.get(self.kept)
    }
}

impl Assessed<'_> {
    pub(crate) fn order(&self) -> Option<&RuntimeOrder> {
        match &self.outcome {
            Outcome::Viable { order, .. } => Some(order),
            Outcome::Rejected { .. } => None,
        }
    }

    pub(crate) fn rejection(&self) -> Option<&Rejection> {
        match &self.outcome {
            Outcome::Viable { .. } => None,
            Outcome::Rejected { rejection, .. } => Some(rejection),
        }
    }
}

/// Viable ones by rank, then rejected ones: the furthest first, then by scope and name.
pub(crate) fn order(a: &Assessed<'_>, b: &Assessed<'_>) -> std::cmp::Ordering {
    let stage = |one: &Assessed<'_>| {
        one.rejection().map(|rejection| (std::cmp::Reverse(rejection.stage()), rejection.distance()))
    };
    let last = |one: &Assessed<'_>| (one.runtime.scope, one.runtime.name.clone());
    match (a.order(), b.order()) {
        (Some(a), Some(b)) => a.cmp(b),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => stage(a).cmp(&stage(b)).then_with(|| last(a).cmp(&last(b))),
    }
}

pub(crate) fn assess<'a>(demand: &Demand, runtime: &'a Runtime, supply: &'a Supply) -> Assessed<'a> {
    let entry = match compatibility::compatible(demand, runtime) {
        Ok(entry) => entry,
        Err(rejection) => {
            return Assessed { runtime, outcome: Outcome::Rejected { rejection, components: Vec::new() } };
        }
    };
    let components: Vec<ComponentOutcome<'a>> = in_use(demand, runtime)
        .into_iter()
        .map(|component| assess_component(demand, component, runtime, entry, supply))
        .collect();
    let outcome = match without_class(&components) {
        Some(rejection) => Outcome::Rejected { rejection, components },
        None => {
            let no_capacity = components.iter().any(|one| one.chosen().is_some_and(|best| !best.eligibility.enough));
            Outcome::Viable { order: ranking::runtime(runtime, entry, demand.model.known(), no_capacity), components }
        }
    };
    Assessed { runtime, outcome }
}

/// The engine always; the decoder if the runtime or the service has one.
fn in_use(demand: &Demand, runtime: &Runtime) -> Vec<Component> {
    let stated =
        |component: &Component| demand.components.contains_key(component) || runtime.components.contains_key(component);
    Component::ALL.into_iter().filter(|component| *component == Component::Engine || stated(component)).collect()
}

fn without_class(components: &[ComponentOutcome<'_>]) -> Option<Rejection> {
    let barren = components.iter().find(|one| one.considered && one.ranked.is_empty())?;
    Some(Rejection::NoEligibleAccelerator { component: barren.component.as_str(), classes: barren.rejected.clone() })
}

fn assess_component<'a>(
    demand: &Demand,
    component: Component,
    runtime: &'a Runtime,
    entry: Option<&Format>,
    supply: &'a Supply,
) -> ComponentOutcome<'a> {
    let need = demand.components.get(&component).cloned().unwrap_or_default();
    let offer = offer(runtime, entry, component);
    let case = Case { model: demand.model.known(), component: &need, runtime, offer: &offer, supply };
    let replicas = need.min_replicas.or(offer.min_replicas).unwrap_or(1);
    let mut outcome = ComponentOutcome {
        component,
        replicas,
        nodes: need.nodes.or(offer.nodes).unwrap_or(1),
        ranked: Vec::new(),
        rejected: Vec::new(),
        kept: 0,
        dropped: Vec::new(),
        considered: considered(demand, runtime, supply),
    };
    if outcome.considered {
        classes(&case, supply, &mut outcome);
    }
    outcome
}

/// The step runs if classes exist and runtime or service use any accelerator field.
fn considered(demand: &Demand, runtime: &Runtime, supply: &Supply) -> bool {
    let tuned = !runtime.configurations.is_empty()
        || runtime.components.values().any(|component| !component.configurations.is_empty())
        || runtime.formats.iter().any(|format| !format.configurations.is_empty());
    supply.accelerator_aware
        && !supply.classes.is_empty()
        && (demand.uses_accelerators || runtime.requirements.stated || tuned)
}

/// The runtime's component with every layer of its tuning, weakest first.
fn offer(runtime: &Runtime, entry: Option<&Format>, component: Component) -> RuntimeComponent {
    let mut offer = runtime.components.get(&component).cloned().unwrap_or_default();
    let below =
        runtime.configurations.iter().chain(entry.map(|entry| entry.configurations.as_slice()).unwrap_or_default());
    offer.configurations = below.chain(&offer.configurations).cloned().collect();
    offer
}

fn classes<'a>(case: &Case<'_>, supply: &'a Supply, outcome: &mut ComponentOutcome<'a>) {
    let mut eligible = Vec::new();
    for class in &supply.classes {
        match eligibility::eligible(case, class) {
            Ok(shape) => eligible.push((class, shape)),
            Err(rejection) => outcome.rejected.push((class.name.clone(), rejection)),
        }
    }
    for name in named(case.component, case.runtime) {
        let unknown = supply.class(name).is_none() && outcome.rejected.iter().all(|(known, _)| known != name);
        if unknown {
            outcome.rejected.push((name.to_owned(), ClassRejection::UnknownClass));
        }
    }
    outcome.rejected.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (ranked, dropped) = ranking::classes(case, outcome.replicas, &eligible);
    outcome.ranked = ranked;
    outcome.dropped = dropped;
}

fn named<'b>(component: &'b ComponentDemand, runtime: &'b Runtime) -> impl Iterator<Item = &'b str> {
    let of_runtime = runtime.requirements.classes.iter().flatten();
    component.selector.preferred.iter().chain(of_runtime).map(String::as_str)
}
