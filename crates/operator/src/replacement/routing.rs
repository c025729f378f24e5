//! Routes to the Pods of a service while obsolete and planned workloads exist.
//!
//! The Pods of both have the labels of their component, so a selector of these labels alone would also select Pods that are
//! not ready to serve, for example the workers of a group. It is restricted to the Pods of one workload.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{DesiredObject, is_terminating, metadata_field};
use plan::labels::{COMPONENT, WORKER_INDEX};
use serde_json::{Map, Value, json};

use super::{Replacement, ReplacementStep, serving_pods};
use crate::kinds::{BACKEND_POOL, DEPLOYMENT, LEADER_WORKER_SET_NAME, LLM_USE_CASE_SET, SERVICE};
use crate::workloads::{LiveWorkload, POD_TEMPLATE_HASH, PlannedWorkload};

/// Labels that restrict a selector to the Pods of one workload.
const RESTRICTING_LABELS: [&str; 3] = [POD_TEMPLATE_HASH, LEADER_WORKER_SET_NAME, WORKER_INDEX];

/// The existing routes and Pods of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    /// The existing Services, BackendPools and LLMUseCaseSets of the service.
    pub(crate) live: Vec<Arc<Value>>,
    /// The Pods with the labels of the service.
    pub(crate) pods: Vec<Arc<Value>>,
}

// === impl Routes ===

impl Routes {
    /// Returns what to apply for a planned object: a route to the obsolete workloads while these serve, and a route to the
    /// planned workload as long as Pods of an obsolete one match the planned selector. Other objects are applied unchanged.
    pub(super) fn desired_route(
        &self,
        planned: Value,
        replacement: &Replacement,
        workloads: &[PlannedWorkload],
    ) -> DesiredObject {
        let is_routing_kind = |object: &Value| [SERVICE, BACKEND_POOL].iter().any(|kind| object["kind"] == kind.kind);
        let is_retained = replacement.step == ReplacementStep::Retain;
        match self.live(&planned) {
            Some(_) if is_retained && planned["kind"] == LLM_USE_CASE_SET.kind => DesiredObject::Defer(planned),
            Some(live) if is_retained && is_routing_kind(&planned) => {
                DesiredObject::Apply(retained_route(planned, live, &replacement.obsolete))
            }
            live if is_routing_kind(&planned) && self.selects_obsolete_group(&planned, workloads) => {
                route_to_planned(planned, live, workloads)
            }
            _ => DesiredObject::Apply(planned),
        }
    }

    fn live(&self, planned: &Value) -> Option<&Value> {
        let is_same = |live: &&Arc<Value>| {
            live["kind"] == planned["kind"] && metadata_field(live, "name") == metadata_field(planned, "name")
        };
        self.live.iter().find(is_same).map(AsRef::as_ref)
    }

    /// Returns whether the selector matches Pods of a LeaderWorkerSet that is not planned and is not terminating. Workers that
    /// do not serve may be ready.
    fn selects_obsolete_group(&self, route: &Value, workloads: &[PlannedWorkload]) -> bool {
        let Some(selector) = route["spec"]["selector"].as_object() else { return false };
        let is_planned_set = |name: &Value| {
            let mut planned = workloads.iter().map(|workload| &workload.planned);
            planned.any(|planned| planned["kind"] != DEPLOYMENT.kind && planned["metadata"]["name"] == *name)
        };
        let is_selected = |pod: &Arc<Value>| {
            let labels = &pod["metadata"]["labels"];
            let set = &labels[LEADER_WORKER_SET_NAME];
            set.is_string()
                && !is_planned_set(set)
                && !is_terminating(pod)
                && selector.iter().all(|(key, value)| labels[key] == *value)
        };
        self.pods.iter().any(is_selected)
    }
}

/// Returns the live route, restricted to the obsolete workload of its component with the most serving Pods.
fn retained_route(planned: Value, live: &Value, obsolete: &[LiveWorkload]) -> Value {
    let mut route = planned;
    for (field, value) in route["spec"].as_object_mut().into_iter().flatten() {
        if !live["spec"][field].is_null() {
            *value = live["spec"][field].clone();
        }
    }
    let component = route["spec"]["selector"][COMPONENT].clone();
    let of_component = obsolete.iter().filter(|workload| workload.object["metadata"]["labels"][COMPONENT] == component);
    if let Some(labels) = of_component.max_by_key(|workload| serving_pods(workload).count()).and_then(pod_labels) {
        restrict(&mut route, labels);
    }
    route
}

/// Returns the planned route, restricted to the planned workload of its component. Until this has a serving Pod, the live
/// route is retained.
fn route_to_planned(planned: Value, live: Option<&Value>, workloads: &[PlannedWorkload]) -> DesiredObject {
    let component = &planned["spec"]["selector"][COMPONENT];
    let mut of_component =
        workloads.iter().filter(|workload| workload.planned["metadata"]["labels"][COMPONENT] == *component);
    // No selector matches the Pods of several workloads only.
    let (Some(workload), None) = (of_component.next(), of_component.next()) else {
        return DesiredObject::Apply(planned);
    };
    match workload.live.as_ref().and_then(pod_labels) {
        Some(labels) => {
            let mut route = planned;
            restrict(&mut route, labels);
            DesiredObject::Apply(route)
        }
        None if live.is_some() => DesiredObject::Defer(planned),
        None => DesiredObject::Apply(planned),
    }
}

/// Returns the labels that only the serving Pods of the workload have; `None` if no Pod serves. Of a Deployment, these are the
/// Pods of the template with the most serving Pods.
fn pod_labels(workload: &LiveWorkload) -> Option<Map<String, Value>> {
    if workload.object["kind"] != DEPLOYMENT.kind {
        serving_pods(workload).next()?;
        let name = &workload.object["metadata"]["name"];
        return Some(Map::from_iter([
            (LEADER_WORKER_SET_NAME.to_owned(), name.clone()),
            (WORKER_INDEX.to_owned(), json!("0")),
        ]));
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for hash in serving_pods(workload).filter_map(|pod| pod["metadata"]["labels"][POD_TEMPLATE_HASH].as_str()) {
        *counts.entry(hash).or_default() += 1;
    }
    let (hash, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some(Map::from_iter([(POD_TEMPLATE_HASH.to_owned(), json!(hash))]))
}

fn restrict(route: &mut Value, labels: Map<String, Value>) {
    let Some(selector) = route["spec"]["selector"].as_object_mut() else { return };
    RESTRICTING_LABELS.iter().for_each(|label| drop(selector.remove(*label)));
    selector.extend(labels);
}
