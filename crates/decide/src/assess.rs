//! One runtime against one demand: compatible, and with which classes?

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::compatibility;
use crate::demand::{Component, ComponentDemand, Demand};
use crate::eligibility::{self, Case};
use crate::fit::{self, Stated};
use crate::fleet::{Fleet, Held};
use crate::naming;
use crate::ranking::{self, RankedClass, RuntimeOrder};
use crate::reason::{ClassRejection, Rejection};
use crate::supply::{Class, Format, Runtime, RuntimeComponent, Supply};

/// A runtime with what came of it.
pub(crate) struct Assessed<'a> {
    pub(crate) runtime: &'a Runtime,
    /// The runtime carries the model's name.
    pub(crate) namesake: bool,
    pub(crate) outcome: Outcome<'a>,
}

pub(crate) enum Outcome<'a> {
    Viable { order: RuntimeOrder<'a>, components: Vec<ComponentOutcome<'a>> },
    Rejected { rejection: Rejection, components: Vec<ComponentOutcome<'a>> },
}

/// All classes for one component. Empty lists: the accelerator step did not run.
pub(crate) struct ComponentOutcome<'a> {
    pub(crate) component: Component,
    pub(crate) replicas: u32,
    /// Shape where no class is involved.
    pub(crate) nodes: u32,
    /// What is stated of accelerators where no class is involved.
    pub(crate) stated: Stated,
    pub(crate) ranked: Vec<RankedClass<'a>>,
    /// Those that the service names, then the nearest first.
    pub(crate) rejected: Vec<(String, ClassRejection)>,
    /// Index of the class in use: the best one, or the incumbent's.
    pub(crate) kept: usize,
    /// Terms of the score that were left out because a class lacks them.
    pub(crate) notes: ranking::Notes,
    /// The accelerator step ran.
    pub(crate) considered: bool,
}

impl<'a> ComponentOutcome<'a> {
    pub(crate) fn chosen(&self) -> Option<&RankedClass<'a>> {
        self.ranked.get(self.kept)
    }
}

impl<'a> Assessed<'a> {
    pub(crate) fn order(&self) -> Option<&RuntimeOrder<'a>> {
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

    pub(crate) fn components(&self) -> &[ComponentOutcome<'a>] {
        match &self.outcome {
            Outcome::Viable { components, .. } | Outcome::Rejected { components, .. } => components,
        }
    }
}

/// Viable ones by rank, then rejected ones: the furthest first, then the model's namesake, then by scope and name.
pub(crate) fn order(a: &Assessed<'_>, b: &Assessed<'_>) -> Ordering {
    let stage = |rejection: &Rejection| (Reverse(rejection.stage()), rejection.distance());
    let last = |one: &Assessed<'_>| (!one.namesake, one.runtime.scope);
    match (&a.outcome, &b.outcome) {
        (Outcome::Viable { order: a, .. }, Outcome::Viable { order: b, .. }) => a.cmp(b),
        (Outcome::Viable { .. }, _) => Ordering::Less,
        (_, Outcome::Viable { .. }) => Ordering::Greater,
        (Outcome::Rejected { rejection: x, .. }, Outcome::Rejected { rejection: y, .. }) => {
            stage(x).cmp(&stage(y)).then(last(a).cmp(&last(b))).then_with(|| a.runtime.name.cmp(&b.runtime.name))
        }
    }
}

/// What all runtimes of one decision are assessed with.
pub(crate) struct Assessor<'a> {
    demand: &'a Demand,
    supply: &'a Supply,
    resources: BTreeSet<String>,
    fleets: Vec<(Component, Fleet<'a>)>,
}

impl<'a> Assessor<'a> {
    pub(crate) fn new(demand: &'a Demand, supply: &'a Supply) -> Self {
        let fleets = Component::ALL.map(|component| (component, Fleet::new(supply, Vec::new())));
        Self { demand, supply, resources: supply.accelerator_resources(), fleets: fleets.into() }
    }

    pub(crate) fn assess(&self, runtime: &'a Runtime) -> Assessed<'a> {
        let namesake = self.demand.model.known().is_some_and(|model| naming::is_namesake(&runtime.name, &model.name));
        let entry = match compatibility::compatible(self.demand, runtime) {
            Ok(entry) => entry,
            Err(rejection) => {
                return Assessed {
                    runtime,
                    namesake,
                    outcome: Outcome::Rejected { rejection, components: Vec::new() },
                };
            }
        };
        let mut components: Vec<ComponentOutcome<'a>> = Vec::new();
        for component in in_use(self.demand, runtime) {
            let held = components.iter().filter_map(held).collect();
            components.push(self.component(component, runtime, entry, held));
        }
        let outcome = match without_class(&components) {
            Some(rejection) => Outcome::Rejected { rejection, components },
            None => {
                let order = ranking::runtime(runtime, entry, self.demand.model.known(), &components);
                Outcome::Viable { order, components }
            }
        };
        Assessed { runtime, namesake, outcome }
    }

    fn component(
        &self,
        component: Component,
        runtime: &'a Runtime,
        entry: Option<&Format>,
        held: Vec<Held<'a>>,
    ) -> ComponentOutcome<'a> {
        let need = self.demand.components.get(&component).unwrap_or(&NO_DEMAND);
        let offer = runtime.components.get(&component).unwrap_or(&NO_OFFER);
        let shared = self.fleets.iter().find(|(of, _)| *of == component && held.is_empty()).map(|(_, fleet)| fleet);
        let own;
        let fleet = match shared {
            Some(fleet) => fleet,
            None => {
                own = Fleet::new(self.supply, held);
                &own
            }
        };
        let case = Case {
            // A service that brings its own engine says itself what fits (Story 8).
            model: self.demand.model.known().filter(|_| !runtime.is_own()),
            component: need,
            runtime,
            offer,
            configurations: runtime.tuning(entry, offer, need),
            need: runtime.requirements.required.and(&need.selector.required),
            resources: &self.resources,
            fleet,
        };
        let mut outcome = ComponentOutcome {
            component,
            replicas: need.min_replicas.or(offer.min_replicas).unwrap_or(1),
            nodes: need.nodes.or(offer.nodes).unwrap_or(1),
            stated: fit::stated(&case, None),
            ranked: Vec::new(),
            rejected: Vec::new(),
            kept: 0,
            notes: ranking::Notes::default(),
            considered: considered(self.demand, runtime, self.supply),
        };
        if outcome.considered {
            classes(&case, self.supply, &mut outcome);
        }
        outcome
    }
}

static NO_DEMAND: LazyLock<ComponentDemand> = LazyLock::new(ComponentDemand::default);
static NO_OFFER: LazyLock<RuntimeComponent> = LazyLock::new(RuntimeComponent::default);

/// What the component's class would take from those that are decided after it.
fn held<'a>(outcome: &ComponentOutcome<'a>) -> Option<Held<'a>> {
    let chosen = outcome.chosen()?;
    let shape = chosen.eligibility.shape;
    let pods = shape.nodes.saturating_mul(outcome.replicas);
    Some(Held { class: &chosen.class.name, per_node: shape.per_node, pods })
}

/// The engine always; the decoder if the runtime or the service has one.
fn in_use(demand: &Demand, runtime: &Runtime) -> Vec<Component> {
    let stated = |component: &Component| {
        demand.components.get(component).is_some_and(|need| need.stated) || runtime.components.contains_key(component)
    };
    Component::ALL.into_iter().filter(|component| *component == Component::Engine || stated(component)).collect()
}

fn without_class(components: &[ComponentOutcome<'_>]) -> Option<Rejection> {
    let barren = components.iter().find(|one| one.considered && one.ranked.is_empty())?;
    Some(Rejection::NoEligibleAccelerator { component: barren.component.as_str(), classes: barren.rejected.clone() })
}

/// The step runs if classes exist and runtime or service use any accelerator field. A service that names a class means it,
/// whether there are classes or not.
fn considered(demand: &Demand, runtime: &Runtime, supply: &Supply) -> bool {
    let tuned = !runtime.configurations.is_empty()
        || runtime.components.values().any(|component| !component.configurations.is_empty())
        || runtime.formats.iter().any(|format| !format.configurations.is_empty());
    let used = demand.uses_accelerators || runtime.requirements.stated || tuned;
    let named = demand.components.values().any(|component| !component.selector.preferred.is_empty());
    supply.accelerator_aware && (named || used && !supply.classes.is_empty())
}

fn classes<'a>(case: &Case<'_>, supply: &'a Supply, outcome: &mut ComponentOutcome<'a>) {
    let mut eligible = Vec::new();
    for (index, class) in supply.classes.iter().enumerate() {
        let class: &Class = class;
        match eligibility::eligible(case, index, class) {
            Ok((fit, usable)) => eligible.push((class, fit, usable)),
            Err(rejection) => outcome.rejected.push((class.name.clone(), rejection)),
        }
    }
    let known: BTreeSet<&str> = supply.classes.iter().map(|class| class.name.as_str()).collect();
    let unknown: BTreeSet<&str> = named(case.component, case.runtime).filter(|name| !known.contains(name)).collect();
    outcome.rejected.extend(unknown.into_iter().map(|name| (name.to_owned(), ClassRejection::UnknownClass)));
    // What the service asks for by name is told first: a bounded record must not lose it behind the others' `NotPreferred`.
    let asked = |name: &String| case.component.selector.preferred.contains(name);
    outcome.rejected.sort_by_cached_key(|(name, why)| (!asked(name), Reverse(why.stage()), name.clone()));
    let (ranked, notes) = ranking::classes(case, outcome.replicas, eligible);
    outcome.ranked = ranked;
    outcome.notes = notes;
}

fn named<'b>(component: &'b ComponentDemand, runtime: &'b Runtime) -> impl Iterator<Item = &'b str> {
    let of_runtime = runtime.requirements.classes.iter().flatten();
    let selector = &component.selector;
    selector.preferred.iter().chain(of_runtime).map(String::as_str)
}
