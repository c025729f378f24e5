//! One runtime against one demand: compatible, and with which classes?

use std::cell::OnceCell;
use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use crate::compatibility;
use crate::deferred::Deferred;
use crate::demand::{Component, Demand};
use crate::fleet::Held;
use crate::naming;
use crate::offers::{ComponentOutcome, Offers, Outlook, Part};
use crate::ranking::{self, RuntimeOrder};
use crate::reason::{ClassRejection, Rejection};
use crate::supply::{Format, Runtime};

/// A runtime with what came of it.
pub(crate) struct Assessed<'a> {
    pub(crate) runtime: &'a Arc<Runtime>,
    /// The runtime carries the model's name.
    pub(crate) namesake: bool,
    pub(crate) outcome: Outcome<'a>,
    pub(crate) offers: &'a Arc<Offers>,
    /// Once they were asked for, or a choice was kept among them.
    pub(crate) components: OnceCell<Components<'a>>,
}

pub(crate) enum Outcome<'a> {
    Viable(RuntimeOrder<'a>),
    Rejected(Rejection),
}

/// One per component in use.
pub(crate) type Components<'a> = Vec<ComponentOutcome<'a>>;

impl<'a> Assessed<'a> {
    pub(crate) fn order(&self) -> Option<&RuntimeOrder<'a>> {
        match &self.outcome {
            Outcome::Viable(order) => Some(order),
            Outcome::Rejected(_) => None,
        }
    }

    pub(crate) fn rejection(&self) -> Option<&Rejection> {
        match &self.outcome {
            Outcome::Viable(_) => None,
            Outcome::Rejected(rejection) => Some(rejection),
        }
    }

    /// All classes of every component in use; none of a runtime that is not compatible.
    pub(crate) fn components(&self) -> &[ComponentOutcome<'a>] {
        self.components.get_or_init(|| components(self.offers, self.runtime))
    }

    /// What was chosen among the classes is another one from now on.
    pub(crate) fn keep(&mut self, components: Components<'a>) {
        self.components = components.into();
    }
}

/// Viable ones by rank, then rejected ones: the furthest first, then the model's namesake, then by scope and name.
pub(crate) fn order(a: &Assessed<'_>, b: &Assessed<'_>) -> Ordering {
    let stage = |rejection: &Rejection| (Reverse(rejection.stage()), rejection.distance());
    let last = |one: &Assessed<'_>| (!one.namesake, one.runtime.scope);
    match (&a.outcome, &b.outcome) {
        (Outcome::Viable(a), Outcome::Viable(b)) => a.compare(b),
        (Outcome::Viable(_), _) => Ordering::Less,
        (_, Outcome::Viable(_)) => Ordering::Greater,
        (Outcome::Rejected(x), Outcome::Rejected(y)) => {
            stage(x).cmp(&stage(y)).then(last(a).cmp(&last(b))).then_with(|| a.runtime.name.cmp(&b.runtime.name))
        }
    }
}

pub(crate) fn assess<'a>(offers: &'a Arc<Offers>, runtime: &'a Arc<Runtime>) -> Assessed<'a> {
    let model = offers.demand.model.known();
    let namesake = model.is_some_and(|model| naming::is_namesake(&runtime.name, &model.name));
    let outcome = match compatibility::compatible(&offers.demand, runtime) {
        Ok(entry) => with_classes(offers, runtime, entry, namesake),
        Err(rejection) => Outcome::Rejected(rejection),
    };
    Assessed { runtime, namesake, outcome, offers, components: OnceCell::new() }
}

/// Only of the last component the outlook is enough: what earlier ones take is not there for later ones.
fn with_classes<'a>(
    offers: &'a Arc<Offers>,
    runtime: &'a Arc<Runtime>,
    entry: Option<&'a Format>,
    namesake: bool,
) -> Outcome<'a> {
    let (mut outlooks, mut held) = (Vec::new(), Vec::new());
    let mut parts = parts(&offers.demand, runtime, entry).peekable();
    while let Some(part) = parts.next() {
        let outlook = if parts.peek().is_some() {
            let whole = offers.whole(part, &held);
            held.extend(whole.held());
            whole.outlook()
        } else {
            offers.outlook(part, &held)
        };
        outlooks.push((part.component, outlook));
    }
    for (component, outlook) in &outlooks {
        if let Outlook::Unable { nearest } = outlook {
            return Outcome::Rejected(without_class(offers, runtime, *component, *nearest));
        }
    }
    let crowded = outlooks.iter().any(|(_, outlook)| *outlook == Outlook::Able { room: false });
    Outcome::Viable(ranking::runtime(runtime, entry, &offers.demand, namesake, crowded))
}

fn without_class(offers: &Arc<Offers>, runtime: &Arc<Runtime>, of: Component, nearest: u8) -> Rejection {
    let (offers, runtime) = (Arc::clone(offers), Arc::clone(runtime));
    let classes = move || -> Vec<(String, ClassRejection)> {
        let all = components(&offers, &runtime).into_iter();
        all.filter(|one| one.component == of).flat_map(|one| one.rejected).collect()
    };
    Rejection::NoEligibleAccelerator { component: of.as_str(), nearest, classes: Deferred::new(classes) }
}

/// All classes of every component in use; none of a runtime that is not compatible.
pub(crate) fn components<'a>(offers: &'a Offers, runtime: &'a Runtime) -> Components<'a> {
    let Ok(entry) = compatibility::compatible(&offers.demand, runtime) else { return Vec::new() };
    let mut components: Components<'a> = Vec::new();
    for part in parts(&offers.demand, runtime, entry) {
        let held: Vec<Held<'_>> = components.iter().filter_map(ComponentOutcome::held).collect();
        components.push(offers.whole(part, &held));
    }
    components
}

/// The engine always; the decoder if the runtime or the service has one.
fn parts<'a>(demand: &'a Demand, runtime: &'a Runtime, entry: Option<&'a Format>) -> impl Iterator<Item = Part<'a>> {
    let in_use = move |component: &Component| {
        let asked = demand.components.get(component).is_some_and(|need| need.stated);
        *component == Component::Engine || asked || runtime.components.contains_key(component)
    };
    Component::ALL.into_iter().filter(in_use).map(move |component| Part { component, runtime, entry })
}
