//! Explains which runtimes serve a model.

use decide::RuntimeCandidate;
use jiff::Timestamp;
use plan::Service;
use serde_json::Value;

use super::explanation::Explanation;
use super::fields::namespaced_name;
use super::trial::{outcome_of, plan_ome_service};
use crate::cluster_objects::{self, ClusterObjects};
use crate::report::tree::{Reason, TreeNode, group_by_reason};

/// Maximum number of lines of a list.
const MAX_LINES: usize = 8;

/// Explains a BaseModel or ClusterBaseModel: the candidates for a service that sets only the model.
pub(crate) fn explain(object: &Value, objects: &ClusterObjects, now: Timestamp) -> Explanation {
    let mut explanation = Explanation::new(object, now);
    let snapshot = objects.snapshot();
    let namespace = if explanation.namespace.is_empty() { "default" } else { &explanation.namespace };
    let service = cluster_objects::minimal_service(namespace, &explanation.name, None);
    let Some((_, plan)) = plan_ome_service(&snapshot, &service) else {
        explanation.message = "the model is invalid".to_owned();
        return explanation;
    };
    explanation.ready = plan.feasible;
    let is_selected = plan.feasible || plan.candidates.iter().any(|candidate| candidate.selected);
    explanation.message = if is_selected { plan.message.clone() } else { "no runtime can serve it".to_owned() };
    let row = |candidate: &RuntimeCandidate| (candidate.runtime.clone(), outcome_of(candidate));
    let runtimes = group_by_reason("", plan.candidates.iter().map(row), MAX_LINES);
    explanation.tree.extend(TreeNode::branch("runtimes", runtimes));
    let services = objects.services.iter().filter(|service| service["spec"]["model"]["name"] == *explanation.name);
    let row = |service: &Value| (namespaced_name(service), Reason::default());
    let services = group_by_reason("", services.map(row), MAX_LINES);
    explanation.tree.extend(TreeNode::branch("services that use it", services));
    if !plan.feasible {
        let service = Service::from_document(&cluster_objects::document(service)).ok().flatten();
        let remedies = service.iter().flat_map(|service| plan::remedies(&snapshot, service));
        explanation.remedies = remedies.map(|remedy| remedy.to_string()).collect();
    }
    explanation
}
