//! Assessment of one runtime: whether it is compatible with the service, and with which classes it can run.

use std::cell::OnceCell;
use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use crate::compatibility;
use crate::component::Component;
use crate::context::{ComponentEvaluation, ComponentTarget, DecisionContext, Feasibility};
use crate::demand::{Demand, Model};
use crate::lazy_list::LazyList;
use crate::naming;
use crate::node_pool::Reservation;
use crate::ranking::{self, RuntimeOrder};
use crate::reason::{ClassRejection, RuntimeRejection};
use crate::supply::{Runtime, SupportedFormat};

/// A runtime with its outcome.
pub(crate) struct RuntimeAssessment<'a> {
    pub(crate) runtime: &'a Arc<Runtime>,
    /// Whether the runtime's name contains the model's name.
    is_namesake: bool,
    pub(crate) outcome: AssessmentOutcome<'a>,
    pub(crate) context: &'a Arc<DecisionContext>,
    /// Initialized on first access, or when the current selection is retained.
    pub(crate) components: OnceCell<ComponentEvaluations<'a>>,
}

/// Whether a runtime can serve.
pub(crate) enum AssessmentOutcome<'a> {
    /// The runtime can serve and is ranked by these keys.
    Viable(RuntimeOrder<'a>),
    /// The runtime cannot serve; the progress orders rejected runtimes.
    Rejected(Progress, RuntimeRejection),
}

/// Which runtimes to assess.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Those that decide which one is selected: from the best suited ones to the first that are viable, and those that suit as well
    /// as the current one. All of them if none is viable.
    Selection,
    /// All of them.
    All,
}

/// A runtime that is compatible with the model, before its classes are checked.
#[derive(Clone, Copy)]
struct CompatibleRuntime<'a> {
    runtime: &'a Arc<Runtime>,
    /// The format entry that matches the model.
    format: Option<&'a SupportedFormat>,
    /// The rank keys, without the capacity of the classes.
    order: RuntimeOrder<'a>,
}

/// How close a rejected runtime came to being compatible; the smallest value is the closest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Progress {
    /// The check that failed, the latest first, whether no node has accelerators of the runtime's vendor, and the number of further
    /// checks.
    stage: (Reverse<u8>, bool, u64),
    /// Whether the runtime supports the architecture of the model.
    architecture: ArchitectureMatch,
    /// Words that the names of runtime and model have in common, the most first.
    common_words: Reverse<usize>,
    /// Distance from passing the failed check.
    distance: u64,
}

/// Whether the format entries of a runtime set the architecture of a model, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ArchitectureMatch {
    /// An entry sets it.
    Same,
    /// An entry accepts any architecture, or the model sets none.
    Any,
    /// All entries set other ones.
    Other,
}

/// One evaluation per component in use.
pub(crate) type ComponentEvaluations<'a> = Vec<ComponentEvaluation<'a>>;

// === impl RuntimeAssessment ===

impl<'a> RuntimeAssessment<'a> {
    fn new(context: &'a Arc<DecisionContext>, runtime: &'a Arc<Runtime>, outcome: AssessmentOutcome<'a>) -> Self {
        let is_namesake = is_namesake(&context.demand, runtime);
        Self { runtime, is_namesake, outcome, context, components: OnceCell::new() }
    }

    pub(crate) fn order(&self) -> Option<&RuntimeOrder<'a>> {
        match &self.outcome {
            AssessmentOutcome::Viable(order) => Some(order),
            AssessmentOutcome::Rejected(..) => None,
        }
    }

    pub(crate) fn rejection(&self) -> Option<&RuntimeRejection> {
        match &self.outcome {
            AssessmentOutcome::Viable(_) => None,
            AssessmentOutcome::Rejected(_, rejection) => Some(rejection),
        }
    }

    /// Returns the evaluation of every component in use; empty if the runtime is not compatible.
    pub(crate) fn component_evaluations(&self) -> &[ComponentEvaluation<'a>] {
        self.components.get_or_init(|| evaluate_components(self.context, self.runtime))
    }

    /// Replaces the evaluations of the components, for example to select the classes of the current selection.
    pub(crate) fn set_components(&mut self, components: ComponentEvaluations<'a>) {
        self.components = components.into();
    }
}

// === impl CompatibleRuntime ===

impl<'a> CompatibleRuntime<'a> {
    fn new(context: &'a DecisionContext, runtime: &'a Arc<Runtime>, format: Option<&'a SupportedFormat>) -> Self {
        let is_namesake = is_namesake(&context.demand, runtime);
        Self { runtime, format, order: ranking::runtime_order(runtime, format, &context.demand, is_namesake) }
    }

    fn assess(&self, context: &'a Arc<DecisionContext>) -> RuntimeAssessment<'a> {
        RuntimeAssessment::new(context, self.runtime, assess_classes(context, self))
    }
}

fn is_namesake(demand: &Demand, runtime: &Runtime) -> bool {
    demand.model.resolved().is_some_and(|model| naming::is_namesake(&runtime.name, &model.name))
}

// === impl AssessmentOutcome ===

impl AssessmentOutcome<'_> {
    fn rejected(context: &DecisionContext, runtime: &Runtime, rejection: RuntimeRejection) -> Self {
        let model = context.demand.model.resolved();
        let is_for_other_vendors = context.is_for_other_vendors(runtime);
        let progress = Progress {
            stage: (Reverse(rejection.stage()), is_for_other_vendors, rejection.remaining_checks()),
            architecture: architecture_match(runtime, model),
            common_words: Reverse(model.map_or(0, |model| naming::common_words(&runtime.name, &model.name))),
            distance: rejection.distance(),
        };
        Self::Rejected(progress, rejection)
    }
}

fn architecture_match(runtime: &Runtime, model: Option<&Model>) -> ArchitectureMatch {
    let Some(architecture) = model.and_then(|model| model.architecture.as_ref()) else { return ArchitectureMatch::Any };
    let entries = runtime.formats.iter().map(|format| match &format.architecture {
        Some(supported) if supported == architecture => ArchitectureMatch::Same,
        Some(_) => ArchitectureMatch::Other,
        None => ArchitectureMatch::Any,
    });
    entries.min().unwrap_or(ArchitectureMatch::Other)
}

/// Orders viable runtimes by rank, then rejected ones: the closest to compatible first, then the model's namesake, then by
/// scope and name.
pub(crate) fn compare(a: &RuntimeAssessment<'_>, b: &RuntimeAssessment<'_>) -> Ordering {
    let tie_breaks = |assessment: &RuntimeAssessment<'_>| (!assessment.is_namesake, assessment.runtime.scope);
    match (&a.outcome, &b.outcome) {
        (AssessmentOutcome::Viable(a), AssessmentOutcome::Viable(b)) => a.compare(b),
        (AssessmentOutcome::Viable(_), _) => Ordering::Less,
        (_, AssessmentOutcome::Viable(_)) => Ordering::Greater,
        (AssessmentOutcome::Rejected(x, _), AssessmentOutcome::Rejected(y, _)) => {
            x.cmp(y).then(tie_breaks(a).cmp(&tie_breaks(b))).then_with(|| a.runtime.name.cmp(&b.runtime.name))
        }
    }
}

/// Assesses `runtimes` and sorts them.
pub(crate) fn assess<'a>(
    context: &'a Arc<DecisionContext>,
    runtimes: &[&'a Arc<Runtime>],
    extent: Extent,
) -> Vec<RuntimeAssessment<'a>> {
    let (mut compatible, mut incompatible) = (Vec::new(), Vec::new());
    for runtime in runtimes.iter().copied() {
        match compatibility::check_compatibility(&context.demand, runtime) {
            Ok(format) => compatible.push(CompatibleRuntime::new(context, runtime, format)),
            Err(rejection) => incompatible.push((runtime, rejection)),
        }
    }
    compatible.sort_by(|a, b| a.order.compare_suitability(&b.order));
    let mut assessments = Vec::new();
    let mut is_viable_found = false;
    for group in compatible.chunk_by(|a, b| a.order.suits_equally(&b.order)) {
        if extent == Extent::All || !is_viable_found || group.iter().any(|member| context.is_current(member.runtime)) {
            let assessed = group.iter().map(|member| member.assess(context));
            assessments.extend(assessed.inspect(|assessment| is_viable_found |= assessment.order().is_some()));
        }
    }
    if extent == Extent::All || !is_viable_found {
        let assess = |(runtime, rejection): (&'a Arc<Runtime>, RuntimeRejection)| {
            let outcome = AssessmentOutcome::rejected(context, runtime, rejection);
            RuntimeAssessment::new(context, runtime, outcome)
        };
        assessments.extend(incompatible.into_iter().map(assess));
    }
    assessments.sort_by(compare);
    assessments
}

/// Checks the classes of a compatible runtime. The accelerators that earlier components reserve limit the capacity for later ones. If
/// it matters which class they reserve, they are evaluated completely.
fn assess_classes<'a>(context: &'a Arc<DecisionContext>, compatible: &CompatibleRuntime<'a>) -> AssessmentOutcome<'a> {
    let CompatibleRuntime { runtime, format, order } = *compatible;
    let mut feasibilities = Vec::new();
    for target in component_targets(&context.demand, runtime, format) {
        if let Some(accelerators) = context.unavailable_accelerators(target) {
            let component = target.component.as_str();
            let rejection = RuntimeRejection::AcceleratorUnavailable { component, accelerators };
            return AssessmentOutcome::rejected(context, runtime, rejection);
        }
        let feasibility = context.feasibility_beside(target, feasibilities.len()).unwrap_or_else(|| {
            let earlier = component_targets(&context.demand, runtime, format)
                .take_while(|earlier| earlier.component != target.component);
            context.feasibility(target, &reservations(&evaluate_targets(context, earlier)))
        });
        feasibilities.push((target.component, feasibility));
    }
    for (component, feasibility) in &feasibilities {
        if let Feasibility::Infeasible { furthest_stage } = feasibility {
            let rejection = no_eligible_class(context, runtime, *component, *furthest_stage);
            return AssessmentOutcome::rejected(context, runtime, rejection);
        }
    }
    let has_capacity =
        feasibilities.iter().all(|(_, feasibility)| *feasibility != Feasibility::Feasible { has_capacity: false });
    AssessmentOutcome::Viable(order.with_capacity(has_capacity))
}

fn no_eligible_class(
    context: &Arc<DecisionContext>,
    runtime: &Arc<Runtime>,
    component: Component,
    furthest_stage: u8,
) -> RuntimeRejection {
    let (context, runtime) = (Arc::clone(context), Arc::clone(runtime));
    let classes = move || -> Vec<(String, ClassRejection)> {
        let evaluations = evaluate_components(&context, &runtime).into_iter();
        evaluations
            .filter(|evaluation| evaluation.component == component)
            .flat_map(|evaluation| evaluation.rejected)
            .collect()
    };
    RuntimeRejection::NoEligibleAccelerator {
        component: component.as_str(),
        furthest_stage,
        classes: LazyList::new(classes),
    }
}

/// Evaluates every component in use, in order; returns nothing if the runtime is not compatible.
pub(crate) fn evaluate_components<'a>(context: &'a DecisionContext, runtime: &'a Runtime) -> ComponentEvaluations<'a> {
    let Ok(format) = compatibility::check_compatibility(&context.demand, runtime) else { return Vec::new() };
    evaluate_targets(context, component_targets(&context.demand, runtime, format))
}

fn evaluate_targets<'a>(
    context: &'a DecisionContext,
    targets: impl Iterator<Item = ComponentTarget<'a>>,
) -> ComponentEvaluations<'a> {
    let mut evaluations: ComponentEvaluations<'a> = Vec::new();
    for target in targets {
        evaluations.push(context.evaluate(target, &reservations(&evaluations)));
    }
    evaluations
}

/// Returns the accelerators that the components reserve.
fn reservations<'a>(evaluations: &[ComponentEvaluation<'a>]) -> Vec<Reservation<'a>> {
    evaluations.iter().filter_map(ComponentEvaluation::reservation).collect()
}

/// Returns the engine, and the decoder if the runtime or the service has one.
fn component_targets<'a>(
    demand: &'a Demand,
    runtime: &'a Runtime,
    format: Option<&'a SupportedFormat>,
) -> impl Iterator<Item = ComponentTarget<'a>> {
    let is_in_use = move |component: &Component| {
        let declared = demand.components.get(component).is_some_and(|component| component.declared);
        *component == Component::Engine || declared || runtime.components.contains_key(component)
    };
    Component::ALL.into_iter().filter(is_in_use).map(move |component| ComponentTarget { component, runtime, format })
}
