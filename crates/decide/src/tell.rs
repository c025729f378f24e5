//! Turns what was assessed into the decision's record.

use std::collections::BTreeMap;

use api::code::Code;

use crate::assess::{Assessed, ComponentOutcome};
use crate::code;
use crate::decision::{AcceleratorCandidate, Candidate, ComponentDecision, Decision, RuntimeRef, Verdict};
use crate::demand::{Component, Demand, Selector};
use crate::ranking::{self, RankedClass};
use crate::reason::{Count, Rejection};
use crate::status::Omitted;
use crate::supply::{Runtime, Supply};
use crate::variants::{self, TokenRange, Variant};
use crate::warnings;

pub(crate) fn selected(
    demand: &Demand,
    supply: &Supply,
    assessed: &[Assessed<'_>],
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
        candidates: candidates(demand, assessed, Some(index)),
        warnings: warnings::all(demand, supply, assessed, index),
        omitted: Omitted::default(),
    }
}

pub(crate) fn infeasible(demand: &Demand, assessed: &[Assessed<'_>]) -> Decision {
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

fn candidates(demand: &Demand, assessed: &[Assessed<'_>], chosen: Option<usize>) -> Vec<Candidate> {
    let winner = chosen.and_then(|index| assessed.get(index)?.order());
    let others = assessed.iter().filter(|one| !one.runtime.is_own());
    let selected =
        |one: &Assessed<'_>| chosen.and_then(|index| assessed.get(index)).is_some_and(|it| std::ptr::eq(it, one));
    others
        .enumerate()
        .map(|(place, one)| Candidate {
            runtime: one.runtime.name.clone(),
            scope: one.runtime.scope,
            rank: one.order().map(|_| place + 1),
            selected: selected(one),
            accelerators: one.components().iter().flat_map(|outcome| accelerators(demand, outcome)).collect(),
            rejected: one.rejection().cloned(),
            standing: standing(demand, one),
            outranked: one
                .order()
                .zip(winner)
                .filter(|_| !selected(one))
                .map(|(own, best)| ranking::runtime_step(own, best)),
        })
        .collect()
}

fn standing(demand: &Demand, one: &Assessed<'_>) -> Option<String> {
    let order = one.order()?;
    let (range, size) = (one.runtime.size, demand.model.known().and_then(|model| model.parameters));
    let bounded = range.min.is_some() || range.max.is_some();
    let size = size.filter(|_| bounded).map(|size| format!("size {} in {range}", Count(size)));
    let priority = order.suitability.priority.0.map(|priority| format!("priority {priority}"));
    let parts: Vec<String> = size.into_iter().chain(priority).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn accelerators(demand: &Demand, outcome: &ComponentOutcome<'_>) -> Vec<AcceleratorCandidate> {
    let component = outcome.component.as_str();
    let selector = demand.components.get(&outcome.component).map(|need| &need.selector);
    let step = |place: usize, ranked: &RankedClass<'_>| {
        let used = outcome.chosen().filter(|_| place != outcome.kept)?;
        Some(ranking::class_step(selector.unwrap_or(&Selector::default()), ranked, used))
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
