//! Routes to the Pods of a service while obsolete and planned workloads exist, or Pods that serve on different ports.
//!
//! The Pods of both have the labels of their component, so a selector of these labels alone would also select Pods that are
//! not ready to serve, for example the workers of a group. It is restricted to the Pods of one workload.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{DesiredObject, is_terminating, metadata_field};
use plan::labels::{COMPONENT, LEADER_WORKER_SET_NAME, WORKER_INDEX};
use serde_json::{Map, Value, json};

use super::port_change::PortChange;
use super::serving::serving_pods;
use crate::kinds::{BACKEND_POOL, DEPLOYMENT, LLM_USE_CASE_SET, SERVICE};
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
    /// `retained` are the obsolete workloads while they serve.
    pub(super) fn desired_route(
        &self,
        planned: Value,
        retained: Option<&[LiveWorkload]>,
        workloads: &[PlannedWorkload],
    ) -> DesiredObject {
        match (self.live(&planned), retained) {
            (Some(_), Some(_)) if planned["kind"] == LLM_USE_CASE_SET.kind => DesiredObject::Defer(planned),
            (Some(live), Some(obsolete)) if is_routing_kind(&planned) && is_replaced(&planned, live, obsolete) => {
                DesiredObject::Apply(retained_route(planned, live, obsolete))
            }
            (live, _) if is_routing_kind(&planned) && self.selects_obsolete_group(&planned, workloads) => {
                route_to_planned(planned, live, workloads)
            }
            (Some(live), _) if is_routing_kind(&planned) => {
                DesiredObject::Apply(route_by_port(&planned, live, workloads).unwrap_or(planned))
            }
            _ => DesiredObject::Apply(planned),
        }
    }

    /// Returns whether a planned BackendPool waits for one of the `unready` workloads, because it routes to another component that
    /// is still planned and serves.
    pub(super) fn retains_component(
        &self,
        planned: &Value,
        workloads: &[PlannedWorkload],
        unready: &[&PlannedWorkload],
    ) -> bool {
        let Some(live) = self.live(planned).filter(|live| live["kind"] == BACKEND_POOL.kind) else { return false };
        let component = |route: &Value| route["spec"]["selector"][COMPONENT].clone();
        let is_of = |workload: &PlannedWorkload, component: &Value| {
            workload.planned["metadata"]["labels"][COMPONENT] == *component
        };
        let (old, new) = (component(live), component(planned));
        let serves =
            |workload: &PlannedWorkload| workload.live.as_ref().is_some_and(|live| serving_pods(live).next().is_some());
        old != new
            && unready.iter().any(|workload| is_of(workload, &new))
            && workloads.iter().any(|workload| is_of(workload, &old) && serves(workload))
    }

    /// Returns the port change of the component of a planned Service or BackendPool.
    pub(super) fn port_change<'a>(&self, planned: &Value, workloads: &'a [PlannedWorkload]) -> Option<PortChange<'a>> {
        if is_routing_kind(planned) { PortChange::find(planned, self.live(planned)?, workloads) } else { None }
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

/// Returns whether the workload of the component of a planned or live route is replaced by one of another kind or name.
fn is_replaced(planned: &Value, live: &Value, obsolete: &[LiveWorkload]) -> bool {
    let routes = [planned, live];
    obsolete.iter().any(|workload| {
        let component = &workload.object["metadata"]["labels"][COMPONENT];
        routes.iter().any(|route| route["spec"]["selector"][COMPONENT] == *component)
    })
}

fn is_routing_kind(object: &Value) -> bool {
    [SERVICE, BACKEND_POOL].iter().any(|kind| object["kind"] == kind.kind)
}

/// Returns the planned route with the spec of the live one.
fn with_live_spec(planned: Value, live: &Value) -> Value {
    let mut route = planned;
    for (field, value) in route["spec"].as_object_mut().into_iter().flatten() {
        if !live["spec"][field].is_null() {
            *value = live["spec"][field].clone();
        }
    }
    route
}

/// Returns the live route, restricted to the obsolete workload of its component with the most serving Pods.
fn retained_route(planned: Value, live: &Value, obsolete: &[LiveWorkload]) -> Value {
    let mut route = with_live_spec(planned, live);
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

/// Returns the route while Pods of a Deployment serve on another port than the planned one: to the live port as long as more
/// Pods serve on it. `None` if all serving Pods have the planned port, or if no port is known.
fn route_by_port(planned: &Value, live: &Value, workloads: &[PlannedWorkload]) -> Option<Value> {
    let change = PortChange::find(planned, live, workloads)?;
    let mut route = match change.retains_old_port() {
        true => with_live_spec(planned.clone(), live),
        false => planned.clone(),
    };
    restrict(&mut route, template_labels(change.routed_pods())?);
    Some(route)
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
    template_labels(serving_pods(workload))
}

/// Returns the labels of the template of a Deployment with the most Pods among `pods`.
fn template_labels<'a>(pods: impl IntoIterator<Item = &'a Value>) -> Option<Map<String, Value>> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for hash in pods.into_iter().filter_map(|pod| pod["metadata"]["labels"][POD_TEMPLATE_HASH].as_str()) {
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Returns a ready Pod of a Deployment of `component` that serves on `port`.
    fn pod(component: &str, hash: &str, port: u16) -> Arc<Value> {
        Arc::new(json!({"metadata": {"labels": {COMPONENT: component, POD_TEMPLATE_HASH: hash}},
            "spec": {"containers": [{"ports": [{"containerPort": port}]}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
    }

    fn deployment(component: &str) -> Value {
        json!({"kind": "Deployment", "metadata": {"name": component, "labels": {COMPONENT: component}}})
    }

    fn service(component: &str, port: u16) -> Value {
        json!({"kind": "Service", "metadata": {"name": component},
            "spec": {"selector": {COMPONENT: component}, "ports": [{"port": 80, "targetPort": port}]}})
    }

    /// The obsolete engine serves while its replacement starts. The route of the decoder follows the port of the decoder's Pods.
    #[rstest]
    #[case::replaced_component("engine", "engine", (8000, "old"))]
    #[case::other_component("decoder", "engine", (9000, "new"))]
    #[case::both_are_replaced("decoder", "decoder", (8000, "old"))]
    fn route_is_retained_for_replaced_components(
        #[case] component: &str,
        #[case] obsolete: &str,
        #[case] (expected_port, expected_template): (u16, &str),
    ) {
        let pods = vec![pod(component, "old", 8000), pod(component, "new", 9000)];
        let live = LiveWorkload { object: Arc::new(deployment(component)), pods: pods.clone() };
        let planned = PlannedWorkload::new(
            deployment(component),
            Some(deployment(component)),
            pods.iter().map(|pod| (**pod).clone()).collect(),
        );
        let obsolete = LiveWorkload { object: Arc::new(deployment(obsolete)), pods: live.pods[..1].to_vec() };
        let routes = Routes { live: vec![Arc::new(service(component, 8000))], pods };
        let route = routes.desired_route(service(component, 9000), Some(&[obsolete]), &[planned]);
        let spec = &route.object()["spec"];
        assert_eq!(spec["ports"][0]["targetPort"], expected_port);
        assert_eq!(spec["selector"][POD_TEMPLATE_HASH], expected_template);
    }
}
