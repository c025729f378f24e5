//! Turns what was assessed into the decision's record.

use std::collections::BTreeMap;

use crate::assess::{Assessed, ComponentOutcome, Outcome};
use crate::decision::{AcceleratorCandidate, Candidate, ComponentDecision, Decision, RuntimeRef, Verdict};
use crate::demand::{Component, Demand};
use crate::ranking::RankedClass;
use crate::reason::{Rejection, Warning};
use crate::supply::{Runtime, Supply};
use crate::variants::{self, TokenRange, Variant};
use crate::warn;

pub(crate) fn selected(
    demand: &Demand,
    supply: &Supply,
    assessed: &[Assessed<'_>],
    index: usize,
    kept: bool,
) -> Decision {
    let Some(winner) = assessed.get(index) else { return infeasible(demand, assessed) };
    let components = outcomes(winner);
    let mut warnings = demand.warnings.clone();
    ambiguous(&mut warnings, assessed, index);
    for component in components {
        about(&mut warnings, demand, winner.runtime, component);
    }
    let skipped = components.iter().all(|component| !component.considered);
    if skipped && supply.accelerator_aware {
        let why = "no accelerator class was considered: neither the runtime nor the service uses an accelerator field, or no class exists";
        warn(&mut warnings, "AcceleratorNotConsidered", why.to_owned());
    }
    Decision {
        feasible: true,
        reason: if kept { "Kept" } else { "Selected" }.to_owned(),
        message: sentence(winner, components),
        runtime: (!winner.runtime.is_own()).then(|| reference(winner.runtime)),
        components: components.iter().map(|one| (one.component.as_str().to_owned(), granted(one))).collect(),
        candidates: candidates(assessed, Some(index)),
        warnings,
    }
}

pub(crate) fn infeasible(demand: &Demand, assessed: &[Assessed<'_>]) -> Decision {
    let named = demand.runtime.is_some() || assessed.iter().all(|one| one.runtime.is_own());
    let nearest = assessed.first().and_then(|one| Some((one.runtime, one.rejection()?)));
    let model = demand.model.known().map_or("the service", |model| model.name.as_str());
    let (reason, message) = match nearest {
        None => ("NoCompatibleRuntime".to_owned(), "there is no runtime in the namespace or the cluster".to_owned()),
        Some((runtime, rejection)) if named => {
            (rejection.code().to_owned(), format!("runtime {} cannot serve {model}: {rejection}", runtime.name))
        }
        Some((runtime, rejection)) => {
            let reason = match rejection {
                Rejection::NoEligibleAccelerator { .. } => "NoEligibleAccelerator",
                _ => "NoCompatibleRuntime",
            };
            let (count, code) = (assessed.len(), rejection.code());
            (
                reason.to_owned(),
                format!("none of {count} runtimes serves {model}; nearest: {} — {code}: {rejection}", runtime.name),
            )
        }
    };
    Decision { candidates: candidates(assessed, None), ..refused(demand, &reason, message) }
}

pub(crate) fn model_not_found(demand: &Demand, name: &str) -> Decision {
    let namespace = &demand.namespace;
    let message =
        format!("there is no BaseModel {name} in namespace {namespace} and no ClusterBaseModel {name}; apply one");
    refused(demand, "ModelNotFound", message)
}

pub(crate) fn no_engine_container(demand: &Demand) -> Decision {
    let message = "the service names neither model nor runtime, and spec.engine.runner has no image; name a model";
    refused(demand, "NoEngineContainer", message.to_owned())
}

pub(crate) fn runtime_not_found<'a>(
    demand: &Demand,
    name: &str,
    visible: impl Iterator<Item = &'a Runtime>,
) -> Decision {
    let mut known: Vec<&str> = visible.map(|runtime| runtime.name.as_str()).collect();
    known.sort_unstable();
    known.truncate(5);
    let hint = if known.is_empty() { String::new() } else { format!("; there are {}", known.join(", ")) };
    let namespace = &demand.namespace;
    let message =
        format!("there is no ServingRuntime {name} in namespace {namespace} and no ClusterServingRuntime {name}{hint}");
    refused(demand, "RuntimeNotFound", message)
}

fn refused(demand: &Demand, reason: &str, message: String) -> Decision {
    Decision {
        feasible: false,
        reason: reason.to_owned(),
        message,
        runtime: None,
        components: BTreeMap::new(),
        candidates: Vec::new(),
        warnings: demand.warnings.clone(),
    }
}

fn outcomes<'b, 'a>(assessed: &'b Assessed<'a>) -> &'b [ComponentOutcome<'a>] {
    match &assessed.outcome {
        Outcome::Viable { components, .. } | Outcome::Rejected { components, .. } => components,
    }
}

fn reference(runtime: &Runtime) -> RuntimeRef {
    RuntimeRef { name: runtime.name.clone(), scope: runtime.scope }
}

fn granted(outcome: &ComponentOutcome<'_>) -> ComponentDecision {
    let base = ComponentDecision { nodes: outcome.nodes, replicas: outcome.replicas, ..ComponentDecision::default() };
    let Some(chosen) = outcome.chosen() else { return base };
    ComponentDecision {
        accelerator_class: Some(chosen.class.name.clone()),
        resource: Some(chosen.class.resource_name().to_owned()),
        accelerators_per_node: chosen.eligibility.shape.per_node,
        nodes: chosen.eligibility.shape.nodes,
        cost_per_hour: chosen.eligibility.hourly,
        variants: variants::places(&outcome.ranked, outcome.kept)
            .iter()
            .filter_map(|at| variant(outcome, at))
            .collect(),
        ..base
    }
}

fn variant(outcome: &ComponentOutcome<'_>, (place, request_tokens): &(usize, TokenRange)) -> Option<Variant> {
    let ranked = outcome.ranked.get(*place)?;
    Some(Variant {
        accelerator_class: ranked.class.name.clone(),
        accelerators_per_node: ranked.eligibility.shape.per_node,
        nodes: ranked.eligibility.shape.nodes,
        replicas: outcome.replicas,
        request_tokens: *request_tokens,
    })
}

fn candidates(assessed: &[Assessed<'_>], chosen: Option<usize>) -> Vec<Candidate> {
    let others = assessed.iter().enumerate().filter(|(_, one)| !one.runtime.is_own());
    others
        .map(|(index, one)| Candidate {
            runtime: one.runtime.name.clone(),
            scope: one.runtime.scope,
            rank: one.order().map(|_| index + 1),
            selected: chosen == Some(index),
            accelerators: outcomes(one).iter().flat_map(accelerators).collect(),
            rejected: one.rejection().cloned(),
        })
        .collect()
}

fn accelerators(outcome: &ComponentOutcome<'_>) -> Vec<AcceleratorCandidate> {
    let component = outcome.component.as_str();
    let ranked = outcome.ranked.iter().enumerate().map(|(index, ranked)| AcceleratorCandidate {
        component: component.to_owned(),
        class: ranked.class.name.clone(),
        rank: Some(index + 1),
        score: Some(ranked.eligibility.score),
        verdict: Verdict::Eligible(ranked.eligibility.clone()),
    });
    let rejected = outcome.rejected.iter().map(|(class, rejection)| AcceleratorCandidate {
        component: component.to_owned(),
        class: class.clone(),
        rank: None,
        score: None,
        verdict: Verdict::Rejected(rejection.clone()),
    });
    ranked.chain(rejected).collect()
}

/// "srt-x on 1 × nvidia-l40s: balanced 0.65 …; next: nvidia-a100-40gb …".
fn sentence(winner: &Assessed<'_>, components: &[ComponentOutcome<'_>]) -> String {
    let name = if winner.runtime.is_own() { "the service's own engine" } else { &winner.runtime.name };
    let parts: Vec<String> = components.iter().filter_map(part).collect();
    if parts.is_empty() { name.to_owned() } else { format!("{name} on {}", parts.join("; ")) }
}

fn part(outcome: &ComponentOutcome<'_>) -> Option<String> {
    let chosen = outcome.chosen()?;
    let whose = if outcome.component == Component::Engine { "" } else { "decoder " };
    let next = outcome.ranked.iter().enumerate().find(|(index, _)| *index != outcome.kept);
    let next = next.map(|(_, next)| format!("; next: {} {}", next.class.name, brief(next))).unwrap_or_default();
    let count = chosen.eligibility.shape.accelerators();
    Some(format!("{whose}{count} × {} ({}{next})", chosen.class.name, brief(chosen)))
}

fn brief(ranked: &RankedClass<'_>) -> String {
    let eligibility = &ranked.eligibility;
    let price = eligibility.hourly.map(|price| format!(", ${price:.2}/h")).unwrap_or_default();
    format!("{} {:.2}{price}", eligibility.ranking, eligibility.score)
}

/// Two that tie up to and including priority: a choice that nobody made.
fn ambiguous(warnings: &mut Vec<Warning>, assessed: &[Assessed<'_>], index: usize) {
    let Some((winner, order)) = assessed.get(index).and_then(|one| Some((one, one.order()?))) else { return };
    let equal = |one: &&Assessed<'_>| one.order().is_some_and(|other| other.suitability == order.suitability);
    let mut others = assessed.iter().filter(equal).filter(|one| one.runtime.name != winner.runtime.name);
    if let Some(other) = others.next() {
        let message = format!(
            "{} and {} fit equally well and have equal priority; give one a higher priority or name one in spec.runtime.name",
            winner.runtime.name, other.runtime.name
        );
        warn(warnings, "AmbiguousRuntimes", message);
    }
}

fn about(warnings: &mut Vec<Warning>, demand: &Demand, runtime: &Runtime, outcome: &ComponentOutcome<'_>) {
    let Some(chosen) = outcome.chosen() else { return };
    let (class, eligibility) = (chosen.class, &chosen.eligibility);
    let component = outcome.component.as_str();
    match eligibility.free {
        None => warn(warnings, "AvailabilityUnknown", format!("nothing is known of the nodes of {}", class.name)),
        Some((free, total)) if !eligibility.enough => {
            let wanted = eligibility.shape.accelerators().saturating_mul(outcome.replicas.max(1));
            let message = format!(
                "{component} needs {wanted} × {}, {free} of {total} are free where it may run; it waits",
                class.name
            );
            warn(warnings, "NoFreeCapacity", message);
        }
        Some(_) => {}
    }
    let need = demand.components.get(&outcome.component);
    if let Some(threshold) = need.and_then(|need| need.selector.cost_threshold).filter(|_| !chosen.within_threshold) {
        let price =
            eligibility.hourly.map_or_else(|| "has no price".to_owned(), |price| format!("costs ${price:.2}/h"));
        let message = format!("no class is within ${threshold}/h per replica; {} {price}", class.name);
        warn(warnings, "CostThresholdExceeded", message);
    }
    if !outcome.dropped.is_empty() && outcome.ranked.len() > 1 {
        let terms = outcome.dropped.join(", ");
        warn(
            warnings,
            "ScoreTermDropped",
            format!("{component}: not every eligible class states its {terms}; left out for all"),
        );
    }
    let offer = runtime.components.get(&outcome.component);
    placement_warnings(warnings, class, offer, need);
}

fn placement_warnings(
    warnings: &mut Vec<Warning>,
    class: &crate::supply::Class,
    offer: Option<&crate::supply::RuntimeComponent>,
    need: Option<&crate::demand::ComponentDemand>,
) {
    let (offer, need) = (offer.cloned().unwrap_or_default(), need.cloned().unwrap_or_default());
    for warning in crate::merge::placement::merge(class, &offer, &need).warnings {
        warn(warnings, &warning.code, warning.message);
    }
}
