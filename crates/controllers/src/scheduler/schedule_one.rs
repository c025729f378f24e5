//! Schedules one Pod by running the Filter plugins, then the Score plugins.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::pod;
use serde_json::Value;

use super::decision::Outcome;
use super::filter::CycleState;
use super::fit_error::{self, PreemptionOutcome};
use super::node_info::{NodeInfo, node_infos};
use super::reason::{FilterFailure, UnschedulableReason};
use super::score;
use super::snapshot::SchedulingSnapshot;

/// Returns the scheduling outcome for one Pod. If the Pod fits, it is added to the selected node in `node_infos`.
pub(super) fn schedule_pod(pod: &Arc<Value>, node_infos: &mut [NodeInfo], snapshot: &SchedulingSnapshot) -> Outcome {
    if pod::is_gated(pod) {
        return Outcome::Wait {
            reason: pod::SCHEDULING_GATED.reason,
            message: pod::SCHEDULING_GATED.message.to_owned(),
            retains_nomination: false,
        };
    }
    let state = CycleState::pre_filter(pod, node_infos, snapshot);
    if let Some(pre_filter_failure) =
        state.volume_binding.pre_filter_failure.as_ref().filter(|_| !node_infos.is_empty())
    {
        let message = fit_error::pre_filter_message(pre_filter_failure, node_infos.len());
        return Outcome::Wait { reason: "Unschedulable", message, retains_nomination: false };
    }
    let (feasible, failures) = find_feasible_nodes(&state, node_infos);
    let Some(index) = select_node(pod, &feasible, node_infos, snapshot) else {
        let message = fit_error::fit_error_message(&failures, PreemptionOutcome::NoVictims);
        return Outcome::Wait { reason: "Unschedulable", message, retains_nomination: false };
    };
    match node_infos.get_mut(index) {
        Some(node_info) => {
            node_info.add_pod(pod);
            Outcome::Bind { node: node_info.name().to_owned() }
        }
        None => Outcome::Wait { reason: "Unschedulable", message: String::new(), retains_nomination: false },
    }
}

/// Returns the indices of the nodes on which the Pod fits, and the failures of the other nodes.
fn find_feasible_nodes(state: &CycleState<'_>, node_infos: &[NodeInfo]) -> (Vec<usize>, Vec<FilterFailure>) {
    let mut feasible = Vec::new();
    let mut failures = Vec::new();
    for (index, node_info) in node_infos.iter().enumerate() {
        match state.filter(node_info) {
            Some(failure) => failures.push(failure),
            None => feasible.push(index),
        }
    }
    (feasible, failures)
}

/// Returns the index of the node with the highest score. If several nodes have that score, the first one is selected.
fn select_node(
    pod: &Value,
    feasible: &[usize],
    node_infos: &[NodeInfo],
    snapshot: &SchedulingSnapshot,
) -> Option<usize> {
    if let [only] = feasible {
        return Some(*only);
    }
    let feasible_nodes: Vec<&NodeInfo> = feasible.iter().filter_map(|index| node_infos.get(*index)).collect();
    let scores = score::scores(pod, &feasible_nodes, node_infos, &snapshot.namespaces);
    let highest = feasible.iter().zip(scores).max_by_key(|(index, score)| (*score, Reverse(**index)));
    highest.map(|(index, _)| *index)
}

/// Runs the Filter plugins for `pod` on every node. Returns the reasons by node name; an empty list means that the Pod
/// fits. The requests of bound Pods are subtracted from their nodes.
#[must_use]
pub fn filter_nodes(pod: &Value, snapshot: &SchedulingSnapshot) -> BTreeMap<String, Vec<UnschedulableReason>> {
    let (node_infos, _) = node_infos(&snapshot.pods, &snapshot.nodes);
    let state = CycleState::pre_filter(pod, &node_infos, snapshot);
    let node_reasons = |node_info: &NodeInfo| {
        let reasons = state.filter(node_info).map(|failure| failure.reasons).unwrap_or_default();
        (node_info.name().to_owned(), reasons)
    };
    node_infos.iter().map(node_reasons).collect()
}
