//! The Pods of a service with problems.

use operator::{WorkloadProblem, WorkloadReason};
use serde_json::Value;

use super::explanation::PodProblem;
use super::fields::text;
use super::placement::PlacementAnalysis;
use crate::pod_diagnostics::PodDiagnostics;
use crate::report::names::{format_count, names_with_noun};
use crate::report::tree::{Reason, TreeNode, group_by_reason};

/// Maximum number of lines of a list of Pods.
const MAX_LINES: usize = 6;

/// The Pods with problems.
pub(super) struct PodProblems<'a> {
    pub(super) unschedulable: Vec<&'a Value>,
    other_problems: Vec<(&'a Value, WorkloadProblem)>,
    all_problems: Vec<(&'a Value, WorkloadProblem)>,
    diagnostics: &'a PodDiagnostics,
}

// === impl PodProblems ===

impl<'a> PodProblems<'a> {
    pub(super) fn new(pods: &[&'a Value], diagnostics: &'a PodDiagnostics) -> Self {
        let all_problems: Vec<_> = pods
            .iter()
            .filter_map(|pod| Some((*pod, operator::pod_problem_among(pod, pods.iter().copied())?)))
            .collect();
        let (unschedulable, other_problems): (Vec<_>, Vec<_>) =
            all_problems.iter().cloned().partition(|(_, problem)| problem.reason == WorkloadReason::Unschedulable);
        Self {
            unschedulable: unschedulable.into_iter().map(|(pod, _)| pod).collect(),
            other_problems,
            all_problems,
            diagnostics,
        }
    }

    /// Appends the Pod's diagnostic, if any, to the message.
    fn with_diagnostic(&self, pod: &Value, message: String) -> String {
        match self.diagnostic(pod) {
            Some(diagnostic) => format!("{message}; {diagnostic}"),
            None => message,
        }
    }

    /// Returns the Pods whose problem has this reason.
    pub(super) fn with_reason(&self, reason: WorkloadReason) -> impl Iterator<Item = &'a Value> + use<'_, 'a> {
        self.all_problems.iter().filter(move |(_, problem)| problem.reason == reason).map(|(pod, _)| *pod)
    }

    /// Returns the diagnostic of a Pod.
    pub(super) fn diagnostic(&self, pod: &Value) -> Option<&str> {
        self.diagnostics.get(text(pod, "/metadata/name")).map(String::as_str)
    }

    pub(super) fn to_pod_problems(&self) -> Vec<PodProblem> {
        let to_pod_problem = |(pod, problem): &(&Value, WorkloadProblem)| PodProblem {
            name: text(pod, "/metadata/name").to_owned(),
            reason: problem.reason.as_str().to_owned(),
            message: self.with_diagnostic(pod, problem.message.clone()),
        };
        self.all_problems.iter().map(to_pod_problem).collect()
    }
}

/// Returns the Pods with problems, grouped by problem. A message that the headline contains is omitted.
pub(super) fn pod_branches(
    problems: &PodProblems<'_>,
    placement: &PlacementAnalysis,
    class: Option<&str>,
    headline: &str,
) -> Vec<TreeNode> {
    let name = |pod: &Value| text(pod, "/metadata/name").to_owned();
    let mut tree = Vec::new();
    // Pods with the same template are rejected for the same reasons.
    let mut groups: Vec<(Vec<TreeNode>, Vec<&Value>)> = Vec::new();
    for pod in &problems.unschedulable {
        let rejections = placement.node_rejections(pod, class);
        match groups.iter_mut().find(|(group_key, _)| *group_key == rejections) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push((rejections, vec![pod])),
        }
    }
    for (rejections, pods) in groups {
        let mut names: Vec<String> = pods.iter().map(|pod| name(pod)).collect();
        let message = match pods.first().filter(|_| rejections.is_empty()) {
            Some(pod) => operator::pod_problem(pod).map(|problem| problem.message).unwrap_or_default(),
            None => format!("0 of {} available", format_count(placement.node_count(), "node")),
        };
        let reason = Reason::new(WorkloadReason::Unschedulable.as_str(), message);
        tree.push(TreeNode::with_reason(&names_with_noun("pod", &mut names), 0, reason, rejections));
    }
    let line = |(pod, problem): &(&Value, WorkloadProblem)| {
        let code = problem.reason.as_str();
        match (headline.contains(&problem.message), problems.diagnostics.get(&name(pod))) {
            (true, None) => None,
            (true, Some(diagnostic)) => Some((name(pod), Reason::new(code, diagnostic.as_str()))),
            (false, _) => Some((name(pod), Reason::new(code, problems.with_diagnostic(pod, problem.message.clone())))),
        }
    };
    let others = problems.other_problems.iter().filter_map(line);
    tree.extend(group_by_reason("pod", others, MAX_LINES));
    tree
}
