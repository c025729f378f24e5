//! Explains why a service is not ready, or the decision for a ready service.

use std::collections::BTreeMap;

use api::dual_pods::is_provider;
use decide::{Origin, ProposedChange, Setting, SettingField};
use jiff::Timestamp;
use plan::{Service, ServicePlan, Snapshot};
use serde_json::Value;

use super::conditions::{negative_conditions, unmet_conditions};
use super::decision::{
    decision_summary, decision_tree, engine_class, infeasible_headline, recorded_decision, rejected_runtimes,
};
use super::deletions::Deletion;
use super::explanation::Explanation;
use super::fewer_replicas::{fewer_replicas_remedies, fewer_role_replicas_remedies};
use super::fields::{text, text_of};
use super::placement::PlacementAnalysis;
use super::pod_problems::{PodProblems, pod_branches};
use super::quota::quota_remedies;
use super::scale_down::ScaleDown;
use super::service_pods::{current_pods, service_pods, without_replaced_workloads};
use super::{dual_pods, simulated_nodes, trial};
use crate::cluster_objects::{self, ClusterObjects};
use crate::node_groups::ACCELERATORS_ANNOTATION;
use crate::pod_diagnostics::PodDiagnostics;
use crate::report::names::format_count;
use crate::report::settings;
use crate::report::tree::TreeNode;

/// Maximum number of lines of a list of settings.
const MAX_LINES: usize = 6;

/// The settings of the Pods, by component.
type Settings = BTreeMap<String, Vec<Setting>>;

/// What the explanation of a service depends on, besides the service.
pub(crate) struct ServiceContext<'a> {
    objects: &'a ClusterObjects,
    pod_diagnostics: PodDiagnostics,
    /// Remedies found by repeating selection with one constraint lifted.
    remedies: Vec<ServiceRemedy>,
    /// Remedies that state only how many accelerators to free. They are shown if no service is known that could free them.
    capacity_remedies: Vec<ServiceRemedy>,
    /// The command that accepts another selection, if that one has capacity and the current one does not.
    redecide_remedy: Option<String>,
    /// The decision repeated with the current cluster, which retains the current selection; `None` if the cluster's runtimes,
    /// models or classes cannot be read.
    plan: Option<ServicePlan>,
    now: Timestamp,
}

/// A remedy of a service.
struct ServiceRemedy {
    /// The changes in their order; empty if the remedy is not one of `plan`.
    changes: Vec<ProposedChange>,
    /// The remedy as a sentence, with its command.
    text: String,
}

// === impl ServiceRemedy ===

impl ServiceRemedy {
    /// Returns the text if the unschedulable `pods` run after the changes of nodes: selection considers only accelerators.
    fn verified(self, placement: &PlacementAnalysis, pods: &[&Value]) -> Option<String> {
        let changes: Vec<&ProposedChange> = self.changes.iter().collect();
        let is_sufficient = pods.is_empty() || changes.is_empty() || placement.can_schedule_after(&changes, pods);
        is_sufficient.then_some(self.text)
    }
}

// === impl ServiceContext ===

impl<'a> ServiceContext<'a> {
    /// Plans the service again, with the current cluster and with one constraint lifted at a time, and collects the remedies.
    /// If no remedy is found, other models are tried. Without the cluster's runtimes, models and classes, planning would
    /// fail for other reasons than the operator's, so nothing is planned.
    pub(crate) fn new(
        service: &Value,
        objects: &'a ClusterObjects,
        pod_diagnostics: PodDiagnostics,
        now: Timestamp,
    ) -> Self {
        let mut context = Self {
            objects,
            pod_diagnostics,
            remedies: Vec::new(),
            capacity_remedies: Vec::new(),
            redecide_remedy: None,
            plan: None,
            now,
        };
        if !objects.has_complete_supply() {
            return context;
        }
        let snapshot = objects.snapshot();
        let Ok(Some(parsed)) = Service::from_document(&cluster_objects::document(service.clone())) else {
            return context;
        };
        let service_plan = plan::plan_service(&snapshot, &parsed);
        for remedy in plan::remedies(&snapshot, &parsed) {
            let frees_accelerators = matches!(remedy.change, ProposedChange::FreeAccelerators { .. });
            let hint = match &remedy.change {
                ProposedChange::AddNodes { class, nodes, per_node } => {
                    add_nodes_command(objects, class, *nodes, *per_node)
                }
                _ => None,
            };
            let hint = hint.map(|command| format!("; run `{command}`")).unwrap_or_default();
            let text = format!("{remedy}{hint}");
            let changes = remedy.prerequisite.into_iter().chain([remedy.change]).collect();
            if frees_accelerators { &mut context.capacity_remedies } else { &mut context.remedies }
                .push(ServiceRemedy { changes, text });
        }
        if context.remedies.is_empty() && !service_plan.feasible {
            let remedy = plan::other_models_remedy(&snapshot, &parsed);
            context.remedies.extend(remedy.map(|text| ServiceRemedy { changes: Vec::new(), text }));
        }
        if plan::waits_for_capacity(&service_plan.warnings) {
            context.redecide_remedy = redecide_remedy(service, &snapshot);
        }
        context.plan = Some(service_plan);
        context
    }
}

/// Explains an InferenceService of either group.
pub(crate) fn explain(service: &Value, context: ServiceContext<'_>) -> Explanation {
    let mut explanation = Explanation::new(service, context.now);
    let decision = recorded_decision(&service["status"], context.plan.as_ref());
    let pods = without_replaced_workloads(current_pods(&service_pods(service, context.objects)), context.plan.as_ref());
    let placement = PlacementAnalysis::new(&context.objects.nodes, &context.objects.pods, &context.objects.supply);
    let problems = PodProblems::new(&pods, &context.pod_diagnostics);

    explanation.subject =
        format!("{} is {}", explanation.subject, if explanation.ready { "ready" } else { "not ready" });
    let pod_count = pods.iter().filter(|pod| !is_provider(pod)).count();
    explanation.message = headline(&explanation, decision.as_ref(), &problems, pod_count, is_status_current(service));
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
    explanation.tree.extend(dual_pods::engine_branch(&pods));
    explanation.tree.extend(context.plan.iter().flat_map(|plan| setting_branches(&plan.settings)));
    if !explanation.ready {
        let verified = |remedy: ServiceRemedy| remedy.verified(&placement, &problems.unschedulable);
        explanation.remedies = context.remedies.into_iter().filter_map(verified).collect();
        explanation.remedies.extend(quota_remedies(&problems, &context.objects.pods));
        let first_unschedulable = problems.unschedulable.first();
        // The rollout stops the Pods of the earlier revision.
        if !first_unschedulable.is_some_and(|pod| placement.fits_without_earlier_revision(pod)) {
            if explanation.remedies.is_empty() {
                explanation.remedies.extend(placement.node_remedies(&problems.unschedulable));
            }
            explanation.remedies.extend(context.redecide_remedy);
            let objects = context.objects;
            explanation.remedies.extend(fewer_replicas_remedies(service, &pods, context.plan.as_ref(), objects));
            explanation.remedies.extend(fewer_role_replicas_remedies(service, &pods));
            let scale_downs = placement.sufficient_scale_downs(&problems.unschedulable, &objects.services);
            let mut capacity_remedies = scale_down_remedies(service, objects, &scale_downs);
            if capacity_remedies.is_empty() && explanation.remedies.is_empty() {
                let deletions = placement.sufficient_deletions(&problems.unschedulable);
                capacity_remedies = deletion_remedies(service, objects, &deletions);
            }
            explanation.remedies.extend(match capacity_remedies.is_empty() {
                true => context.capacity_remedies.into_iter().filter_map(verified).collect(),
                false => capacity_remedies,
            });
        }
    }
    explanation.pods = problems.to_pod_problems();
    explanation.decision = decision;
    explanation
}

/// Returns the command that accepts the selection for a service without a current one, if that selection has capacity.
fn redecide_remedy(service: &Value, snapshot: &Snapshot) -> Option<String> {
    let mut undecided = service.clone();
    undecided["status"] = Value::Null;
    let (name, plan) = trial::plan_ome_service(snapshot, &undecided)?;
    let has_capacity = plan.feasible && !plan::waits_for_capacity(&plan.warnings);
    let namespace = text(service, "/metadata/namespace");
    has_capacity.then(|| {
        format!(
            "accept another selection: `ostler redecide isvc/{name} -n {namespace}`: {}   (restarts its Pods)",
            plan.message
        )
    })
}

/// Returns the command that adds nodes of a class to a cluster of `ostler up`, if the class has a node with as many accelerators.
fn add_nodes_command(objects: &ClusterObjects, class: &str, nodes: u32, per_node: u32) -> Option<String> {
    let is_class = |object: &&Value| object["kind"] == "AcceleratorClass" && text(object, "/metadata/name") == class;
    let class = objects.supply.iter().find(is_class)?;
    let prefix = format!("{per_node}×");
    let is_template = |node: &&Value| {
        let annotation = node["metadata"]["annotations"][ACCELERATORS_ANNOTATION].as_str();
        let is_member =
            class["status"]["nodes"].as_array().is_some_and(|names| names.contains(&node["metadata"]["name"]));
        is_member && annotation.is_some_and(|accelerators| accelerators.starts_with(&prefix))
    };
    let is_cordoned = |node: &&Value| node["spec"]["unschedulable"] == true;
    let template = objects.nodes.iter().filter(is_template).min_by_key(is_cordoned)?;
    simulated_nodes::add_command(&objects.nodes, text(template, "/metadata/name"), usize::try_from(nodes).ok()?)
}

/// Returns the deletions after which the service can be planned without waiting for capacity.
fn deletion_remedies(service: &Value, objects: &ClusterObjects, deletions: &[Deletion]) -> Vec<String> {
    let is_plannable = |deletion: &&Deletion| {
        let retained = |object: &Value| (!deletion.includes(object)).then(|| object.clone());
        is_plannable_after(service, objects, &retained)
    };
    deletions.iter().filter(is_plannable).map(ToString::to_string).collect()
}

/// Returns the reductions of other services after which the service can be planned without waiting for capacity.
fn scale_down_remedies(service: &Value, objects: &ClusterObjects, scale_downs: &[ScaleDown]) -> Vec<String> {
    let is_plannable =
        |scale_down: &&ScaleDown| is_plannable_after(service, objects, &|object| scale_down.apply(object));
    scale_downs.iter().filter(is_plannable).map(ToString::to_string).collect()
}

/// Returns whether the service can be planned without waiting for capacity once `edit` has changed or removed other services
/// and Pods. True if the runtimes, models and classes are unknown.
fn is_plannable_after(service: &Value, objects: &ClusterObjects, edit: &dyn Fn(&Value) -> Option<Value>) -> bool {
    let parsed = Service::from_document(&cluster_objects::document(service.clone())).ok().flatten();
    let Some(service) = parsed.filter(|_| objects.has_complete_supply()) else { return true };
    let plan = plan::plan_service(&objects.snapshot_after(edit), &service);
    plan.feasible && !plan::waits_for_capacity(&plan.warnings)
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

/// Returns the settings that originate from the service, a class or a configuration, or override another value.
fn setting_branches(settings: &Settings) -> Vec<TreeNode> {
    let is_shown = |setting: &&Setting| {
        !matches!(setting.origin, Origin::Runtime | Origin::Ostler) || !setting.overridden.is_empty()
    };
    let branch = |(component, all_settings): (&String, &Vec<Setting>)| {
        let equals_limit = |setting: &&Setting| {
            let SettingField::Request(resource) = &setting.field else { return false };
            let limit = SettingField::Limit(resource.clone());
            all_settings.iter().any(|other| other.field == limit && other.value == setting.value)
        };
        let shown_settings: Vec<&Setting> =
            all_settings.iter().filter(is_shown).filter(|setting| !equals_limit(setting)).collect();
        let omitted_count = shown_settings.len().saturating_sub(MAX_LINES);
        let lines = settings::lines(shown_settings.into_iter().take(MAX_LINES)).into_iter();
        let omitted_line =
            (omitted_count > 0).then(|| format!("… {omitted_count} more (`ostler plan --all` shows them)"));
        let children: Vec<TreeNode> = lines.chain(omitted_line).map(TreeNode::leaf).collect();
        TreeNode::branch(format!("{component} settings that do not come from the runtime"), children)
    };
    settings.iter().filter_map(branch).collect()
}
