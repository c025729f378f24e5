//! The best node for one Pod.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::candidate::{Candidate, candidates};
use super::explain::{self, Preemption};
use super::filter::Rules;
use super::reason::{Reason, Unfit};
use super::world::World;
use super::{Outcome, score};
use crate::binding::{GATED, is_gated};

/// The best node for one Pod, which then is among its tenants.
pub(super) fn place(pod: &Arc<Value>, candidates: &mut [Candidate], world: &World) -> Outcome {
    if is_gated(pod) {
        return Outcome::Wait { reason: GATED.reason, message: GATED.message.to_owned(), keeps_nomination: false };
    }
    let rules = Rules::of(pod, candidates, world);
    if let Some(obstacle) = rules.claims.obstacle.as_ref().filter(|_| !candidates.is_empty()) {
        let message = explain::explain_obstacle(obstacle, candidates.len());
        return Outcome::Wait { reason: "Unschedulable", message, keeps_nomination: false };
    }
    let (fitting, refusals) = sift(&rules, candidates);
    let Some(best) = best(pod, &fitting, candidates, world) else {
        let message = explain::explain(&refusals, Preemption::Nobody);
        return Outcome::Wait { reason: "Unschedulable", message, keeps_nomination: false };
    };
    match candidates.get_mut(best) {
        Some(candidate) => {
            candidate.take(pod);
            Outcome::Bind { node: candidate.name().to_owned() }
        }
        None => Outcome::Wait { reason: "Unschedulable", message: String::new(), keeps_nomination: false },
    }
}

/// Where among the candidates the Pod fits, and why not elsewhere.
fn sift(rules: &Rules<'_>, candidates: &[Candidate]) -> (Vec<usize>, Vec<Unfit>) {
    let mut fitting = Vec::new();
    let mut refusals = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        match rules.unfit(candidate) {
            Some(unfit) => refusals.push(unfit),
            None => fitting.push(index),
        }
    }
    (fitting, refusals)
}

/// The first of those with the highest score.
fn best(pod: &Value, fitting: &[usize], candidates: &[Candidate], world: &World) -> Option<usize> {
    if let [only] = fitting {
        return Some(*only);
    }
    let chosen: Vec<&Candidate> = fitting.iter().filter_map(|index| candidates.get(*index)).collect();
    let scores = score::scores(pod, &chosen, candidates, &world.namespaces);
    let highest = fitting.iter().zip(scores).max_by_key(|(index, score)| (*score, Reverse(**index)));
    highest.map(|(index, _)| *index)
}

/// For every node, in order of their names: why it does not take `pod`; nothing where it would. Pods hold what they
/// request on the node they are bound to.
#[must_use]
pub fn fits(pod: &Value, world: &World) -> BTreeMap<String, Vec<Reason>> {
    let candidates = candidates(&world.pods, &world.nodes);
    let rules = Rules::of(pod, &candidates, world);
    let verdict = |candidate: &Candidate| {
        let reasons = rules.unfit(candidate).map(|unfit| unfit.reasons).unwrap_or_default();
        (candidate.name().to_owned(), reasons)
    };
    candidates.iter().map(verdict).collect()
}
