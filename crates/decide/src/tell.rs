//! Turns what was assessed into the decision's record.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::code::Code;

use crate::assess::{self, Assessed, Outcome};
use crate::code;
use crate::decision::{
    AcceleratorCandidate, Candidate, Classes, ComponentDecision, Decision, Omitted, RuntimeRef, Standing, Verdict,
};
use crate::demand::{Component, Demand};
use crate::offers::ComponentOutcome;
use crate::ranking::{self, RankedClass, RuntimeOrder};
use crate::reason::Rejection;
use crate::size::SizeRange;
use crate::supply::{Runtime, Supply};
use crate::variants::{self, TokenRange, Variant};
use crate::warnings;

pub(crate) fn selected(
    demand: &Demand,
    supply: &Supply,
    assessed: Vec<Assessed<'_>>,
    index: usize,
    kept: bool,
) -> Decision {
    let Some(winner) = assessed.get(index) else { return infeasible(demand, assessed) };
    let components = winner.components();
    Decision {
        feasible: true,
        reason: if kept { code::outcome::KEPT } else { code::outcome::SELECTED }.into(),
        message: sentence(winner, components),
        runtime: (!winner.runtime.is_own()).then(|| reference(winner.runtime)),
        components: components.iter().map(|one| (one.component.as_str().to_owned(), granted(one))).collect(),
        warnings: warnings::all(demand, supply, &assessed, index),
        candidates: candidates(demand, assessed, Some(index)),
        omitted: Omitted::default(),
    }
}

pub(crate) fn infeasible(demand: &Demand, assessed: Vec<Assessed<'_>>) -> Decision {
    let named = demand.runtime.is_some() || assessed.iter().all(|one| one.runtime.is_own());
    let nearest = assessed.first().and_then(|one| Some((one.runtime, one.rejection()?)));
    let model = demand.model.known().map_or("the service", |model| model.name.as_str());
    let (reason, message) = match nearest {
        None => {
            (code::outcome::NO_COMPATIBLE_RUNTIME, "there is no runtime in the namespace or the cluster".to_owned())
        }
        Some((runtime, rejection)) if named => (
            rejection.known().unwrap_or(code::outcome::NO_COMPATIBLE_RUNTIME),
            format!("runtime {} cannot serve {model}: {rejection}", runtime.name),
        ),
        Some((runtime, rejection)) => {
            let reason = match rejection {
                Rejection::NoEligibleAccelerator { .. } => code::runtime::NO_ELIGIBLE_ACCELERATOR,
                _ => code::outcome::NO_COMPATIBLE_RUNTIME,
            };
            let (count, code) = (assessed.len(), rejection.code());
            (
                reason,
                format!("none of {count} runtimes serves {model}; nearest: {} — {code}: {rejection}", runtime.name),
            )
        }
    };
    Decision { candidates: candidates(demand, assessed, None), ..refused(demand, reason, message) }
}

pub(crate) fn model_not_found(demand: &Demand, name: &str, near: Option<&str>) -> Decision {
    let namespace = &demand.namespace;
    let hint = near.map_or_else(|| "apply one".to_owned(), |near| format!("did you mean {near}?"));
    let message =
        format!("there is no BaseModel {name} in namespace {namespace} and no ClusterBaseModel {name}; {hint}");
    refused(demand, code::outcome::MODEL_NOT_FOUND, message)
}

pub(crate) fn model_disabled(demand: &Demand, name: &str) -> Decision {
    refused(demand, code::outcome::MODEL_DISABLED, format!("model {name} is disabled; remove spec.disabled from it"))
}

pub(crate) fn no_engine_container(demand: &Demand) -> Decision {
    let message = "the service names neither model nor runtime, and spec.engine.runner has no image; name a model";
    refused(demand, code::outcome::NO_ENGINE_CONTAINER, message.to_owned())
}

pub(crate) fn runtime_not_found<'a>(
    demand: &Demand,
    name: &str,
    visible: impl Iterator<Item = &'a Runtime>,
) -> Decision {
    let near = crate::nearest::nearest(name, visible.map(|runtime| runtime.name.as_str()));
    let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    let namespace = &demand.namespace;
    let message =
        format!("there is no ServingRuntime {name} in namespace {namespace} and no ClusterServingRuntime {name}{hint}");
    refused(demand, code::outcome::RUNTIME_NOT_FOUND, message)
}

fn refused(demand: &Demand, reason: Code, message: String) -> Decision {
    Decision {
        feasible: false,
        reason: reason.into(),
        message,
        runtime: None,
        components: BTreeMap::new(),
        candidates: Vec::new(),
        warnings: demand.warnings.clone(),
        omitted: Omitted::default(),
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
        resource: chosen.class.resource_name().map(str::to_owned),
        accelerators_per_node: chosen.eligibility.shape.per_node,
        nodes: chosen.eligibility.shape.nodes,
        cost_per_hour: chosen.eligibility.hourly,
        variants: variants::places(outcome.ranked.iter().map(|class| class.request_tokens), outcome.kept)
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

fn candidates(demand: &Demand, assessed: Vec<Assessed<'_>>, chosen: Option<usize>) -> Vec<Candidate> {
    let winner = chosen.and_then(|index| assessed.get(index)?.order().copied());
    let told = |(place, selected, one): (usize, bool, Assessed<'_>)| {
        let order = one.order();
        let lost = order.zip(winner.as_ref()).filter(|_| !selected);
        let (rank, standing) = (order.map(|_| place + 1), order.and_then(|order| standing(demand, one.runtime, order)));
        let outranked = lost.map(|(own, best)| ranking::runtime_step(own, best));
        let (runtime, scope) = (one.runtime.name.clone(), one.runtime.scope);
        let (rejected, accelerators) = taken_apart(one);
        Candidate { runtime, scope, rank, selected, accelerators, rejected, standing, outranked }
    };
    let others = assessed.into_iter().enumerate().filter(|(_, one)| !one.runtime.is_own());
    others.enumerate().map(|(place, (index, one))| told((place, chosen == Some(index), one))).collect()
}

fn standing(demand: &Demand, runtime: &Runtime, order: &RuntimeOrder<'_>) -> Option<Standing> {
    let size = demand.model.known().and_then(|model| model.parameters);
    let size = size.filter(|_| runtime.size != SizeRange::default()).map(|size| (size, runtime.size));
    let says = size.is_some() || order.priority.is_some();
    says.then_some(Standing::Ranked { size, priority: order.priority })
}

/// Why it was rejected, and its classes: those of a loser are found when they are asked for.
fn taken_apart(one: Assessed<'_>) -> (Option<Rejection>, Classes) {
    let Assessed { runtime, offers, components, outcome, .. } = one;
    let rejected = match outcome {
        Outcome::Rejected(rejection) => Some(rejection),
        Outcome::Viable(_) => None,
    };
    if rejected.as_ref().is_some_and(|why| !matches!(why, Rejection::NoEligibleAccelerator { .. })) {
        return (rejected, Classes::default());
    }
    let classes = match components.into_inner() {
        Some(components) => components.iter().flat_map(of_component).collect(),
        None => {
            let (offers, runtime) = (Arc::clone(offers), Arc::clone(runtime));
            Classes::new(move || assess::components(&offers, &runtime).iter().flat_map(of_component).collect())
        }
    };
    (rejected, classes)
}

fn of_component(outcome: &ComponentOutcome<'_>) -> Vec<AcceleratorCandidate> {
    let component = outcome.component.as_str();
    let step = |place: usize, ranked: &RankedClass<'_>| {
        let used = outcome.chosen().filter(|_| place != outcome.kept)?;
        Some(ranking::class_step(ranked, used))
    };
    let ranked = outcome.ranked.iter().enumerate().map(|(place, ranked)| AcceleratorCandidate {
        component: component.to_owned(),
        class: ranked.class.name.clone(),
        rank: Some(place + 1),
        score: Some(ranked.eligibility.score),
        verdict: Verdict::Eligible(ranked.eligibility.clone()),
        outranked: step(place, ranked),
    });
    let rejected = outcome.rejected.iter().map(|(class, rejection)| AcceleratorCandidate {
        component: component.to_owned(),
        class: class.clone(),
        rank: None,
        score: None,
        verdict: Verdict::Rejected(rejection.clone()),
        outranked: None,
    });
    ranked.chain(rejected).collect()
}

/// "srt-x on 1 × nvidia-l40s: balanced 0.65 …; next: nvidia-a100-40gb …".
fn sentence(winner: &Assessed<'_>, components: &[ComponentOutcome<'_>]) -> String {
    let name = if winner.runtime.is_own() { "the service's own engine" } else { &winner.runtime.name };
    let parts: Vec<String> = components.iter().filter_map(|one| part(one)).collect();
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
