//! Warnings of a feasible decision.

use std::collections::BTreeMap;

use crate::accelerator_request::RequestStrength;
use crate::assessment::RuntimeAssessment;
use crate::code;
use crate::component::Component;
use crate::context::ComponentEvaluation;
use crate::demand::{ComponentDemand, Demand, ModelReference};
use crate::merge::placement;
use crate::naming::{self, NamedSize};
use crate::quantization::NumberFormat;
use crate::ranking::RankedClass;
use crate::reason::{AbbreviatedList, Gigabytes, Warning, WarningSubject};
use crate::scoring::ScoringNotes;
use crate::size::{DisplayCount, SizeRange};
use crate::supply::{Runtime, RuntimeComponent, Supply};

/// Returns all warnings of a decision that selects the runtime at `index`, without duplicates.
pub(crate) fn decision_warnings(
    demand: &Demand,
    supply: &Supply,
    assessments: &[RuntimeAssessment<'_>],
    index: usize,
) -> Vec<Warning> {
    let Some(selected) = assessments.get(index) else { return demand.warnings.clone() };
    let components = selected.component_evaluations();
    let mut warnings = demand.warnings.clone();
    warnings.extend(ambiguous_runtimes(assessments, selected));
    warnings.extend(no_compatible_runtime(demand, assessments, selected));
    warnings.extend(stale_selection(assessments, selected));
    warnings.extend(model_unset(demand, selected));
    warnings.extend(named_for_another_size(demand, selected.runtime));
    for component in components {
        warnings.extend(component_warnings(demand, supply, selected.runtime, component));
    }
    let skips_classes = components.iter().all(|component| !component.classes_considered);
    if skips_classes && supply.accelerator_aware {
        let message = "No accelerator class was considered: neither the runtime nor the service sets an accelerator field, or no AcceleratorClass exists";
        warnings.push(Warning::new(code::warning::ACCELERATOR_NOT_CONSIDERED, message));
    }
    let mut unique: Vec<Warning> = Vec::new();
    for warning in warnings {
        if !unique.contains(&warning) {
            unique.push(warning);
        }
    }
    unique
}

/// Returns `None of 3 runtimes can serve SUBJECT; the closest is NAME: REASON`, or its singular form.
pub(crate) fn no_runtime_can_serve(count: usize, subject: &str, closest: Option<(&str, String)>) -> String {
    match (count, closest) {
        (1, Some((name, reason))) => format!("Runtime {name}, the only one, cannot serve {subject}: {reason}"),
        (1, None) => format!("The only runtime cannot serve {subject}"),
        (_, Some((name, reason))) => {
            format!("None of {count} runtimes can serve {subject}; the closest is {name}: {reason}")
        }
        (_, None) => format!("None of {count} runtimes can serve {subject}"),
    }
}

/// Warns if another runtime suits the model equally well and has the same priority.
fn ambiguous_runtimes<'a>(assessments: &[RuntimeAssessment<'a>], selected: &RuntimeAssessment<'a>) -> Option<Warning> {
    let order = selected.order()?;
    let suits_equally =
        |assessment: &&RuntimeAssessment<'_>| assessment.order().is_some_and(|other| other.suits_equally(order));
    let mut others = assessments.iter().filter(|assessment| !std::ptr::eq(*assessment, selected)).filter(suits_equally);
    let other = others.next()?;
    let remainder = match others.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let message = format!(
        "Runtimes {} and {}{remainder} match equally well and have the same priority; raise the priority of one of them or set spec.runtime.name",
        selected.runtime.name, other.runtime.name
    );
    Some(Warning::new(code::warning::AMBIGUOUS_RUNTIMES, message))
}

/// Warns if no runtime is compatible and the service runs its own engine.
fn no_compatible_runtime(
    demand: &Demand,
    assessments: &[RuntimeAssessment<'_>],
    selected: &RuntimeAssessment<'_>,
) -> Option<Warning> {
    let model = demand.model.resolved().filter(|_| selected.runtime.is_custom_engine())?;
    let closest = assessments.iter().find(|assessment| !assessment.runtime.is_custom_engine());
    let closest =
        closest.and_then(|assessment| Some((assessment.runtime.name.as_str(), assessment.rejection()?.to_string())));
    let message = no_runtime_can_serve(assessments.len() - 1, &format!("model {}", model.name), closest);
    let message = format!("{message}; running the service's own engine");
    Some(Warning::new(code::outcome::NO_COMPATIBLE_RUNTIME, message))
}

/// Warns if the service names a runtime but no model, so that the compatibility of the runtime is not checked.
fn model_unset(demand: &Demand, selected: &RuntimeAssessment<'_>) -> Option<Warning> {
    let is_unset = matches!(demand.model, ModelReference::Unspecified) && demand.runtime.is_some();
    let name = &selected.runtime.name;
    let message = format!("The service names no model; format, size and memory were not checked for runtime {name}");
    is_unset.then(|| Warning::new(code::warning::MODEL_UNSTATED, message))
}

/// Warns if the current selection is retained although another runtime or class ranks higher.
fn stale_selection<'a>(assessments: &[RuntimeAssessment<'a>], selected: &RuntimeAssessment<'a>) -> Option<Warning> {
    let best = assessments.first()?;
    let hint = "run `ostler redecide` to accept it";
    if !std::ptr::eq(best, selected) && best.order().is_some() {
        let (best, current) = (&best.runtime.name, &selected.runtime.name);
        let message =
            format!("The current selection is retained; runtime {best} would be selected instead of {current}; {hint}");
        return Some(Warning::new(code::warning::DECISION_STALE, message));
    }
    let stale_component = selected.component_evaluations().iter().find(|component| component.selected != 0)?;
    let (best, current) = (&stale_component.ranked.first()?.class.name, &stale_component.selected_class()?.class.name);
    let message =
        format!("The current selection is retained; class {best} would be selected instead of {current}; {hint}");
    Some(Warning::new(code::warning::DECISION_STALE, message))
}

fn component_warnings(
    demand: &Demand,
    supply: &Supply,
    runtime: &Runtime,
    evaluation: &ComponentEvaluation<'_>,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    warnings.extend(parallelism_mismatch(evaluation));
    warnings
        .extend(evaluation.selected_class().and_then(|selected| accelerators_added(evaluation.component, selected)));
    let Some(selected) = evaluation.selected_class() else { return warnings };
    let component_demand = demand.components.get(&evaluation.component);
    warnings.extend(model_size_unset(demand, runtime, selected));
    warnings.extend(heads_not_divisible(demand, evaluation.component, selected));
    warnings.extend(attention_copies_not_divisible(evaluation.component, selected));
    warnings.extend(format_emulated(selected));
    warnings.extend(context_rejected(evaluation.component, selected));
    warnings.extend(capacity_warning(evaluation, selected));
    warnings.extend(component_demand.and_then(|demand| cost_threshold_exceeded(demand, selected)));
    let defaults = (ComponentDemand::default(), RuntimeComponent::default());
    let runtime_component = runtime.components.get(&evaluation.component).unwrap_or(&defaults.1);
    let component_demand = component_demand.unwrap_or(&defaults.0);
    warnings.extend(resource_replaced(component_demand, runtime_component, supply, evaluation, selected));
    warnings.extend(scoring_warnings(evaluation));
    warnings.extend(placement::merge_placement(selected.class, runtime_component, component_demand).warnings);
    warnings
}

/// Warns if the size of the model is unknown, because the smallest number of accelerators is used, or a guess.
fn model_size_unset(demand: &Demand, runtime: &Runtime, selected: &RankedClass<'_>) -> Option<Warning> {
    let model = demand.model.resolved()?;
    let (name, class) = (&model.name, &selected.class.name);
    match model.parameters {
        Some(parameters) if model.is_size_inferred => {
            let size = DisplayCount(parameters);
            let mut message = format!(
                "Model {name} sets no modelParameterSize; its name indicates {size}, with which it fits on {class}"
            );
            if !runtime.size.contains(parameters) {
                message += &format!(
                    ", but which the size range {} of runtime {} does not contain",
                    runtime.size, runtime.name
                );
            }
            Some(Warning::new(code::warning::MODEL_SIZE_INFERRED, message))
        }
        Some(_) => None,
        None => {
            let message = format!(
                "Model {name} sets no modelParameterSize; the size ranges of runtimes, and whether it fits on {class}, were not checked"
            );
            Some(Warning::new(code::warning::MODEL_SIZE_UNSTATED, message))
        }
    }
}

/// Warns if the name of a runtime without a size range indicates another size than that of the model.
fn named_for_another_size(demand: &Demand, runtime: &Runtime) -> Option<Warning> {
    let is_selected_by_name = demand.runtime.is_some() || runtime.size != SizeRange::default();
    let parameters = demand.model.resolved().filter(|_| !is_selected_by_name)?.parameters?;
    let NamedSize::Different { size, .. } = naming::named_size(&runtime.name, parameters) else { return None };
    let (size, parameters) = (DisplayCount(size), DisplayCount(parameters));
    let message = format!(
        "The name of runtime {} indicates models of {size}; the model has {parameters} parameters and the runtime sets no modelSizeRange",
        runtime.name
    );
    Some(Warning::new(code::warning::RUNTIME_NAMED_FOR_ANOTHER_SIZE, message))
}

fn parallelism_mismatch(evaluation: &ComponentEvaluation<'_>) -> Option<Warning> {
    let component = evaluation.component.as_str();
    let (request, nodes) = match evaluation.selected_class() {
        Some(selected) => (&selected.request, selected.eligibility.shape.nodes),
        None => (&evaluation.request, evaluation.nodes),
    };
    if let Some((selected, stated)) = evaluation.selected_class().zip(request.script_accelerators) {
        return script_mismatch(evaluation.component, selected, stated);
    }
    let (parallelism, resources) = request.mismatch(nodes)?;
    let requested = evaluation
        .selected_class()
        .map_or_else(String::new, |selected| format!("; Pods request {}", selected.eligibility.shape.accelerators()));
    let noun = if resources == 1 { "accelerator" } else { "accelerators" };
    let message = format!(
        "Flags or environment variables of the {component} set a parallelism of {parallelism}, but resources request {resources} {noun}{requested}"
    );
    Some(Warning::new(code::warning::PARALLELISM_MISMATCH, message))
}

/// Warns if a shell script of the service uses `stated` accelerators and its Pods request another number, or if the model does not fit
/// on them.
fn script_mismatch(component: Component, selected: &RankedClass<'_>, stated: u32) -> Option<Warning> {
    let (component, class, shape) = (component.as_str(), &selected.class.name, selected.eligibility.shape);
    let requested = shape.accelerators();
    let reason = match selected.request.strength {
        RequestStrength::Hint => format!("the most that its nodes of class {class} have"),
        RequestStrength::Minimum | RequestStrength::Exact => "as its resources state".to_owned(),
    };
    let remedy = match shape.nodes {
        1 => format!("; to use several nodes, set {component}.leader and {component}.worker"),
        _ => String::new(),
    };
    let unfit = selected.eligibility.memory.as_ref().filter(|budget| !budget.fits());
    let noun = if stated == 1 { "accelerator" } else { "accelerators" };
    let message = match unfit {
        _ if stated != requested => {
            format!(
                "The command of the {component} uses {stated} {noun}, but its Pods request {requested}, {reason}{remedy}"
            )
        }
        Some(budget) => format!(
            "The command of the {component} uses {stated} {noun} of class {class}, on which the model does not fit: each requires {}, and {} are usable",
            Gigabytes(budget.required()),
            Gigabytes(budget.usable)
        ),
        None => return None,
    };
    Some(Warning::new(code::warning::PARALLELISM_MISMATCH, message))
}

/// Warns if the model requires more accelerators than the runtime states.
fn accelerators_added(component: Component, selected: &RankedClass<'_>) -> Option<Warning> {
    let shape = selected.eligibility.shape;
    let stated =
        selected.request.exceeded_by(shape).filter(|_| selected.request.strength == RequestStrength::Minimum)?;
    let message = format!(
        "The model requires {} accelerators of class {}, so the {} uses them, although {stated}",
        shape.accelerators(),
        selected.class.name,
        component.as_str()
    );
    Some(Warning::new(code::warning::ACCELERATORS_ADDED, message))
}

/// Warns if tensor parallelism does not divide the attention heads of the model, because engines then fail to start.
fn heads_not_divisible(demand: &Demand, component: Component, selected: &RankedClass<'_>) -> Option<Warning> {
    let heads = demand.model.resolved()?.memory.architecture?.attention_heads;
    let accelerators = selected.eligibility.shape.accelerators();
    let size = (accelerators / selected.request.parallelism.tensor_groups().max(1)).max(1);
    (!heads.is_multiple_of(u64::from(size))).then(|| {
        let message = format!(
            "The {} uses a tensor parallelism of {size}, which does not divide the {heads} attention heads of the model; use a number that does, or pipeline parallelism",
            component.as_str()
        );
        Warning::new(code::warning::ATTENTION_HEADS_NOT_DIVISIBLE, message)
    })
}

/// Warns if the copies of the attention do not divide tensor parallelism, because SGLang then fails to start (0.5.23,
/// arg_groups/parallel_hook.py).
fn attention_copies_not_divisible(component: Component, selected: &RankedClass<'_>) -> Option<Warning> {
    let parallelism = &selected.request.parallelism;
    let copies = parallelism.attention.as_ref()?;
    let size = selected.eligibility.shape.accelerators() / parallelism.tensor_groups().max(1);
    (!size.is_multiple_of(copies.size)).then(|| {
        let message = format!(
            "The {} uses a tensor parallelism of {size}, which is not a multiple of the {} copies of its data-parallel attention",
            component.as_str(),
            copies.size
        );
        Warning::new(code::warning::PARALLELISM_MISMATCH, message)
    })
}

/// Warns if the class has no units for the number format of the model.
fn format_emulated(selected: &RankedClass<'_>) -> Option<Warning> {
    let (format, class) = (selected.emulated_format?, &selected.class.name);
    let consequence = match format {
        NumberFormat::Bfloat16 => "computes in float16 instead",
        _ => "converts the weights while it computes, which is slower",
    };
    let message = format!("Class {class} has no units for {format}; the engine {consequence}");
    Some(Warning::new(code::warning::FORMAT_EMULATED, message))
}

/// Warns if the engine does not start with the stated context length.
fn context_rejected(component: Component, selected: &RankedClass<'_>) -> Option<Warning> {
    let rejected = selected.rejected_context.as_ref()?;
    Some(Warning::new(code::warning::CONTEXT_LENGTH_REJECTED, format!("The {}: {rejected}", component.as_str())))
}

fn capacity_warning(evaluation: &ComponentEvaluation<'_>, selected: &RankedClass<'_>) -> Option<Warning> {
    let (class, eligibility) = (selected.class, &selected.eligibility);
    let Some((free, total)) = eligibility.free_and_total else {
        return Some(Warning::new(
            code::warning::AVAILABILITY_UNKNOWN,
            format!("The availability of nodes of class {} is unknown", class.name),
        ));
    };
    if eligibility.has_capacity_with_running_pods {
        return None;
    }
    let (component, shape) = (evaluation.component, eligibility.shape);
    let replicas = evaluation.replicas.max(1);
    let required = shape.accelerators().saturating_mul(replicas);
    if eligibility.pods_without_room > 0 {
        let pods = shape.nodes.saturating_mul(replicas);
        let message = format!(
            "Too few nodes: the {} requires {required} × {} ({} per Pod), and even without other workloads the eligible nodes have {total}, enough for {} of {pods} Pods",
            component.as_str(),
            class.name,
            shape.per_node,
            pods.saturating_sub(eligibility.pods_without_room)
        );
        let warning = Warning::new(code::warning::TOO_FEW_NODES, message);
        return Some(warning.with_subject(WarningSubject::Component(component)));
    }
    if eligibility.lacks_only_compute {
        let message = format!(
            "Waiting for free CPU or memory: each Pod of the {} requests {}, and the nodes with free accelerators of class {} have less",
            component.as_str(),
            eligibility.compute,
            class.name
        );
        let warning = Warning::new(code::warning::NO_FREE_CAPACITY, message);
        return Some(warning.with_subject(WarningSubject::Component(component)));
    }
    let fragmented = if free >= required { format!(", but not {} on one node", shape.per_node) } else { String::new() };
    let unschedulable = eligibility.unschedulable.as_ref();
    let (awaited, cause) = match unschedulable {
        None => ("free accelerators", String::new()),
        Some(nodes) if nodes.would_suffice => ("schedulable nodes", format!("; {nodes}")),
        Some(nodes) => ("free accelerators", format!("; {nodes}")),
    };
    let message = format!(
        "Waiting for {awaited}: the {} requires {required} × {}, and {free} of {total} are free on eligible nodes{fragmented}{cause}",
        component.as_str(),
        class.name
    );
    let warning = Warning::new(code::warning::NO_FREE_CAPACITY, message);
    Some(warning.with_subject(WarningSubject::Component(component)))
}

/// Warns if runtime or service request accelerators by another vendor's resource. Pods request the class's resource
/// instead, and the image may support only one vendor.
fn resource_replaced(
    demand: &ComponentDemand,
    runtime: &RuntimeComponent,
    supply: &Supply,
    evaluation: &ComponentEvaluation<'_>,
    selected: &RankedClass<'_>,
) -> Option<Warning> {
    let (component, class) = (evaluation.component.as_str(), selected.class);
    let (class_resource, per_node) = (class.resource_name()?, selected.eligibility.shape.per_node);
    let accelerators = supply.accelerator_resources();
    let find_other_resource = |requests: &BTreeMap<String, u32>| {
        let mut others = requests.iter().filter(|(name, count)| **count > 0 && *name != class_resource);
        others.find(|(name, _)| accelerators.contains(*name)).map(|(name, count)| format!("{count} × {name}"))
    };
    let requested_by_runtime =
        || find_other_resource(&runtime.resources).filter(|_| demand.selector.preferred.is_empty());
    let (owner, requested) = match find_other_resource(&demand.resources) {
        Some(requested) => ("service", requested),
        None => ("runtime", requested_by_runtime()?),
    };
    let message = format!(
        "The {owner} requests {requested} for the {component}; Pods request {per_node} × {class_resource} of class {} instead; to choose the vendor, set spec.acceleratorSelector.preferredClasses",
        class.name
    );
    Some(Warning::new(code::warning::ACCELERATOR_RESOURCE_REPLACED, message))
}

fn cost_threshold_exceeded(demand: &ComponentDemand, selected: &RankedClass<'_>) -> Option<Warning> {
    let threshold = demand.selector.cost_threshold.filter(|_| !selected.is_within_threshold())?;
    let price = match selected.eligibility.price_per_hour {
        Some(price) => format!("costs ${price:.2}/h"),
        None => "declares no price".to_owned(),
    };
    let message = format!(
        "No class is within the cost threshold of ${threshold}/h per replica; the selected class {} {price}",
        selected.class.name
    );
    Some(Warning::new(code::warning::COST_THRESHOLD_EXCEEDED, message))
}

/// Warns about scores that could not use every term.
fn scoring_warnings(evaluation: &ComponentEvaluation<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if evaluation.ranked.len() < 2 {
        return warnings;
    }
    let component = evaluation.component.as_str();
    let ScoringNotes { missing_figures, classes_without_figures, .. } = &evaluation.notes;
    if !missing_figures.is_empty() {
        let figures = missing_figures.join(", ");
        let message = match classes_without_figures.as_slice() {
            [] => format!("No eligible class of the {component} declares {figures}"),
            [class] => {
                format!("The eligible class {class} of the {component} does not declare {figures} and ranks last")
            }
            classes => format!(
                "These eligible classes of the {component} do not declare {figures} and rank last: {}",
                AbbreviatedList(classes)
            ),
        };
        warnings.push(Warning::new(code::warning::FIGURES_MISSING, message));
    }
    if let Some((kind, others)) = evaluation.notes.other_prices {
        let (classes, declare) = if others == 1 { ("class", "declares") } else { ("classes", "declare") };
        let message = format!(
            "Prices of classes of the {component} are compared by {kind}; {others} eligible {classes} {declare} only another kind of price and rank last"
        );
        warnings.push(Warning::new(code::warning::PRICE_KINDS_DIFFER, message));
    }
    warnings
}
