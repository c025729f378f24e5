//! Explains why a runtime is selected or not, and which runtimes serve a model.

use decide::{OUTRANKED, RuntimeCandidate, Scope};
use jiff::Timestamp;
use plan::{Service, ServicePlan, Snapshot};
use serde_json::{Value, json};

use super::{Explanation, text};
use crate::cluster_objects::{self, ClusterObjects};
use crate::report::tree::{TreeNode, format_count, group_by_reason, join_names};

/// Maximum number of lines of a list.
const MAX_LINES: usize = 8;

/// Explains a ServingRuntime or ClusterServingRuntime: its result for all services, and for a minimal service per model.
pub(crate) fn explain_runtime(object: &Value, objects: &ClusterObjects, now: Timestamp) -> Explanation {
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
    explanation.tree.extend(branch("services", outcomes(&runtime, &services)));
    explanation.tree.extend(branch("models", outcomes(&runtime, &models)));
    if !explanation.ready {
        explanation.remedies = remedies(&snapshot, &runtime);
    }
    explanation
}

/// Explains a BaseModel or ClusterBaseModel: the candidates for a service that sets only the model.
pub(crate) fn explain_model(object: &Value, objects: &ClusterObjects, now: Timestamp) -> Explanation {
    let mut explanation = Explanation::new(object, now);
    let snapshot = objects.snapshot();
    let namespace = if explanation.namespace.is_empty() { "default" } else { &explanation.namespace };
    let service = minimal_service(namespace, &explanation.name, None);
    let Some((_, plan)) = plan_ome_service(&snapshot, &service) else {
        explanation.message = "the model is invalid".to_owned();
        return explanation;
    };
    explanation.ready = plan.feasible;
    let is_selected = plan.feasible || plan.candidates.iter().any(|candidate| candidate.selected);
    explanation.message = if is_selected { plan.message.clone() } else { "no runtime can serve it".to_owned() };
    let row = |candidate: &RuntimeCandidate| (candidate.runtime.clone(), outcome_message(candidate));
    explanation.tree.extend(branch("runtimes", plan.candidates.iter().map(row).collect()));
    let services = objects.services.iter().filter(|service| service["spec"]["model"]["name"] == *explanation.name);
    let name = |service: &Value| {
        (format!("{}/{}", text(service, "/metadata/namespace"), text(service, "/metadata/name")), String::new())
    };
    explanation.tree.extend(branch("services that use it", services.map(name).collect()));
    if !plan.feasible {
        let service = Service::from_document(&cluster_objects::document(service)).ok().flatten();
        let remedies = service.iter().flat_map(|service| plan::remedies(&snapshot, service));
        explanation.remedies = remedies.map(|remedy| remedy.to_string()).collect();
    }
    explanation
}

/// Identifies a runtime among candidates.
struct RuntimeRef {
    name: String,
    /// Empty for a ClusterServingRuntime.
    namespace: String,
}

impl RuntimeRef {
    fn matches(&self, candidate: &RuntimeCandidate) -> bool {
        candidate.runtime == self.name && (candidate.scope == Scope::Cluster) == self.namespace.is_empty()
    }

    /// Returns whether the service of `plan` can use the runtime. A ServingRuntime is available only in its namespace.
    fn is_visible_to(&self, plan: &ServicePlan) -> bool {
        self.namespace.is_empty() || plan.namespace == self.namespace
    }
}

fn branch(title: &str, rows: Vec<(String, String)>) -> Option<TreeNode> {
    let children = group_by_reason("", rows, MAX_LINES);
    (!children.is_empty()).then(|| TreeNode::new(title, children))
}

/// Plans an `ome.io` service and returns its name and plan; `None` for other services, which do not select a runtime.
fn plan_ome_service(snapshot: &Snapshot, service: &Value) -> Option<(String, ServicePlan)> {
    let parsed = Service::from_document(&cluster_objects::document(service.clone())).ok().flatten()?;
    matches!(parsed, Service::Ome(_))
        .then(|| (text(service, "/metadata/name").to_owned(), plan::plan_service(snapshot, &parsed)))
}

fn selected_by(runtime: &RuntimeRef, plans: &[(String, ServicePlan)]) -> Vec<String> {
    let is_selected =
        |plan: &ServicePlan| plan.candidates.iter().any(|candidate| candidate.selected && runtime.matches(candidate));
    plans.iter().filter(|(_, plan)| is_selected(plan)).map(|(name, _)| name.clone()).collect()
}

/// Returns the outcome of the runtime in each plan. Plans that select it come first; the others are ordered by the
/// number of checks that it passed.
fn outcomes(runtime: &RuntimeRef, plans: &[(String, ServicePlan)]) -> Vec<(String, String)> {
    let outcome = |plan: &ServicePlan| match plan.candidates.iter().find(|candidate| runtime.matches(candidate)) {
        Some(candidate) => (sort_key(candidate), outcome_message(candidate)),
        None => (u8::MAX, "not considered: the service sets another runtime, or the model is unknown".to_owned()),
    };
    let mut rows: Vec<((u8, String), String)> =
        plans.iter().map(|(name, plan)| (outcome(plan), name.clone())).collect();
    rows.sort_by_key(|((key, _), _)| *key);
    rows.into_iter().map(|((_, message), name)| (name, message)).collect()
}

fn sort_key(candidate: &RuntimeCandidate) -> u8 {
    match &candidate.rejected {
        None => u8::from(!candidate.selected),
        Some(rejection) => 100 - rejection.stage(),
    }
}

fn outcome_message(candidate: &RuntimeCandidate) -> String {
    match (&candidate.rejected, &candidate.outranked) {
        (Some(rejection), _) => format!("{}: {rejection}", rejection.code()),
        (None, Some(criterion)) => format!("{OUTRANKED}: {criterion}"),
        (None, None) if candidate.selected => "selected".to_owned(),
        (None, None) => "could serve".to_owned(),
    }
}

/// Suggests other models for a service. Each is verified by planning the service with it.
pub(crate) fn other_models_remedy(snapshot: &Snapshot, service: &Value) -> Option<String> {
    let namespace = text(service, "/metadata/namespace");
    let visible_models = snapshot
        .models
        .iter()
        .filter(|model| model.namespace.as_deref().is_none_or(|model_namespace| model_namespace == namespace));
    let is_feasible = |model: &&plan::Model| {
        let mut changed_service = service.clone();
        changed_service["spec"]["model"] = json!({"name": model.name});
        plan_ome_service(snapshot, &changed_service).is_some_and(|(_, plan)| plan.feasible)
    };
    let mut names: Vec<String> = visible_models.filter(is_feasible).map(|model| model.name.clone()).collect();
    (!names.is_empty())
        .then(|| format!("set spec.model.name to another model that can be served: {}", join_names(&mut names)))
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
        .map(|model| minimal_service(model.namespace.as_deref().unwrap_or(namespace), &model.name, runtime_name))
        .collect()
}

/// Returns a service that sets only the model, and optionally the runtime.
fn minimal_service(namespace: &str, model: &str, runtime: Option<&str>) -> Value {
    let mut service = json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": model, "namespace": namespace}, "spec": {"model": {"name": model}},
    });
    if let Some(runtime) = runtime {
        service["spec"]["runtime"] = json!({"name": runtime});
    }
    service
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
