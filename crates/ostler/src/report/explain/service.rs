//! Explains why a service is not ready, or the decision for a ready service.

use std::collections::BTreeMap;

use decide::{Origin, Setting};
use jiff::Timestamp;
use operator::WorkloadReason;
use serde_json::Value;

use super::placement::{PlacementAnalysis, SERVICE_LABELS};
use super::pod_diagnostics::PodDiagnostics;
use super::{Explanation, PodProblem, text, text_of};
use crate::cluster_objects::ClusterObjects;
use crate::report::tree::{TreeNode, format_count, group_by_reason, names_with_noun};

/// Maximum number of lines of a list of candidates, classes or Pods.
const MAX_LINES: usize = 6;
/// Reason code of a compatible runtime without an eligible accelerator class.
const NO_ELIGIBLE_ACCELERATOR: &str = "NoEligibleAccelerator";
/// Conditions that report a problem with status `True`.
const NEGATIVE_CONDITIONS: [&str; 2] = ["Failed", "DecisionStale"];
/// Reasons of conditions that only follow from an earlier condition.
const DEPENDENT_REASONS: [&str; 2] = ["NotPlanned", "RuntimeNotResolved"];

/// The settings of the Pods, by component.
pub(crate) type Settings = BTreeMap<String, Vec<Setting>>;

/// Input of the explanation of a service.
pub(crate) struct ExplainContext<'a> {
    pub objects: &'a ClusterObjects,
    /// Remedies found by repeating selection with one constraint lifted.
    pub remedies: Vec<String>,
    /// Remedies that state only how many accelerators to free. They are shown if no service is known whose deletion
    /// would free them.
    pub capacity_remedies: Vec<String>,
    /// Settings of the Pods, with their origins.
    pub settings: Settings,
    pub now: Timestamp,
}

/// Explains an InferenceService of either group.
pub(crate) fn explain(service: &Value, context: ExplainContext<'_>) -> Explanation {
    let mut explanation = Explanation::new(service, context.now);
    let decision = service.pointer("/status/decision").cloned();
    let pods = service_pods(service, context.objects);
    let placement = PlacementAnalysis::new(&context.objects.nodes, &context.objects.pods, &context.objects.supply);
    let problems = PodProblems::new(&pods, &context.objects.pod_diagnostics);

    explanation.subject =
        format!("{} is {}", explanation.subject, if explanation.ready { "ready" } else { "not ready" });
    explanation.message = headline(&explanation, decision.as_ref(), &problems, pods.len(), is_status_current(service));
    explanation.tree = match (&decision, explanation.ready) {
        (Some(decision), true) => decision_tree(decision, &explanation.message),
        (None, true) => Vec::new(),
        (Some(decision), false) if decision["feasible"] == false => {
            unmet_conditions(&explanation, rejected_runtimes(decision))
        }
        (decision, false) => {
            let class = decision.as_ref().map(engine_class).unwrap_or_default();
            let children = pod_branches(&problems, &placement, class.as_deref(), &explanation.message);
            let mut tree = unmet_conditions(&explanation, children);
            tree.extend(decision.iter().map(decision_summary));
            tree
        }
    };
    let negative_conditions = negative_conditions(&explanation, &explanation.message);
    explanation.tree.extend(negative_conditions);
    explanation.tree.extend(setting_branches(&context.settings));
    if !explanation.ready {
        explanation.remedies = context.remedies;
        let deletions: Vec<String> =
            problems.unschedulable.first().into_iter().flat_map(|pod| placement.deletion_remedies(pod)).collect();
        explanation.remedies.extend(if deletions.is_empty() { context.capacity_remedies } else { deletions });
        explanation.remedies.extend(fewer_replicas_remedy(&problems, &pods));
    }
    explanation.pods = problems.to_pod_problems();
    explanation.decision = decision;
    explanation
}

/// Returns the settings that originate from the service, a class or a configuration, or override another value.
fn setting_branches(settings: &Settings) -> Vec<TreeNode> {
    let is_shown = |setting: &&Setting| {
        !matches!(setting.origin, Origin::Runtime | Origin::Ostler) || !setting.overridden.is_empty()
    };
    let branch = |(component, settings): (&String, &Vec<Setting>)| {
        // Requests that equal the limits are omitted.
        let equals_limit = |setting: &&Setting| {
            let limit = setting.field.strip_prefix("requests ").map(|resource| format!("limits {resource}"));
            limit.is_some_and(|limit| settings.iter().any(|other| other.field == limit && other.value == setting.value))
        };
        let shown_settings: Vec<&Setting> =
            settings.iter().filter(is_shown).filter(|setting| !equals_limit(setting)).collect();
        let omitted_count = shown_settings.len().saturating_sub(MAX_LINES);
        let lines = crate::report::settings(shown_settings.into_iter().take(MAX_LINES)).into_iter();
        let omitted_line =
            (omitted_count > 0).then(|| format!("… {omitted_count} more (`ostler plan --all` shows them)"));
        let children: Vec<TreeNode> = lines.chain(omitted_line).map(TreeNode::leaf).collect();
        (!children.is_empty())
            .then(|| TreeNode::new(format!("{component} settings that do not come from the runtime"), children))
    };
    settings.iter().filter_map(branch).collect()
}

/// The Pods with problems.
struct PodProblems<'a> {
    unschedulable: Vec<&'a Value>,
    other_problems: Vec<(&'a Value, operator::WorkloadProblem)>,
    all_problems: Vec<(&'a Value, operator::WorkloadProblem)>,
    diagnostics: &'a PodDiagnostics,
}

impl<'a> PodProblems<'a> {
    fn new(pods: &[&'a Value], diagnostics: &'a PodDiagnostics) -> Self {
        let all_problems: Vec<_> = pods.iter().filter_map(|pod| Some((*pod, operator::pod_problem(pod)?))).collect();
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
        match self.diagnostics.get(text(pod, "/metadata/name")) {
            Some(diagnostic) => format!("{message}; {diagnostic}"),
            None => message,
        }
    }

    fn to_pod_problems(&self) -> Vec<PodProblem> {
        let to_pod_problem = |(pod, problem): &(&Value, operator::WorkloadProblem)| PodProblem {
            name: text(pod, "/metadata/name").to_owned(),
            reason: problem.reason.as_str().to_owned(),
            message: self.with_diagnostic(pod, problem.message.clone()),
        };
        self.all_problems.iter().map(to_pod_problem).collect()
    }
}

/// Returns the Pods of a service.
pub(crate) fn service_pods<'a>(service: &Value, objects: &'a ClusterObjects) -> Vec<&'a Value> {
    objects.pods.iter().filter(|pod| is_pod_of(pod, service)).collect()
}

fn is_pod_of(pod: &Value, service: &Value) -> bool {
    let name = plan::label_value(text(service, "/metadata/name"));
    let group = text(service, "/apiVersion").split('/').next().unwrap_or_default();
    let label = SERVICE_LABELS.iter().find(|(_, kind)| kind.ends_with(group)).map(|(label, _)| *label);
    pod["metadata"]["namespace"] == service["metadata"]["namespace"]
        && label.is_some_and(|label| pod["metadata"]["labels"][label] == name)
}

/// Returns whether the status reflects the current generation.
fn is_status_current(service: &Value) -> bool {
    service["status"]["observedGeneration"] == service["metadata"]["generation"]
}

/// Returns the message of the headline.
fn headline(
    explanation: &Explanation,
    decision: Option<&Value>,
    problems: &PodProblems<'_>,
    pod_count: usize,
    is_status_current: bool,
) -> String {
    if !is_status_current && !explanation.conditions.is_empty() {
        return "Waiting for the operator to observe the latest change".to_owned();
    }
    match decision {
        _ if explanation.ready => {
            decision.map_or_else(|| explanation.message.clone(), |decision| text_of(&decision["message"]))
        }
        Some(decision) if decision["feasible"] == false => infeasible_headline(decision),
        _ if !problems.unschedulable.is_empty() => {
            format!("{} of {} cannot be scheduled", problems.unschedulable.len(), format_count(pod_count, "Pod"))
        }
        _ => explanation.message.clone(),
    }
}

/// Summarizes an infeasible decision. The tree lists the candidates; without candidates, the message is complete.
fn infeasible_headline(decision: &Value) -> String {
    let candidates = candidates(decision);
    let omitted_count = omitted_rejections(decision);
    let without_class: Vec<&str> = candidates
        .iter()
        .filter(|candidate| is_without_class(candidate))
        .map(|candidate| text(candidate, "/runtime"))
        .collect();
    match (candidates, candidates.len() + omitted_count, without_class.as_slice()) {
        ([], ..) => text_of(&decision["message"]),
        // A runtime is selected, but the objects cannot be planned.
        _ if candidates.iter().any(|candidate| candidate["selected"] == true) => text_of(&decision["message"]),
        (_, _, [runtime]) => format!("{runtime} could serve it, but no accelerator class is eligible"),
        (_, _, [_, _, ..]) => {
            format!("{} runtimes could serve it, but no accelerator class is eligible", without_class.len())
        }
        ([candidate], 1, _) => format!("{} cannot serve it", text(candidate, "/runtime")),
        (_, count, _) => format!("none of {count} runtimes can serve it"),
    }
}

fn candidates(decision: &Value) -> &[Value] {
    decision["candidates"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn classes(candidate: &Value) -> &[Value] {
    candidate["accelerators"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_without_class(candidate: &Value) -> bool {
    candidate["rejected"]["code"] == NO_ELIGIBLE_ACCELERATOR
}

/// Returns the accelerator class of the engine.
fn engine_class(decision: &Value) -> Option<String> {
    decision["components"]["engine"]["acceleratorClass"].as_str().map(str::to_owned)
}

/// Returns the conditions that are not met. `children` explain the first condition; further conditions are omitted if
/// their messages repeat a sentence.
fn unmet_conditions(explanation: &Explanation, mut children: Vec<TreeNode>) -> Vec<TreeNode> {
    let is_unmet = |condition: &&Value| {
        let kind = text(condition, "/type");
        kind != "Ready"
            && !NEGATIVE_CONDITIONS.contains(&kind)
            && condition["status"] != "True"
            && !DEPENDENT_REASONS.contains(&text(condition, "/reason"))
    };
    let mut shown_sentences = vec![explanation.message.clone()];
    shown_sentences.extend(children.iter().flat_map(sentences));
    let mut tree = Vec::new();
    for condition in explanation.conditions.iter().filter(is_unmet) {
        let message = text(condition, "/message");
        let is_repeated = shown_sentences.iter().any(|sentence| message.contains(sentence.as_str()));
        if is_repeated && !tree.is_empty() {
            continue;
        }
        let is_explained = is_repeated || !children.is_empty();
        let message = if is_explained { String::new() } else { format!(": {message}") };
        let line = format!(
            "{}={}  {}{message}",
            text(condition, "/type"),
            text(condition, "/status"),
            text(condition, "/reason")
        );
        tree.push(TreeNode::new(line, std::mem::take(&mut children)));
        shown_sentences.push(text(condition, "/message").to_owned());
    }
    // A service may have Pods before it has conditions.
    tree.extend(children);
    tree
}

/// Returns the sentences of a tree without the names before them.
fn sentences(node: &TreeNode) -> Vec<String> {
    let own_sentence = node.text.split_once(": ").map_or(node.text.as_str(), |(_, sentence)| sentence).to_owned();
    node.children.iter().flat_map(sentences).chain([own_sentence]).collect()
}

/// Returns the negative conditions with status `True`.
fn negative_conditions(explanation: &Explanation, headline: &str) -> Vec<TreeNode> {
    let is_negative =
        |condition: &&Value| NEGATIVE_CONDITIONS.contains(&text(condition, "/type")) && condition["status"] == "True";
    let line = |condition: &Value| {
        let message = Some(text(condition, "/message")).filter(|message| !message.contains(headline));
        let message = message.map(|message| format!(": {message}")).unwrap_or_default();
        TreeNode::leaf(format!("{}=True  {}{message}", text(condition, "/type"), text(condition, "/reason")))
    };
    explanation.conditions.iter().filter(is_negative).map(line).collect()
}

/// Returns the rejected runtimes. The first one without an eligible class has a line for each class.
fn rejected_runtimes(decision: &Value) -> Vec<TreeNode> {
    let (without_class, others): (Vec<&Value>, Vec<&Value>) =
        candidates(decision).iter().partition(|candidate| is_without_class(candidate));
    let mut tree = Vec::new();
    if let Some(nearest) = without_class.first() {
        let component = classes(nearest).first().map_or("engine", |class| text(class, "/component"));
        let line = format!(
            "runtime {}  {NO_ELIGIBLE_ACCELERATOR}: no accelerator class is eligible for the {component}",
            text(nearest, "/runtime")
        );
        tree.push(TreeNode::new(line, rejected_classes(classes(nearest))));
    }
    let row = |candidate: &&Value| {
        let (rejection, name) = (&candidate["rejected"], text(candidate, "/runtime").to_owned());
        match (text(rejection, "/code"), text(&candidate["outranked"], "/message")) {
            ("", "") => (name, "can serve it".to_owned()),
            ("", criterion) => (name, format!("can serve it, ranked lower: {criterion}")),
            (code, _) => (name, format!("{code}: {}", text(rejection, "/message"))),
        }
    };
    let further_rows = without_class
        .iter()
        .skip(1)
        .map(|candidate| (text(candidate, "/runtime").to_owned(), NO_ELIGIBLE_ACCELERATOR.to_owned()));
    tree.extend(group_by_reason("runtime", further_rows.chain(others.iter().map(row)), MAX_LINES));
    tree.extend(omitted_runtimes(decision));
    tree
}

/// Returns the rejected classes with their reasons.
fn class_rejections(classes: &[Value]) -> Vec<(String, String)> {
    let reason = |class: &Value| format!("{}: {}", text(class, "/code"), text(class, "/message"));
    let rejected_classes = classes.iter().filter(|class| class["rank"].is_null());
    rejected_classes.map(|class| (text(class, "/class").to_owned(), reason(class))).collect()
}

/// Returns a line with the number of rejected runtimes that the decision does not record.
fn omitted_runtimes(decision: &Value) -> Option<TreeNode> {
    let omitted_count = Some(omitted_rejections(decision)).filter(|count| *count > 0)?;
    Some(TreeNode::leaf(format!("… {omitted_count} more runtimes (`ostler plan --all` shows them)")))
}

/// Returns the number of rejected runtimes that the decision only counts.
pub(crate) fn omitted_rejections(decision: &Value) -> usize {
    decision["omitted"]["rejections"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

/// Returns the rejected classes, rare reasons first: most shipped classes are rejected because no nodes match them.
fn rejected_classes(classes: &[Value]) -> Vec<TreeNode> {
    let rows = class_rejections(classes);
    let frequency = |reason: &str| rows.iter().filter(|(_, other)| other == reason).count();
    let mut sorted_rows = rows.clone();
    sorted_rows.sort_by_key(|(_, reason)| frequency(reason));
    group_by_reason("", sorted_rows, MAX_LINES)
}

/// Returns the Pods with problems, grouped by problem. A message that the headline contains is omitted.
fn pod_branches(
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
        tree.push(TreeNode::new(
            format!("{}  Unschedulable: {message}", names_with_noun("pod", &mut names)),
            rejections,
        ));
    }
    let line = |(pod, problem): &(&Value, operator::WorkloadProblem)| {
        let code = problem.reason.as_str();
        match (headline.contains(&problem.message), problems.diagnostics.get(&name(pod))) {
            (true, None) => None,
            (true, Some(diagnostic)) => Some((name(pod), format!("{code}: {diagnostic}"))),
            (false, _) => {
                Some((name(pod), format!("{code}: {}", problems.with_diagnostic(pod, problem.message.clone()))))
            }
        }
    };
    let others = problems.other_problems.iter().filter_map(line);
    tree.extend(group_by_reason("pod", others, MAX_LINES));
    tree
}

/// Returns the decision and its warnings, for a service whose problems arose after the decision.
fn decision_summary(decision: &Value) -> TreeNode {
    let warnings = decision["warnings"].as_array().into_iter().flatten();
    let warning =
        |warning: &Value| TreeNode::leaf(format!("{}: {}", text(warning, "/code"), text(warning, "/message")));
    let children = warnings.map(warning).collect();
    TreeNode::new(format!("decision  {}: {}", text(decision, "/reason"), text(decision, "/message")), children)
}

/// Returns the decision with the candidates that were not selected, and the warnings.
fn decision_tree(decision: &Value, headline: &str) -> Vec<TreeNode> {
    let (selected, unselected): (Vec<&Value>, Vec<&Value>) =
        candidates(decision).iter().partition(|candidate| candidate["selected"] == true);
    let standing = selected.iter().filter_map(|candidate| candidate["standing"].as_str()).next();
    let mut line = format!("decision  {}", text(decision, "/reason"));
    if let Some(standing) = standing.filter(|standing| !headline.contains(standing)) {
        line = format!("{line}: {standing}");
    }
    let row = |candidate: &&Value| {
        let reason = if candidate["rejected"].is_object() { &candidate["rejected"] } else { &candidate["outranked"] };
        let reason = match text(reason, "/code") {
            "" => "ranked lower".to_owned(),
            code => format!("{code}: {}", text(reason, "/message")),
        };
        (text(candidate, "/runtime").to_owned(), reason)
    };
    let mut children = group_by_reason("runtime", unselected.iter().map(row), MAX_LINES);
    children.extend(omitted_runtimes(decision));
    let warnings = decision["warnings"].as_array().into_iter().flatten();
    children.extend(
        warnings.map(|warning| {
            TreeNode::leaf(format!("warning {}: {}", text(warning, "/code"), text(warning, "/message")))
        }),
    );
    vec![TreeNode::new(line, children)]
}

/// Suggests reducing the replicas to the scheduled ones, if only some Pods of an `ome.io` component are scheduled.
fn fewer_replicas_remedy(problems: &PodProblems<'_>, pods: &[&Value]) -> Option<String> {
    let scheduled = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
    let is_ome_service = pods.first().is_some_and(|pod| pod["metadata"]["labels"][SERVICE_LABELS[0].0].is_string());
    let component = pods.first().map(|pod| text(pod, "/metadata/labels/component").to_owned()).unwrap_or_default();
    let is_applicable = is_ome_service && scheduled > 0 && !problems.unschedulable.is_empty() && !component.is_empty();
    is_applicable.then(|| {
        format!(
            "reduce the replicas to the {scheduled} that {} scheduled: spec.{component}.minReplicas: {scheduled}",
            if scheduled == 1 { "is" } else { "are" }
        )
    })
}
