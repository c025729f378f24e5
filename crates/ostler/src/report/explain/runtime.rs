//! Explains why a runtime is selected or not.

use std::cmp::Reverse;

use decide::{RuntimeCandidate, Scope};
use jiff::Timestamp;
use plan::{ServicePlan, Snapshot};
use serde_json::Value;

use super::explanation::Explanation;
use super::trial::{outcome_of, plan_ome_service};
use crate::cluster_objects::{self, ClusterObjects};
use crate::report::names::{format_count, join_names};
use crate::report::tree::{Reason, TreeNode, group_by_reason};

/// Maximum number of lines of a list.
const MAX_LINES: usize = 8;

/// Identifies a runtime among candidates.
struct RuntimeRef {
    name: String,
    /// Empty for a ClusterServingRuntime.
    namespace: String,
}

/// The outcome of a runtime in a plan, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The runtime is selected.
    Selected,
    /// The runtime could serve, but another one ranks higher.
    Compatible,
    /// The runtime cannot serve. The more checks it passed, the better: [`decide::RuntimeRejection::stage`].
    Rejected(Reverse<u8>),
    /// The runtime is not a candidate.
    NotConsidered,
}

/// Explains a ServingRuntime or ClusterServingRuntime: its result for all services, and for a minimal service per model.
pub(crate) fn explain(object: &Value, objects: &ClusterObjects, now: Timestamp) -> Explanation {
    let mut explanation = Explanation::new(object, now);
    let snapshot = objects.snapshot();
    let runtime = RuntimeRef { name: explanation.name.clone(), namespace: explanation.namespace.clone() };
    let services: Vec<(String, ServicePlan)> = objects
        .services
        .iter()
        .filter_map(|service| plan_ome_service(&snapshot, service))
        .filter(|(_, plan)| runtime.is_visible_to(plan))
        .collect();
    let models: Vec<(String, ServicePlan)> = minimal_services(&snapshot, &runtime, None)
        .iter()
        .filter_map(|service| plan_ome_service(&snapshot, service))
        .collect();

    let selecting_services = selected_by(&runtime, &services);
    let selecting_models = selected_by(&runtime, &models);
    explanation.message = match (selecting_services.len(), selecting_models.len()) {
        (0, 0) => "not selected by any service or for any model".to_owned(),
        (0, count) => {
            format!(
                "not selected by any service; would be selected for {count} of {}",
                format_count(models.len(), "model")
            )
        }
        (count, _) => format!("selected by {count} of {}", format_count(services.len(), "service")),
    };
    explanation.ready = !selecting_services.is_empty() || !selecting_models.is_empty();
    for (title, plans) in [("services", &services), ("models", &models)] {
        let children = group_by_reason("", outcomes(&runtime, plans), MAX_LINES);
        explanation.tree.extend(TreeNode::branch(title, children));
    }
    if !explanation.ready {
        explanation.remedies = remedies(&snapshot, &runtime);
    }
    explanation
}

fn selected_by(runtime: &RuntimeRef, plans: &[(String, ServicePlan)]) -> Vec<String> {
    let is_selected =
        |plan: &ServicePlan| plan.candidates.iter().any(|candidate| candidate.selected && runtime.matches(candidate));
    plans.iter().filter(|(_, plan)| is_selected(plan)).map(|(name, _)| name.clone()).collect()
}

/// Returns the outcome of the runtime in each plan, the best outcome first.
fn outcomes(runtime: &RuntimeRef, plans: &[(String, ServicePlan)]) -> Vec<(String, Reason)> {
    let outcome = |plan: &ServicePlan| match plan.candidates.iter().find(|candidate| runtime.matches(candidate)) {
        Some(candidate) => (Outcome::of(candidate), outcome_of(candidate)),
        None => {
            let message = "not considered: the service sets another runtime, or the model is unknown";
            (Outcome::NotConsidered, Reason::message(message))
        }
    };
    let mut rows: Vec<((Outcome, Reason), String)> =
        plans.iter().map(|(name, plan)| (outcome(plan), name.clone())).collect();
    rows.sort_by_key(|((outcome, _), _)| *outcome);
    rows.into_iter().map(|((_, reason), name)| (name, reason)).collect()
}

/// Returns a minimal service for each model in the namespaces of the runtime, optionally with a runtime name.
fn minimal_services(snapshot: &Snapshot, runtime: &RuntimeRef, runtime_name: Option<&str>) -> Vec<Value> {
    let namespace = if runtime.namespace.is_empty() { "default" } else { &runtime.namespace };
    let visible_models =
        snapshot.models.iter().filter(|model| match (&model.namespace, runtime.namespace.is_empty()) {
            (None, _) | (Some(_), true) => true,
            (Some(namespace), false) => *namespace == runtime.namespace,
        });
    visible_models
        .map(|model| {
            cluster_objects::minimal_service(model.namespace.as_deref().unwrap_or(namespace), &model.name, runtime_name)
        })
        .collect()
}

/// Suggests changes that would select the runtime: enabling it, or naming it in a service. Each is verified with all models.
fn remedies(snapshot: &Snapshot, runtime: &RuntimeRef) -> Vec<String> {
    let mut remedies = Vec::new();
    let is_explained_runtime =
        |candidate: &plan::Runtime| candidate.name == runtime.name && candidate.namespace == runtime.namespace;
    let mut enabled_snapshot = snapshot.clone();
    let disabled_candidate = enabled_snapshot
        .runtimes
        .iter_mut()
        .find(|candidate| is_explained_runtime(candidate))
        .filter(|candidate| candidate.spec().disabled == Some(true));
    let change = if let Some(disabled_runtime) = disabled_candidate {
        disabled_runtime.update_spec(|spec| spec.disabled = None);
        let plans: Vec<_> = minimal_services(&enabled_snapshot, runtime, None)
            .iter()
            .filter_map(|service| plan_ome_service(&enabled_snapshot, service))
            .collect();
        let mut models = selected_by(runtime, &plans);
        if !models.is_empty() {
            remedies
                .push(format!("remove spec.disabled: the runtime would be selected for {}", join_names(&mut models)));
        }
        "remove spec.disabled and set"
    } else {
        "set"
    };
    let services = minimal_services(&enabled_snapshot, runtime, Some(&runtime.name));
    let plans: Vec<_> = services.iter().filter_map(|service| plan_ome_service(&enabled_snapshot, service)).collect();
    let mut models = selected_by(runtime, &plans);
    if !models.is_empty() {
        let name = &runtime.name;
        remedies.push(format!(
            "{change} spec.runtime.name: {name} in a service: the runtime could serve {}",
            join_names(&mut models)
        ));
    }
    remedies
}

// === impl RuntimeRef ===

impl RuntimeRef {
    fn matches(&self, candidate: &RuntimeCandidate) -> bool {
        candidate.runtime == self.name && (candidate.scope == Scope::Cluster) == self.namespace.is_empty()
    }

    /// Returns whether the service of `plan` can use the runtime. A ServingRuntime is available only in its namespace.
    fn is_visible_to(&self, plan: &ServicePlan) -> bool {
        self.namespace.is_empty() || plan.namespace == self.namespace
    }
}

// === impl Outcome ===

impl Outcome {
    fn of(candidate: &RuntimeCandidate) -> Self {
        match &candidate.rejected {
            Some(rejection) => Self::Rejected(Reverse(rejection.stage())),
            None if candidate.selected => Self::Selected,
            None => Self::Compatible,
        }
    }
}
