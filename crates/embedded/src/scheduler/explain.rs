//! What is told of a Pod that found no node, in kube-scheduler's words.

use std::collections::BTreeMap;

use super::claims::Obstacle;
use super::reason::Unfit;

/// What came of looking for Pods that could make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preemption {
    /// There are none.
    Nobody,
    Found,
    /// The Pod's own policy.
    Never,
    /// They are on their way out.
    Going,
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) …`, as `FitError` and the default preemption write it.
pub(crate) fn explain(refusals: &[Unfit], outcome: Preemption) -> String {
    if refusals.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let total = refusals.len();
    let reasons = histogram(refusals.iter().flat_map(|unfit| unfit.reasons.iter().map(ToString::to_string)));
    let available = format!("0/{total} nodes are available");
    let told = match outcome {
        Preemption::Found => return format!("{available}: {reasons}."),
        Preemption::Never => "not eligible due to preemptionPolicy=Never".to_owned(),
        Preemption::Going => "not eligible due to a terminating pod on the nominated node".to_owned(),
        Preemption::Nobody => format!("{available}: {}", helpfulness(refusals)),
    };
    format!("{available}: {reasons}. preemption: {told}.")
}

/// The same where something stands against every node, so that none was looked at.
pub(super) fn explain_obstacle(obstacle: &Obstacle, nodes: usize) -> String {
    let available = format!("0/{nodes} nodes are available");
    match obstacle {
        // Preemption looks for the object once more, and repeats what it is told.
        Obstacle::Missing(object) => format!("{available}: {object} not found. not found"),
        Obstacle::Unusable(message) => {
            let told = format!("{nodes} Preemption is not helpful for scheduling");
            format!("{available}: {message}. preemption: {available}: {told}.")
        }
    }
}

/// Whether other Pods are in the way at all, counted over the nodes.
fn helpfulness(refusals: &[Unfit]) -> String {
    histogram(refusals.iter().map(|unfit| {
        let why = if unfit.preemptable {
            "No preemption victims found for incoming pod"
        } else {
            "Preemption is not helpful for scheduling"
        };
        why.to_owned()
    }))
}

/// Counts per reason, sorted as text: Kubernetes sorts the finished phrases.
fn histogram(reasons: impl Iterator<Item = String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut phrases: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    phrases.sort();
    phrases.join(", ")
}

#[cfg(test)]
mod tests {
    use apimachinery::quantity::Quantity;

    use super::super::reason::Reason;
    use super::*;

    #[test]
    fn the_message_is_the_schedulers_own() {
        let (zero, resource) = (Quantity::ZERO, "cpu".to_owned());
        let shortage = Reason::Insufficient { resource, needs: zero, free: zero, total: zero };
        let unfit = |reason: &Reason, preemptable| Unfit { reasons: vec![reason.clone()], preemptable };
        let refusals = [unfit(&shortage, true), unfit(&Reason::Unschedulable, false), unfit(&shortage, true)];
        let text = explain(&refusals, Preemption::Nobody);
        assert_eq!(
            text,
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
        );
    }
}
