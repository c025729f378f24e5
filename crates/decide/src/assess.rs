//! One runtime against one demand: compatible, and with which classes?

use std::cmp::{Ordering, Reverse};
use std::rc::Rc;

use crate::compatibility;
use crate::demand::{Component, Demand};
use crate::fleet::Held;
use crate::naming;
use crate::offers::{ComponentOutcome, Offers};
use crate::ranking::{self, RuntimeOrder};
use crate::reason::Rejection;
use crate::supply::{Runtime, Supply};

/// A runtime with what came of it.
pub(crate) struct Assessed<'a> {
    pub(crate) runtime: &'a Runtime,
    /// The runtime carries the model's name.
    pub(crate) namesake: bool,
    pub(crate) outcome: Outcome<'a>,
}

pub(crate) enum Outcome<'a> {
    Viable { order: RuntimeOrder<'a>, components: Components<'a> },
    Rejected { rejection: Rejection, components: Components<'a> },
}

/// One per component in use, shared with the runtimes that ask for the same of classes.
pub(crate) type Components<'a> = Vec<Rc<ComponentOutcome<'a>>>;

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

    pub(crate) fn components(&self) -> &[Rc<ComponentOutcome<'a>>] {
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
        (Outcome::Viable { order: a, .. }, Outcome::Viable { order: b, .. }) => a.compare(b),
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
    offers: Offers<'a>,
}

impl<'a> Assessor<'a> {
    pub(crate) fn new(demand: &'a Demand, supply: &'a Supply) -> Self {
        Self { demand, offers: Offers::new(demand, supply) }
    }

    pub(crate) fn assess(&self, runtime: &'a Runtime) -> Assessed<'a> {
        let model = self.demand.model.known();
        let namesake = model.is_some_and(|model| naming::is_namesake(&runtime.name, &model.name));
        let assessed = |outcome| Assessed { runtime, namesake, outcome };
        let entry = match compatibility::compatible(self.demand, runtime) {
            Ok(entry) => entry,
            Err(rejection) => return assessed(Outcome::Rejected { rejection, components: Vec::new() }),
        };
        let mut components: Components<'a> = Vec::new();
        for component in Component::ALL.into_iter().filter(|component| in_use(self.demand, runtime, *component)) {
            let held: Vec<Held<'a>> = components.iter().filter_map(|one| one.held()).collect();
            components.push(self.offers.to(component, runtime, entry, held));
        }
        if let Some(rejection) = without_class(&components) {
            return assessed(Outcome::Rejected { rejection, components });
        }
        let lacks = |one: &Rc<ComponentOutcome<'_>>| one.chosen().is_some_and(|best| !best.eligibility.enough);
        let order = ranking::runtime(runtime, entry, model, components.iter().any(lacks));
        assessed(Outcome::Viable { order, components })
    }
}

/// The engine always; the decoder if the runtime or the service has one.
fn in_use(demand: &Demand, runtime: &Runtime, component: Component) -> bool {
    let asked = demand.components.get(&component).is_some_and(|need| need.stated);
    component == Component::Engine || asked || runtime.components.contains_key(&component)
}

fn without_class(components: &[Rc<ComponentOutcome<'_>>]) -> Option<Rejection> {
    let barren = components.iter().find(|one| one.considered && one.ranked.is_empty())?;
    let (component, classes) = (barren.component.as_str(), barren.rejected.clone());
    Some(Rejection::NoEligibleAccelerator { component, classes })
}
