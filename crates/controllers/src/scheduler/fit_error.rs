//! Formats the messages for unschedulable Pods exactly as kube-scheduler does.

use std::collections::BTreeMap;

use super::reason::FilterFailure;
use super::volume_binding::PreFilterFailure;

/// The result of preemption for one Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreemptionOutcome {
    /// Evicting Pods would not make the Pod schedulable on any node.
    NoVictims,
    /// Victims were found on a node, which is now the Pod's nominated node.
    Nominated,
    /// `preemptionPolicy: Never`.
    PolicyNever,
    /// Preemption victims on the nominated node are still terminating.
    VictimsTerminating,
}

/// Returns `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) …`, as `FitError` and the default preemption
/// format it.
pub(crate) fn fit_error_message(failures: &[FilterFailure], outcome: PreemptionOutcome) -> String {
    if failures.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let total = failures.len();
    let reasons = histogram(failures.iter().flat_map(|failure| failure.reasons.iter().map(ToString::to_string)));
    let available = format!("0/{total} nodes are available");
    let preemption = match outcome {
        PreemptionOutcome::Nominated => return format!("{available}: {reasons}."),
        PreemptionOutcome::PolicyNever => "not eligible due to preemptionPolicy=Never".to_owned(),
        PreemptionOutcome::VictimsTerminating => {
            "not eligible due to a terminating pod on the nominated node".to_owned()
        }
        PreemptionOutcome::NoVictims => format!("{available}: {}", preemption_statuses(failures)),
    };
    format!("{available}: {reasons}. preemption: {preemption}.")
}

/// Returns the message for a PreFilter failure, after which no Filter plugin runs.
pub(super) fn pre_filter_message(failure: &PreFilterFailure, nodes: usize) -> String {
    let available = format!("0/{nodes} nodes are available");
    match failure {
        // Preemption runs PreFilter again and repeats its "not found" error.
        PreFilterFailure::NotFound(object) => format!("{available}: {object} not found. not found"),
        PreFilterFailure::Unschedulable(message) => {
            let preemption = format!("{nodes} Preemption is not helpful for scheduling");
            format!("{available}: {message}. preemption: {available}: {preemption}.")
        }
    }
}

/// Returns the preemption status messages of all nodes, each with the number of nodes.
fn preemption_statuses(failures: &[FilterFailure]) -> String {
    histogram(failures.iter().map(|failure| {
        let message = if failure.resolvable {
            "No preemption victims found for incoming pod"
        } else {
            "Preemption is not helpful for scheduling"
        };
        message.to_owned()
    }))
}

/// Returns the phrases `COUNT REASON`, separated by commas and sorted lexicographically as in Kubernetes.
fn histogram(reasons: impl Iterator<Item = String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in reasons {
        let count = counts.entry(reason).or_default();
        *count = count.saturating_add(1);
    }
    let mut phrases: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    phrases.sort();
    phrases.join(", ")
}

#[cfg(test)]
mod tests {
    use apimachinery::Quantity;

    use super::super::reason::UnschedulableReason;
    use super::*;

    #[test]
    fn formats_message_of_kube_scheduler() {
        let (zero, resource) = (Quantity::ZERO, "cpu".to_owned());
        let shortage =
            UnschedulableReason::InsufficientResource { resource, requested: zero, free: zero, allocatable: zero };
        let failure =
            |reason: &UnschedulableReason, resolvable| FilterFailure { reasons: vec![reason.clone()], resolvable };
        let failures =
            [failure(&shortage, true), failure(&UnschedulableReason::Unschedulable, false), failure(&shortage, true)];
        let message = fit_error_message(&failures, PreemptionOutcome::NoVictims);
        assert_eq!(
            message,
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
        );
    }
}
