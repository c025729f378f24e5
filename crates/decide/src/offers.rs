//! What is on offer to one service, and what comes of all classes for one component of one runtime.
//!
//! A decision needs little of most runtimes: whether some class can carry them, and whether the best has room
//! ([`Offers::outlook`]). All classes are judged and ranked ([`Offers::whole`]) for the runtime that is chosen, and for the
//! others when somebody reads what came of them. A test holds the two against each other.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use crate::case::Case;
use crate::demand::{Capabilities, Component, ComponentDemand, Demand};
use crate::eligibility::Candidacy;
use crate::fit::{self, Stated};
use crate::fleet::{Fleet, Held};
use crate::ranking::{self, EarlyKeys, RankedClass};
use crate::reason::ClassRejection;
use crate::supply::{Format, Runtime, RuntimeComponent, Supply};

/// All classes for one component. Empty lists: the accelerator step did not run.
#[derive(Clone)]
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

    /// What the component's class would take from those that are decided after it.
    pub(crate) fn held(&self) -> Option<Held<'a>> {
        let chosen = self.chosen()?;
        let shape = chosen.eligibility.shape;
        let pods = shape.nodes.saturating_mul(self.replicas);
        Some(Held { class: &chosen.class.name, per_node: shape.per_node, pods })
    }
}

/// As much of a component's classes as a runtime's place depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// The accelerator step does not run.
    Unconsidered,
    /// Some class can carry it; whether the best one has free capacity.
    Able { room: bool },
    /// None can; the stage at which the nearest failed.
    Unable { nearest: u8 },
}

/// One component of a runtime whose `entry` serves the model.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) component: Component,
    pub(crate) runtime: &'a Runtime,
    pub(crate) entry: Option<&'a Format>,
}

/// Everything that one decision looks at. It holds what it needs, so that what was not looked at can be told later.
#[derive(Debug)]
pub(crate) struct Offers {
    pub(crate) demand: Demand,
    pub(crate) supply: Supply,
    /// The service's own engine.
    pub(crate) own: Arc<Runtime>,
    /// Places of the classes in order of their names.
    by_name: Vec<usize>,
    /// Resource names that stand for accelerators.
    resources: BTreeSet<String>,
    /// Bytes that the model's weights take.
    weights: Option<u64>,
    fleets: [(Component, Fleet); 2],
    /// Some component names a class.
    named: bool,
}

static NO_DEMAND: LazyLock<ComponentDemand> = LazyLock::new(ComponentDemand::default);
static NO_OFFER: LazyLock<RuntimeComponent> = LazyLock::new(RuntimeComponent::default);

impl Offers {
    pub(crate) fn new(demand: &Demand, supply: &Supply, own: Runtime) -> Self {
        let mut by_name: Vec<usize> = (0..supply.classes.len()).collect();
        by_name.sort_by_key(|place| supply.classes.get(*place).map(|class| &class.name));
        Self {
            by_name,
            demand: demand.clone(),
            supply: supply.clone(),
            own: Arc::new(own),
            resources: supply.accelerator_resources(),
            weights: demand.model.known().and_then(fit::weights),
            fleets: Component::ALL.map(|component| (component, Fleet::new(supply.classes.len()))),
            named: demand.components.values().any(|component| !component.selector.preferred.is_empty()),
        }
    }

    /// All classes for one part. `held` is taken by earlier ones.
    pub(crate) fn whole<'a>(&'a self, part: Part<'a>, held: &[Held<'_>]) -> ComponentOutcome<'a> {
        let case = self.case(part);
        let outcome = ComponentOutcome {
            component: part.component,
            replicas: case.replicas(),
            nodes: case.component.nodes.or(case.offer.nodes).unwrap_or(1),
            stated: fit::stated(&case, None),
            ranked: Vec::new(),
            rejected: Vec::new(),
            kept: 0,
            notes: ranking::Notes::default(),
            considered: false,
        };
        if self.considers(part.runtime) { self.with_classes(part.component, &case, held, outcome) } else { outcome }
    }

    /// What of [`Self::whole`] a runtime's place depends on, found as early as it can be.
    pub(crate) fn outlook(&self, part: Part<'_>, held: &[Held<'_>]) -> Outlook {
        if !self.considers(part.runtime) {
            return Outlook::Unconsidered;
        }
        let case = self.case(part);
        match ranking::early_keys(&case) {
            Some(keys) => self.first_able(part.component, &case, &keys, held),
            None => self.whole(part, held).outlook(),
        }
    }

    /// Among classes of equal early keys one with capacity comes first, so the first such decides, or the last without.
    fn first_able(&self, component: Component, case: &Case<'_>, keys: &EarlyKeys<'_>, held: &[Held<'_>]) -> Outlook {
        let mut able = None;
        let mut nearest = 0;
        for (key, index) in keys.in_order(self.supply.classes.len(), |name| self.place(name)) {
            if able.is_some_and(|able| able != key) {
                break;
            }
            let Some(candidacy) = self.candidacy(component, case, index, held) else { continue };
            match candidacy.judged() {
                Ok((fit, usable)) if ranking::has_capacity(&usable, fit, case.replicas()) => {
                    return Outlook::Able { room: true };
                }
                Ok(_) => able = Some(key),
                Err(refusal) => nearest = nearest.max(refusal.stage()),
            }
        }
        if able.is_some() { Outlook::Able { room: false } } else { Outlook::Unable { nearest } }
    }

    fn place(&self, class: &str) -> Option<usize> {
        let named = |place: &usize| self.supply.classes.get(*place).map_or("", |class| class.name.as_str());
        let found = self.by_name.binary_search_by(|place| named(place).cmp(class)).ok()?;
        self.by_name.get(found).copied()
    }

    /// The step runs if classes exist and runtime or service use any accelerator field. A service that names a class means
    /// it, whether there are classes or not.
    fn considers(&self, runtime: &Runtime) -> bool {
        let tuned = || {
            !runtime.configurations.is_empty()
                || runtime.components.values().any(|component| !component.configurations.is_empty())
                || runtime.formats.iter().any(|format| !format.configurations.is_empty())
        };
        let used = || self.demand.uses_accelerators || runtime.requirements.stated || tuned();
        self.supply.accelerator_aware && (self.named || !self.supply.classes.is_empty() && used())
    }

    fn case<'a>(&'a self, part: Part<'a>) -> Case<'a> {
        let Part { component, runtime, entry } = part;
        let need = self.demand.components.get(&component).unwrap_or(&NO_DEMAND);
        let offer = runtime.components.get(&component).unwrap_or(&NO_OFFER);
        let of_service = &need.selector.required;
        let required = &runtime.requirements.required;
        let alone = *of_service == Capabilities::default();
        Case {
            model: self.demand.model.known().filter(|_| !runtime.is_own()),
            weights: self.weights.filter(|_| !runtime.is_own()),
            component: need,
            requirements: &runtime.requirements,
            offer,
            configurations: runtime.tuning(entry, offer, need),
            need: if alone { Cow::Borrowed(required) } else { Cow::Owned(required.and(of_service)) },
            resources: &self.resources,
        }
    }

    fn candidacy<'a>(
        &'a self,
        component: Component,
        case: &'a Case<'a>,
        index: usize,
        held: &'a [Held<'a>],
    ) -> Option<Candidacy<'a>> {
        let (_, fleet) = self.fleets.iter().find(|(of, _)| *of == component)?;
        Some(Candidacy { case, class: self.supply.classes.get(index)?, index, fleet, held })
    }

    fn with_classes<'a>(
        &'a self,
        component: Component,
        case: &Case<'_>,
        held: &[Held<'_>],
        outcome: ComponentOutcome<'a>,
    ) -> ComponentOutcome<'a> {
        let (mut eligible, mut rejected) = (Vec::new(), Vec::new());
        for (index, class) in self.supply.classes.iter().map(AsRef::as_ref).enumerate() {
            let Some(candidacy) = self.candidacy(component, case, index, held) else { continue };
            match candidacy.judged() {
                Ok((fit, usable)) => eligible.push((class, fit, usable)),
                Err(refusal) => rejected.push((class.name.clone(), refusal.told(&candidacy))),
            }
        }
        let known: BTreeSet<&str> = self.supply.classes.iter().map(|class| class.name.as_str()).collect();
        let unknown: BTreeSet<&str> = named(case).filter(|name| !known.contains(name)).collect();
        rejected.extend(unknown.into_iter().map(|name| (name.to_owned(), ClassRejection::UnknownClass)));
        // What the service asks for by name is told first: a bounded record must not lose it behind the others' `NotPreferred`.
        let asked = |name: &String| case.component.selector.preferred.contains(name);
        rejected.sort_by_cached_key(|(name, why)| (!asked(name), Reverse(why.stage()), name.clone()));
        let (ranked, notes) = ranking::classes(case, outcome.replicas, eligible);
        ComponentOutcome { ranked, notes, rejected, considered: true, ..outcome }
    }
}

impl ComponentOutcome<'_> {
    /// The same as [`Offers::outlook`] says of it.
    pub(crate) fn outlook(&self) -> Outlook {
        match self.ranked.first() {
            _ if !self.considered => Outlook::Unconsidered,
            Some(best) => Outlook::Able { room: best.eligibility.enough },
            None => {
                let nearest = self.rejected.iter().map(|(_, rejection)| rejection.stage()).max();
                Outlook::Unable { nearest: nearest.unwrap_or(0) }
            }
        }
    }
}

/// Classes that service and runtime name.
fn named<'b>(case: &'b Case<'_>) -> impl Iterator<Item = &'b str> {
    let of_runtime = case.requirements.classes.iter().flatten();
    case.component.selector.preferred.iter().chain(of_runtime).map(String::as_str)
}
