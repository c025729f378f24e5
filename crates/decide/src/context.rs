//! Input of one decision, and the evaluation of all classes for one component of one runtime.
//!
//! For most runtimes a decision needs only whether some class is eligible and whether the best one has free capacity:
//! [`DecisionContext::feasibility`]. All classes are evaluated and ranked ([`DecisionContext::evaluate`]) for the selected
//! runtime, and for another runtime when its classes are read. A property test checks that both agree.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, OnceLock};

use crate::accelerator_request::AcceleratorRequest;
use crate::capacity::PodShape;
use crate::code;
use crate::component::Component;
use crate::decision::CurrentSelection;
use crate::demand::{Capabilities, ComponentDemand, Demand};
use crate::eligibility::{Candidate, is_bandwidth_low, is_memory_insufficient};
use crate::engine_memory::ModelMemory;
use crate::fit;
use crate::match_context::MatchContext;
use crate::node_labels::NodeLabels;
use crate::node_pool::{NodePool, Reservation};
use crate::ranking::{self, PreCapacityKeys, RankedClass};
use crate::reason::{ClassRejection, UnavailableAccelerators, class_stage};
use crate::scoring::ScoringNotes;
use crate::suggestion::nearest_name;
use crate::supply::{Class, Runtime, RuntimeComponent, Supply, SupportedFormat};
use crate::vendor;

/// All classes, evaluated for one component. Both lists are empty if classes were not considered.
#[derive(Clone)]
pub(crate) struct ComponentEvaluation<'a> {
    pub(crate) component: Component,
    pub(crate) replicas: u32,
    /// Nodes per replica if no class is selected.
    pub(crate) nodes: u32,
    /// Accelerators that the manifests request, regardless of the class.
    pub(crate) request: AcceleratorRequest,
    /// Eligible classes, best first.
    pub(crate) ranked: Vec<RankedClass<'a>>,
    /// Rejected classes: those that the service names, then those that passed the most checks.
    pub(crate) rejected: Vec<(String, ClassRejection)>,
    /// Index of the selected class in `ranked`: the best one, or the one of the current selection.
    pub(crate) selected: usize,
    /// Values that the scores did not use.
    pub(crate) notes: ScoringNotes,
    /// Whether classes were considered.
    pub(crate) classes_considered: bool,
}

/// Summary of a component's class evaluation, sufficient to rank the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feasibility {
    /// Classes are not considered.
    NotConsidered,
    /// At least one class is eligible; contains whether the best one has free capacity.
    Feasible { has_capacity: bool },
    /// No class is eligible; contains the latest stage that any class reached.
    Infeasible { furthest_stage: u8 },
}

/// One component of a runtime whose format entry `format` matches the model.
#[derive(Clone, Copy)]
pub(crate) struct ComponentTarget<'a> {
    pub(crate) component: Component,
    pub(crate) runtime: &'a Runtime,
    pub(crate) format: Option<&'a SupportedFormat>,
}

/// Input of one decision, shared with the parts of its record that are computed when they are read.
#[derive(Debug)]
pub(crate) struct DecisionContext {
    pub(crate) demand: Demand,
    pub(crate) supply: Supply,
    /// Pseudo-runtime of the engine that the service defines itself.
    pub(crate) custom_engine: Arc<Runtime>,
    /// Indices of the classes, sorted by name.
    classes_by_name: Vec<usize>,
    /// Names of accelerator resources.
    accelerator_resources: BTreeSet<String>,
    /// Vendors of the classes, by name.
    class_vendors: BTreeMap<String, String>,
    /// Vendors of the accelerators of the known nodes, computed on first access; empty if no node is known.
    node_vendors: OnceLock<BTreeSet<String>>,
    /// The most memory that a class has.
    most_memory: Option<u64>,
    /// The most bandwidth that a class has.
    most_bandwidth: Option<f64>,
    /// Units of the largest node by accelerator resource, computed on first access; `None` if the nodes are unknown.
    largest_nodes: OnceLock<Option<BTreeMap<String, u32>>>,
    /// Labels of the nodes of all classes, read on first access.
    node_labels: OnceLock<NodeLabels>,
    /// Memory that the model requires.
    model_memory: Option<ModelMemory>,
    node_pools: [(Component, NodePool); 2],
    /// Whether a component names a preferred class.
    names_class: bool,
    pub(crate) current: Option<CurrentSelection>,
}

static EMPTY_DEMAND: LazyLock<ComponentDemand> = LazyLock::new(ComponentDemand::default);

static EMPTY_RUNTIME_COMPONENT: LazyLock<RuntimeComponent> = LazyLock::new(RuntimeComponent::default);

// === impl ComponentEvaluation ===

impl<'a> ComponentEvaluation<'a> {
    pub(crate) fn selected_class(&self) -> Option<&RankedClass<'a>> {
        self.ranked.get(self.selected)
    }

    /// Returns the accelerators of the selected class that later components cannot use.
    pub(crate) fn reservation(&self) -> Option<Reservation<'a>> {
        let selected = self.selected_class()?;
        let shape = selected.eligibility.shape;
        let pods = shape.nodes.saturating_mul(self.replicas);
        let pod = PodShape { accelerators: shape.per_node, compute: selected.eligibility.compute };
        Some(Reservation { class: &selected.class.name, pod, pods })
    }
}

impl ComponentEvaluation<'_> {
    /// Returns the same feasibility as [`DecisionContext::feasibility`].
    pub(crate) fn feasibility(&self) -> Feasibility {
        match self.ranked.first() {
            _ if !self.classes_considered => Feasibility::NotConsidered,
            Some(best) => Feasibility::Feasible { has_capacity: best.eligibility.has_capacity },
            None => {
                let furthest_stage = self.rejected.iter().map(|(_, rejection)| rejection.stage()).max();
                Feasibility::Infeasible { furthest_stage: furthest_stage.unwrap_or(0) }
            }
        }
    }
}

// === impl DecisionContext ===

impl DecisionContext {
    pub(crate) fn new(
        demand: &Demand,
        supply: &Supply,
        custom_engine: Runtime,
        current: Option<&CurrentSelection>,
    ) -> Self {
        let mut classes_by_name: Vec<usize> = (0..supply.classes.len()).collect();
        classes_by_name.sort_by_key(|index| supply.classes.get(*index).map(|class| &class.name));
        Self {
            classes_by_name,
            demand: demand.clone(),
            supply: supply.clone(),
            custom_engine: Arc::new(custom_engine),
            accelerator_resources: supply.accelerator_resources(),
            class_vendors: supply
                .classes
                .iter()
                .filter_map(|class| Some((class.name.clone(), class.resource_vendor()?.to_owned())))
                .collect(),
            node_vendors: OnceLock::new(),
            most_memory: supply.classes.iter().filter_map(|class| class.memory).max(),
            most_bandwidth: supply.classes.iter().filter_map(|class| class.bandwidth).max_by(f64::total_cmp),
            largest_nodes: OnceLock::new(),
            node_labels: OnceLock::new(),
            model_memory: demand.model.resolved().and_then(ModelMemory::of),
            node_pools: Component::ALL.map(|component| (component, NodePool::new(supply.classes.len()))),
            names_class: demand.components.values().any(|component| !component.selector.preferred.is_empty()),
            current: current.cloned(),
        }
    }

    /// Whether the runtime is for accelerators of vendors that no known node has.
    pub(crate) fn is_for_other_vendors(&self, runtime: &Runtime) -> bool {
        let node_vendors = self.node_vendors.get_or_init(|| self.node_vendors());
        if node_vendors.is_empty() {
            return false;
        }
        let bound = runtime.components.get(&Component::Engine).map_or(&[][..], |engine| &engine.vendors);
        if !bound.is_empty() {
            return !bound.iter().any(|vendor| node_vendors.contains(*vendor));
        }
        let supported = runtime.requirements.supported_classes.iter().flatten();
        let mut vendors = supported.filter_map(|class| self.class_vendors.get(class)).peekable();
        vendors.peek().is_some() && !vendors.any(|vendor| node_vendors.contains(vendor))
    }

    /// Evaluates and ranks all classes for `target` after subtracting the `reservations` of earlier components.
    pub(crate) fn evaluate<'a>(
        &'a self,
        target: ComponentTarget<'a>,
        reservations: &[Reservation<'_>],
    ) -> ComponentEvaluation<'a> {
        let context = self.match_context(target);
        let evaluation = ComponentEvaluation {
            component: target.component,
            replicas: context.replicas(),
            nodes: context.demand.nodes.or(context.runtime.nodes).unwrap_or(1),
            request: fit::requested_accelerators(&context, None),
            ranked: Vec::new(),
            rejected: Vec::new(),
            selected: 0,
            notes: ScoringNotes::default(),
            classes_considered: false,
        };
        if self.considers_classes(target.runtime) {
            self.evaluate_classes(target.component, &context, reservations, evaluation)
        } else {
            evaluation
        }
    }

    /// Returns the same feasibility as [`Self::evaluate`], but evaluates as few classes as possible.
    pub(crate) fn feasibility(&self, target: ComponentTarget<'_>, reservations: &[Reservation<'_>]) -> Feasibility {
        let quick = self.quick_feasibility(target, reservations, 0);
        quick.unwrap_or_else(|| self.evaluate(target, reservations).feasibility())
    }

    /// Returns the feasibility of a component whichever classes `earlier` other components use, each of them one; `None` if it
    /// depends on these classes. The accelerators of earlier components are not free, but make no class ineligible.
    pub(crate) fn feasibility_beside(&self, target: ComponentTarget<'_>, earlier: usize) -> Option<Feasibility> {
        self.quick_feasibility(target, &[], earlier)
    }

    fn quick_feasibility(
        &self,
        target: ComponentTarget<'_>,
        reservations: &[Reservation<'_>],
        earlier: usize,
    ) -> Option<Feasibility> {
        if !self.considers_classes(target.runtime) {
            return Some(Feasibility::NotConsidered);
        }
        let context = self.match_context(target);
        if let Some(stage) = self.impassable_stage(&context) {
            return Some(self.infeasibility_before(stage, target.component, &context));
        }
        let keys = ranking::pre_capacity_keys(&context)?;
        self.first_feasible(target.component, &context, &keys, reservations, earlier)
    }

    /// Evaluates classes in pre-capacity order. Among equal keys, classes with free capacity rank first, so the search stops once
    /// more classes with capacity are found than `earlier` components use. `None` if some are found, but not as many.
    fn first_feasible(
        &self,
        component: Component,
        context: &MatchContext<'_>,
        keys: &PreCapacityKeys<'_>,
        reservations: &[Reservation<'_>],
        earlier: usize,
    ) -> Option<Feasibility> {
        let mut feasible_key = None;
        let (mut with_capacity, mut furthest_stage) = (0, 0);
        for (key, index) in keys.in_order(self.supply.classes.len(), |name| self.class_index(name)) {
            if feasible_key.is_some_and(|feasible| feasible != key) {
                break;
            }
            let Some(candidate) = self.candidate(component, context, index, reservations) else { continue };
            match candidate.evaluate() {
                Ok((fit, nodes)) => {
                    feasible_key = Some(key);
                    with_capacity += usize::from(ranking::has_capacity(&nodes, &fit, context.replicas()));
                    if with_capacity > earlier {
                        return Some(Feasibility::Feasible { has_capacity: true });
                    }
                }
                Err(failed) => furthest_stage = furthest_stage.max(failed.stage()),
            }
        }
        match (feasible_key, with_capacity) {
            (None, _) => Some(Feasibility::Infeasible { furthest_stage }),
            (Some(_), 0) => Some(Feasibility::Feasible { has_capacity: false }),
            (Some(_), _) => None,
        }
    }

    /// Whether the node selector of the runtime has a label that no node has. Stronger layers override its keys.
    fn excludes_all_nodes(&self, runtime: &RuntimeComponent, demand: &ComponentDemand) -> bool {
        let is_overridden =
            |key: &String| demand.node_selector.contains_key(key) || demand.selector.node_selector.contains_key(key);
        // The Pods of a role may have other node selectors.
        let is_by_role = runtime.roles.constrain_nodes() || demand.roles.constrain_nodes();
        !is_by_role
            && runtime.node_selector.iter().any(|(key, value)| {
                !is_overridden(key) && self.node_labels.get_or_init(|| self.read_node_labels()).excludes(key, value)
            })
    }

    /// Returns the labels of the nodes with the keys that node selectors of runtimes use.
    fn read_node_labels(&self) -> NodeLabels {
        let components = self.supply.runtimes.iter().flat_map(|runtime| runtime.components.values());
        let keys = components.flat_map(|component| component.node_selector.keys()).map(String::as_str);
        NodeLabels::new(&self.supply.classes, keys.collect())
    }

    /// Returns the stage of a check that no class passes, if that shows without evaluating the classes.
    fn impassable_stage(&self, context: &MatchContext<'_>) -> Option<u8> {
        let code = if is_memory_insufficient(&context.required, self.most_memory) {
            code::class::INSUFFICIENT_MEMORY
        } else if is_bandwidth_low(&context.required, self.most_bandwidth) {
            code::class::BANDWIDTH_TOO_LOW
        } else if context.excludes_all_nodes {
            code::class::NODE_SELECTOR_CONFLICT
        } else {
            return None;
        };
        Some(class_stage(code))
    }

    /// Returns the infeasibility of a component if no class passes the check at `last_stage`. The search stops at the first class that
    /// reaches it.
    fn infeasibility_before(&self, last_stage: u8, component: Component, context: &MatchContext<'_>) -> Feasibility {
        let mut furthest_stage = 0;
        for index in 0..self.supply.classes.len() {
            let failed =
                self.candidate(component, context, index, &[]).and_then(|candidate| candidate.evaluate().err());
            furthest_stage = furthest_stage.max(failed.map_or(0, |failed| failed.stage()));
            if furthest_stage >= last_stage {
                break;
            }
        }
        Feasibility::Infeasible { furthest_stage }
    }

    /// Returns the accelerators that Pods of a component request although no known node has as many. Classes are checked
    /// otherwise.
    pub(crate) fn unavailable_accelerators(&self, target: ComponentTarget<'_>) -> Option<UnavailableAccelerators> {
        // The Pods of a running service were scheduled, although a node has lost its accelerators since.
        if self.is_current(target.runtime) || self.considers_classes(target.runtime) || !self.supply.accelerator_aware {
            return None;
        }
        let nodes = self.largest_nodes.get_or_init(|| self.largest_nodes()).as_ref()?;
        let runtime = target.runtime.components.get(&target.component).unwrap_or(&EMPTY_RUNTIME_COMPONENT);
        let demand = self.demand.components.get(&target.component).unwrap_or(&EMPTY_DEMAND);
        let requested = runtime.resources.keys().chain(demand.resources.keys());
        let requested = requested.filter(|name| self.accelerator_resources.contains(*name));
        requested.into_iter().find_map(|name| {
            // Without a class, the quantity of the service replaces that of the runtime.
            let requested = *demand.resources.get(name).or(runtime.resources.get(name))?;
            let largest = nodes.get(name).copied().unwrap_or(0);
            let resource = name.clone();
            (largest < requested).then_some(UnavailableAccelerators { resource, requested, largest })
        })
    }

    /// Whether the service uses `runtime` at present.
    pub(crate) fn is_current(&self, runtime: &Runtime) -> bool {
        self.current.as_ref().is_some_and(|current| current.uses(runtime))
    }

    fn largest_nodes(&self) -> Option<BTreeMap<String, u32>> {
        let nodes = self.supply.nodes.as_ref()?;
        Some(self.accelerator_resources.iter().map(|name| (name.clone(), nodes.largest_node(name))).collect())
    }

    fn node_vendors(&self) -> BTreeSet<String> {
        match self.largest_nodes.get_or_init(|| self.largest_nodes()) {
            Some(units) => {
                let resources = units.iter().filter(|(_, units)| **units > 0).map(|(name, _)| name.as_str());
                resources.filter_map(vendor::of_resource).map(str::to_owned).collect()
            }
            None => {
                let has_nodes =
                    |class: &&Arc<Class>| class.availability.as_ref().is_some_and(|known| !known.nodes.is_empty());
                let classes = self.supply.classes.iter().filter(has_nodes);
                classes.filter_map(|class| class.resource_vendor().map(str::to_owned)).collect()
            }
        }
    }

    fn class_index(&self, name: &str) -> Option<usize> {
        let name_at = |index: &usize| self.supply.classes.get(*index).map_or("", |class| class.name.as_str());
        let position = self.classes_by_name.binary_search_by(|index| name_at(index).cmp(name)).ok()?;
        self.classes_by_name.get(position).copied()
    }

    /// Whether classes are considered for `runtime`: if classes exist and runtime or service use an accelerator field, or
    /// if the service names a class, even where none exists.
    fn considers_classes(&self, runtime: &Runtime) -> bool {
        let is_configured = || {
            !runtime.configurations.is_empty()
                || runtime.components.values().any(|component| !component.configurations.is_empty())
                || runtime.formats.iter().any(|format| !format.configurations.is_empty())
        };
        let uses_accelerators = || self.demand.uses_accelerators || runtime.requirements.declared || is_configured();
        self.supply.accelerator_aware && (self.names_class || !self.supply.classes.is_empty() && uses_accelerators())
    }

    fn match_context<'a>(&'a self, target: ComponentTarget<'a>) -> MatchContext<'a> {
        let ComponentTarget { component, runtime, format } = target;
        let demand = self.demand.components.get(&component).unwrap_or(&EMPTY_DEMAND);
        let runtime_component = runtime.components.get(&component).unwrap_or(&EMPTY_RUNTIME_COMPONENT);
        let service_capabilities = &demand.selector.required;
        let runtime_capabilities = &runtime.requirements.required;
        let runtime_only = *service_capabilities == Capabilities::default();
        MatchContext {
            model: self.demand.model.resolved().filter(|_| !runtime.is_custom_engine()),
            model_memory: self.model_memory.as_ref().filter(|_| !runtime.is_custom_engine()),
            demand,
            requirements: &runtime.requirements,
            runtime: runtime_component,
            configurations: runtime.configuration_layers(format, runtime_component, demand),
            required: if runtime_only {
                Cow::Borrowed(runtime_capabilities)
            } else {
                Cow::Owned(runtime_capabilities.combine(service_capabilities))
            },
            excludes_all_nodes: self.excludes_all_nodes(runtime_component, demand),
            accelerator_resources: &self.accelerator_resources,
            class_vendors: &self.class_vendors,
            current: self
                .current
                .as_ref()
                .filter(|current| current.uses(runtime))
                .and_then(|current| current.components.get(component.as_str())),
        }
    }

    fn candidate<'a>(
        &'a self,
        component: Component,
        context: &'a MatchContext<'a>,
        index: usize,
        reservations: &'a [Reservation<'a>],
    ) -> Option<Candidate<'a>> {
        let (_, node_pool) = self.node_pools.iter().find(|(of, _)| *of == component)?;
        Some(Candidate { context, class: self.supply.classes.get(index)?, index, node_pool, reservations })
    }

    fn evaluate_classes<'a>(
        &'a self,
        component: Component,
        context: &MatchContext<'_>,
        reservations: &[Reservation<'_>],
        evaluation: ComponentEvaluation<'a>,
    ) -> ComponentEvaluation<'a> {
        let (mut eligible, mut rejected) = (Vec::new(), Vec::new());
        for (index, class) in self.supply.classes.iter().map(AsRef::as_ref).enumerate() {
            let Some(candidate) = self.candidate(component, context, index, reservations) else { continue };
            match candidate.evaluate() {
                Ok((fit, nodes)) => eligible.push((class, fit, nodes)),
                Err(failed) => rejected.push((class.name.clone(), failed.into_rejection(&candidate))),
            }
        }
        let known_names: BTreeSet<&str> = self.supply.classes.iter().map(|class| class.name.as_str()).collect();
        let unknown_names: BTreeSet<&str> = named_classes(context).filter(|name| !known_names.contains(name)).collect();
        rejected.extend(unknown_names.into_iter().map(|name| {
            let suggestion = nearest_name(name, known_names.iter().copied()).map(str::to_owned);
            (name.to_owned(), ClassRejection::UnknownClass { suggestion })
        }));
        // Classes that the service names come first: a truncated record must not drop them in favor of `NotPreferred`.
        let is_preferred = |name: &String| context.demand.selector.preferred.contains(name);
        rejected
            .sort_by_cached_key(|(name, rejection)| (!is_preferred(name), Reverse(rejection.stage()), name.clone()));
        let (ranked, notes) = ranking::rank_classes(context, evaluation.replicas, eligible);
        ComponentEvaluation { ranked, notes, rejected, classes_considered: true, ..evaluation }
    }
}

/// Returns the classes that service and runtime name.
fn named_classes<'b>(context: &'b MatchContext<'_>) -> impl Iterator<Item = &'b str> {
    let runtime_classes = context.requirements.supported_classes.iter().flatten();
    context.demand.selector.preferred.iter().chain(runtime_classes).map(String::as_str)
}
