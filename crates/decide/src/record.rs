//! Builds the [`Decision`] from the assessments.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Code;

use crate::assessment::{self, AssessmentOutcome, RuntimeAssessment};
use crate::code;
use crate::component::Component;
use crate::context::ComponentEvaluation;
use crate::decision::{
    AcceleratorCandidate, AcceleratorCandidates, ClassEvaluation, ComponentDecision, Decision, RankBasis,
    RuntimeCandidate, RuntimeCandidates, RuntimeRef,
};
use crate::demand::Demand;
use crate::ranking::{self, RankedClass, RuntimeOrder};
use crate::reason::RuntimeRejection;
use crate::size::SizeRange;
use crate::supply::{Runtime, Supply};
use crate::variants::{self, TokenRange, Variant};
use crate::warnings;

/// Builds the decision that selects the runtime at `index`, without its candidates.
pub(crate) fn selected(
    demand: &Demand,
    supply: &Supply,
    assessments: &[RuntimeAssessment<'_>],
    index: usize,
    is_retained: bool,
) -> Decision {
    let Some(assessment) = assessments.get(index) else { return infeasible(demand, Vec::new()) };
    let components = assessment.component_evaluations();
    Decision {
        feasible: true,
        reason: if is_retained { code::outcome::KEPT } else { code::outcome::SELECTED }.into(),
        message: selection_message(assessment, components),
        message_without_classes: None,
        runtime: (!assessment.runtime.is_custom_engine()).then(|| runtime_ref(assessment.runtime)),
        components: components
            .iter()
            .map(|component| (component.component.as_str().to_owned(), component_decision(component)))
            .collect(),
        warnings: warnings::decision_warnings(demand, supply, assessments, index),
        candidates: RuntimeCandidates::default(),
    }
}

/// Builds the decision if no runtime can serve. The message names the runtime that passed the most checks.
pub(crate) fn infeasible(demand: &Demand, assessments: Vec<RuntimeAssessment<'_>>) -> Decision {
    let is_single =
        demand.runtime.is_some() || assessments.iter().all(|assessment| assessment.runtime.is_custom_engine());
    let closest = assessments.first().and_then(|first| Some((first.runtime, first.rejection()?)));
    let model =
        demand.model.resolved().map_or_else(|| "the service".to_owned(), |model| format!("model {}", model.name));
    let Some((runtime, rejection)) = closest else {
        let message =
            format!("No ServingRuntime exists in namespace {}, and no ClusterServingRuntime exists", demand.namespace);
        return rejected(demand, code::outcome::NO_COMPATIBLE_RUNTIME, message);
    };
    let reason = match rejection {
        rejection if is_single => rejection.code(),
        RuntimeRejection::NoEligibleAccelerator { .. } => code::runtime::NO_ELIGIBLE_ACCELERATOR,
        _ => code::outcome::NO_COMPATIBLE_RUNTIME,
    };
    let count = assessments.len();
    let withheld = withheld_runtime(&assessments).filter(|_| !is_single);
    let withheld = withheld
        .map(|name| format!("; runtime {name} matches, but its autoSelect is off: set spec.runtime.name to use it"));
    let message_with = |cause: &str| {
        if is_single {
            return format!("{} cannot serve {model}: {cause}", engine_name(runtime));
        }
        let closest = Some((runtime.name.as_str(), format!("{}: {cause}", rejection.code())));
        let message = warnings::no_runtime_can_serve(count, &model, closest);
        format!("{message}{}", withheld.as_deref().unwrap_or_default())
    };
    let message = message_with(&rejection.to_string());
    let message_without_classes = rejection.without_classes().map(|cause| message_with(&cause));
    Decision {
        message_without_classes,
        candidates: runtime_candidates(demand, assessments, None).into_iter().collect(),
        ..rejected(demand, reason, message)
    }
}

/// Returns the name of the closest runtime that only its `autoSelect` withholds, unless it is the closest of all, which the message
/// names anyway.
fn withheld_runtime<'a>(assessments: &[RuntimeAssessment<'a>]) -> Option<&'a str> {
    let is_withheld = |assessment: &&RuntimeAssessment<'_>| {
        matches!(assessment.rejection(), Some(RuntimeRejection::AutoSelectDisabled))
    };
    let withheld = assessments.iter().skip(1).find(is_withheld)?;
    assessments.first().filter(|first| !is_withheld(first))?;
    Some(&withheld.runtime.name)
}

/// Returns `Runtime NAME`, or a phrase for the engine that the service defines itself.
fn engine_name(runtime: &Runtime) -> String {
    if runtime.is_custom_engine() { "The service's own engine".to_owned() } else { format!("Runtime {}", runtime.name) }
}

pub(crate) fn model_not_found(demand: &Demand, name: &str, suggestion: Option<&str>) -> Decision {
    let namespace = &demand.namespace;
    let hint = suggestion.map_or_else(
        || "create it or correct spec.model.name".to_owned(),
        |suggestion| format!("did you mean {suggestion}?"),
    );
    let message = format!(
        "Model {name} not found: no BaseModel {namespace}/{name} and no ClusterBaseModel {name} exists; {hint}"
    );
    rejected(demand, code::outcome::MODEL_NOT_FOUND, message)
}

pub(crate) fn model_disabled(demand: &Demand, name: &str) -> Decision {
    rejected(demand, code::outcome::MODEL_DISABLED, format!("Model {name} is disabled; remove spec.disabled from it"))
}

pub(crate) fn no_engine_container(demand: &Demand) -> Decision {
    let message =
        "The service names neither a model nor a runtime, and spec.engine.runner sets no image; set spec.model.name";
    rejected(demand, code::outcome::NO_ENGINE_CONTAINER, message.to_owned())
}

pub(crate) fn runtime_not_found<'a>(
    demand: &Demand,
    name: &str,
    visible: impl Iterator<Item = &'a Runtime>,
) -> Decision {
    let suggestion = crate::suggestion::nearest_name(name, visible.map(|runtime| runtime.name.as_str()));
    let hint = suggestion.map(|suggestion| format!("; did you mean {suggestion}?")).unwrap_or_default();
    let namespace = &demand.namespace;
    let message = format!(
        "Runtime {name} not found: no ServingRuntime {namespace}/{name} and no ClusterServingRuntime {name} exists{hint}"
    );
    rejected(demand, code::outcome::RUNTIME_NOT_FOUND, message)
}

fn rejected(demand: &Demand, reason: Code, message: String) -> Decision {
    Decision {
        feasible: false,
        reason: reason.into(),
        message,
        message_without_classes: None,
        runtime: None,
        components: BTreeMap::new(),
        candidates: RuntimeCandidates::default(),
        warnings: demand.warnings.clone(),
    }
}

fn runtime_ref(runtime: &Runtime) -> RuntimeRef {
    RuntimeRef { name: runtime.name.clone(), scope: runtime.scope }
}

fn component_decision(evaluation: &ComponentEvaluation<'_>) -> ComponentDecision {
    let (nodes, replicas) = (evaluation.nodes, evaluation.replicas);
    let without_class = ComponentDecision { nodes, replicas, ..ComponentDecision::default() };
    let Some(selected) = evaluation.selected_class() else { return without_class };
    let request_ranges = evaluation.ranked.iter().map(|class| class.request_tokens);
    ComponentDecision {
        accelerator_class: Some(selected.class.name.clone()),
        resource: selected.class.resource_name().map(str::to_owned),
        accelerators_per_node: selected.eligibility.shape.per_node,
        nodes: selected.eligibility.shape.nodes,
        cost_per_hour: selected.eligibility.price_per_hour,
        variants: variants::variant_ranges(request_ranges, evaluation.selected)
            .iter()
            .filter_map(|range| variant(evaluation, range))
            .collect(),
        ..without_class
    }
}

fn variant(evaluation: &ComponentEvaluation<'_>, (index, request_tokens): &(usize, TokenRange)) -> Option<Variant> {
    let ranked = evaluation.ranked.get(*index)?;
    Some(Variant {
        accelerator_class: ranked.class.name.clone(),
        accelerators_per_node: ranked.eligibility.shape.per_node,
        nodes: ranked.eligibility.shape.nodes,
        replicas: evaluation.replicas,
        request_tokens: *request_tokens,
    })
}

/// Returns the candidates in rank order; `selected` is the index of the selected one.
pub(crate) fn runtime_candidates(
    demand: &Demand,
    assessments: Vec<RuntimeAssessment<'_>>,
    selected: Option<usize>,
) -> Vec<RuntimeCandidate> {
    let selected_order = selected.and_then(|index| assessments.get(index)?.order().copied());
    let candidate = |(position, selected, assessment): (usize, bool, RuntimeAssessment<'_>)| {
        let order = assessment.order();
        let outranked = order.zip(selected_order.as_ref()).filter(|_| !selected);
        let outranked = outranked.map(|(candidate, selected)| ranking::runtime_rank_reason(candidate, selected));
        let rank = order.map(|_| position + 1);
        let rank_basis = order.and_then(|order| rank_basis(demand, assessment.runtime, order));
        let (runtime, scope) = (assessment.runtime.name.clone(), assessment.runtime.scope);
        let (rejected, accelerators) = rejection_and_classes(assessment);
        RuntimeCandidate { runtime, scope, rank, selected, accelerators, rejected, rank_basis, outranked }
    };
    let runtimes = assessments.into_iter().enumerate().filter(|(_, assessment)| !assessment.runtime.is_custom_engine());
    runtimes
        .enumerate()
        .map(|(position, (index, assessment))| candidate((position, selected == Some(index), assessment)))
        .collect()
}

fn rank_basis(demand: &Demand, runtime: &Runtime, order: &RuntimeOrder<'_>) -> Option<RankBasis> {
    let parameters = demand.model.resolved().and_then(|model| model.parameters);
    let size = parameters.filter(|_| runtime.size != SizeRange::default()).map(|count| (count, runtime.size));
    let has_basis = size.is_some() || order.priority.is_some();
    has_basis.then_some(RankBasis::Ranked { size, priority: order.priority })
}

/// Returns the rejection of a runtime and its classes. Classes that were not evaluated yet are evaluated when they are read.
fn rejection_and_classes(assessment: RuntimeAssessment<'_>) -> (Option<RuntimeRejection>, AcceleratorCandidates) {
    let RuntimeAssessment { runtime, context, components, outcome, .. } = assessment;
    let rejected = match outcome {
        AssessmentOutcome::Rejected(_, rejection) => Some(rejection),
        AssessmentOutcome::Viable(_) => None,
    };
    let is_incompatible =
        rejected.as_ref().is_some_and(|rejection| !matches!(rejection, RuntimeRejection::NoEligibleAccelerator { .. }));
    if is_incompatible {
        return (rejected, AcceleratorCandidates::default());
    }
    let classes = match components.into_inner() {
        Some(components) => components.iter().flat_map(accelerator_candidates).collect(),
        None => {
            let (context, runtime) = (Arc::clone(context), Arc::clone(runtime));
            AcceleratorCandidates::new(move || {
                let evaluations = assessment::evaluate_components(&context, &runtime);
                evaluations.iter().flat_map(accelerator_candidates).collect()
            })
        }
    };
    (rejected, classes)
}

fn accelerator_candidates(evaluation: &ComponentEvaluation<'_>) -> Vec<AcceleratorCandidate> {
    let component = evaluation.component.as_str();
    let outranked = |index: usize, ranked: &RankedClass<'_>| {
        let selected = evaluation.selected_class().filter(|_| index != evaluation.selected)?;
        Some(ranking::class_rank_reason(ranked, selected))
    };
    let ranked = evaluation.ranked.iter().enumerate().map(|(index, ranked)| AcceleratorCandidate {
        component: component.to_owned(),
        class: ranked.class.name.clone(),
        rank: Some(index + 1),
        score: Some(ranked.eligibility.score),
        evaluation: ClassEvaluation::Eligible(ranked.eligibility.clone()),
        outranked: outranked(index, ranked),
    });
    let rejected = evaluation.rejected.iter().map(|(class, rejection)| AcceleratorCandidate {
        component: component.to_owned(),
        class: class.clone(),
        rank: None,
        score: None,
        evaluation: ClassEvaluation::Rejected(rejection.clone()),
        outranked: None,
    });
    ranked.chain(rejected).collect()
}

/// Formats a selection as `srt-x on 1 × nvidia-l40s (balanced 0.65, $0.88/h; next: nvidia-a100-40gb …)`.
fn selection_message(assessment: &RuntimeAssessment<'_>, components: &[ComponentEvaluation<'_>]) -> String {
    let name =
        if assessment.runtime.is_custom_engine() { "the service's own engine" } else { &assessment.runtime.name };
    let parts: Vec<String> = components.iter().filter_map(component_message).collect();
    if parts.is_empty() { name.to_owned() } else { format!("{name} on {}", parts.join("; ")) }
}

fn component_message(evaluation: &ComponentEvaluation<'_>) -> Option<String> {
    let selected = evaluation.selected_class()?;
    let prefix = if evaluation.component == Component::Engine { "" } else { "decoder " };
    let next = evaluation.ranked.iter().enumerate().find(|(index, _)| *index != evaluation.selected);
    let next =
        next.map(|(_, next)| format!("; next: {} {}", next.class.name, score_and_price(next))).unwrap_or_default();
    let count = selected.eligibility.shape.accelerators();
    Some(format!("{prefix}{count} × {} ({}{next})", selected.class.name, score_and_price(selected)))
}

fn score_and_price(ranked: &RankedClass<'_>) -> String {
    let eligibility = &ranked.eligibility;
    let price = eligibility.price_per_hour.map(|price| format!(", ${price:.2}/h")).unwrap_or_default();
    format!("{} {:.2}{price}", eligibility.ranking, eligibility.score)
}
