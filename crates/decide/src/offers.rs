//! All classes for one component of one runtime. Runtimes that ask for the same of classes share one answer, so that five
//! hundred runtimes cost what their few ways of asking cost.

use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use crate::decision::Classes;
use crate::demand::{Component, ComponentDemand, Demand};
use crate::eligibility::{self, Case};
use crate::fit::{self, Stated};
use crate::fleet::{Fleet, Held};
use crate::merge::Configuration;
use crate::ranking::{self, RankedClass};
use crate::reason::ClassRejection;
use crate::supply::{Format, Requirements, Runtime, RuntimeComponent, Supply};

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
    pub(crate) rejected: Arc<[(String, ClassRejection)]>,
    /// Index of the class in use: the best one, or the incumbent's.
    pub(crate) kept: usize,
    /// Terms of the score that were left out because a class lacks them.
    pub(crate) notes: ranking::Notes,
    /// The accelerator step ran.
    pub(crate) considered: bool,
    /// The same for the record, once it is asked for.
    pub(crate) told: OnceCell<Classes>,
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

/// All that classes are judged by: equal terms, equal answer.
#[derive(PartialEq)]
struct Terms<'a> {
    component: Component,
    /// A service that brings its own engine says itself what fits (Story 8).
    own_engine: bool,
    considered: bool,
    requirements: &'a Requirements,
    offer: &'a RuntimeComponent,
    tuning: [&'a [Configuration]; 3],
    held: Vec<Held<'a>>,
}

/// Numbers of terms that are quick to compare; only terms of one sketch are compared in full.
type Sketch = (Component, [Option<u64>; 2], Option<usize>, usize, Option<u32>, u32, [usize; 3]);

impl Terms<'_> {
    fn sketch(&self) -> Sketch {
        let requirements = self.requirements;
        (
            self.component,
            [requirements.required.memory, requirements.required.bandwidth.map(f64::to_bits)],
            requirements.classes.as_ref().map(Vec::len),
            requirements.preferences.len(),
            self.offer.parallelism,
            self.offer.resources.values().fold(0, |sum: u32, count| sum.wrapping_add(*count)),
            self.tuning.map(<[_]>::len),
        )
    }
}

type Known<'a> = Vec<(Terms<'a>, Rc<ComponentOutcome<'a>>)>;

/// The classes of one decision, as they are offered to runtimes.
pub(crate) struct Offers<'a> {
    demand: &'a Demand,
    supply: &'a Supply,
    resources: BTreeSet<String>,
    fleets: [(Component, Fleet<'a>); 2],
    /// Some component names a class.
    named: bool,
    known: RefCell<BTreeMap<Sketch, Known<'a>>>,
}

static NO_DEMAND: LazyLock<ComponentDemand> = LazyLock::new(ComponentDemand::default);
static NO_OFFER: LazyLock<RuntimeComponent> = LazyLock::new(RuntimeComponent::default);

impl<'a> Offers<'a> {
    pub(crate) fn new(demand: &'a Demand, supply: &'a Supply) -> Self {
        Self {
            demand,
            supply,
            resources: supply.accelerator_resources(),
            fleets: Component::ALL.map(|component| (component, Fleet::new(supply, Vec::new()))),
            named: demand.components.values().any(|component| !component.selector.preferred.is_empty()),
            known: RefCell::default(),
        }
    }

    /// All classes for `component` of `runtime`, whose `entry` serves the model. `held` is taken by earlier components.
    pub(crate) fn to(
        &self,
        component: Component,
        runtime: &'a Runtime,
        entry: Option<&'a Format>,
        held: Vec<Held<'a>>,
    ) -> Rc<ComponentOutcome<'a>> {
        let offer = runtime.components.get(&component).unwrap_or(&NO_OFFER);
        let of_entry = entry.map(|entry| entry.configurations.as_slice()).unwrap_or_default();
        let terms = Terms {
            component,
            own_engine: runtime.is_own(),
            considered: self.considered(runtime),
            requirements: &runtime.requirements,
            offer,
            tuning: [&runtime.configurations, of_entry, &offer.configurations],
            held,
        };
        let mut known = self.known.borrow_mut();
        let alike = known.entry(terms.sketch()).or_default();
        if let Some((_, outcome)) = alike.iter().find(|(other, _)| *other == terms) {
            return Rc::clone(outcome);
        }
        let outcome = Rc::new(self.judged(&terms));
        alike.push((terms, Rc::clone(&outcome)));
        outcome
    }

    /// The step runs if classes exist and runtime or service use any accelerator field. A service that names a class means
    /// it, whether there are classes or not.
    fn considered(&self, runtime: &Runtime) -> bool {
        let tuned = || {
            !runtime.configurations.is_empty()
                || runtime.components.values().any(|component| !component.configurations.is_empty())
                || runtime.formats.iter().any(|format| !format.configurations.is_empty())
        };
        let used = || self.demand.uses_accelerators || runtime.requirements.stated || tuned();
        self.supply.accelerator_aware && (self.named || !self.supply.classes.is_empty() && used())
    }

    fn judged(&self, terms: &Terms<'a>) -> ComponentOutcome<'a> {
        let need = self.demand.components.get(&terms.component).unwrap_or(&NO_DEMAND);
        let [runtime, entry, offer] = terms.tuning;
        let shared = self.fleets.iter().find(|(of, _)| *of == terms.component && terms.held.is_empty());
        let own;
        let fleet = match shared {
            Some((_, fleet)) => fleet,
            None => {
                own = Fleet::new(self.supply, terms.held.clone());
                &own
            }
        };
        let case = Case {
            model: self.demand.model.known().filter(|_| !terms.own_engine),
            component: need,
            requirements: terms.requirements,
            offer: terms.offer,
            configurations: [runtime, entry, offer, &need.configurations],
            need: terms.requirements.required.and(&need.selector.required),
            resources: &self.resources,
            fleet,
        };
        let outcome = unjudged(terms.component, &case);
        if terms.considered { with_classes(&case, self.supply, outcome) } else { outcome }
    }
}

fn unjudged<'a>(component: Component, case: &Case<'_>) -> ComponentOutcome<'a> {
    let (need, offer) = (case.component, case.offer);
    ComponentOutcome {
        component,
        replicas: need.min_replicas.or(offer.min_replicas).unwrap_or(1),
        nodes: need.nodes.or(offer.nodes).unwrap_or(1),
        stated: fit::stated(case, None),
        ranked: Vec::new(),
        rejected: Arc::default(),
        kept: 0,
        notes: ranking::Notes::default(),
        considered: false,
        told: OnceCell::new(),
    }
}

fn with_classes<'a>(case: &Case<'_>, supply: &'a Supply, outcome: ComponentOutcome<'a>) -> ComponentOutcome<'a> {
    let (mut eligible, mut rejected) = (Vec::new(), Vec::new());
    for (index, class) in supply.classes.iter().map(AsRef::as_ref).enumerate() {
        match eligibility::eligible(case, index, class) {
            Ok((fit, usable)) => eligible.push((class, fit, usable)),
            Err(rejection) => rejected.push((class.name.clone(), rejection)),
        }
    }
    let known: BTreeSet<&str> = supply.classes.iter().map(|class| class.name.as_str()).collect();
    let unknown: BTreeSet<&str> = named(case).filter(|name| !known.contains(name)).collect();
    rejected.extend(unknown.into_iter().map(|name| (name.to_owned(), ClassRejection::UnknownClass)));
    // What the service asks for by name is told first: a bounded record must not lose it behind the others' `NotPreferred`.
    let asked = |name: &String| case.component.selector.preferred.contains(name);
    rejected.sort_by_cached_key(|(name, why)| (!asked(name), Reverse(why.stage()), name.clone()));
    let (ranked, notes) = ranking::classes(case, outcome.replicas, eligible);
    ComponentOutcome { ranked, notes, rejected: rejected.into(), considered: true, ..outcome }
}

/// Classes that service and runtime name.
fn named<'b>(case: &'b Case<'_>) -> impl Iterator<Item = &'b str> {
    let of_runtime = case.requirements.classes.iter().flatten();
    case.component.selector.preferred.iter().chain(of_runtime).map(String::as_str)
}
