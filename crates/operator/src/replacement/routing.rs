//! Routes to the Pods of a service while obsolete and planned workloads exist, or Pods that serve on different ports.
//!
//! The Pods of both have the labels of their component, so a selector of these labels alone would also select Pods that are
//! not ready to serve, for example the workers of a group. It is restricted to the Pods of one workload.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::{DesiredObject, is_terminating};
use plan::labels::{COMPONENT, LEADER_WORKER_SET_NAME};
use serde_json::{Map, Value};

use super::port_change::PortChange;
use super::route::{is_route, is_same, restrict, selector, selects, with_live_target};
use super::route_change::{RouteChange, set_labels, template_labels};
use super::serving::serving_pods;
use crate::kinds::{BACKEND_POOL, DEPLOYMENT, LLM_USE_CASE_SET};
use crate::workloads::{LiveWorkload, PlannedWorkload};

/// The existing routes and Pods of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    /// The existing Services, pools and LLMUseCaseSets of the service.
    pub(crate) live: Vec<Arc<Value>>,
    /// The Pods with the labels of the service, if its workloads may be replaced by others.
    pub(crate) pods: Vec<Arc<Value>>,
    /// The existing additional replicas of roles.
    pub(crate) surge_replicas: Vec<PlannedWorkload>,
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
            (Some(live), Some(obsolete)) if is_route(&planned) && is_replaced(&planned, live, obsolete) => {
                DesiredObject::Apply(retained_route(&planned, live, obsolete))
            }
            (live, _) if is_route(&planned) && self.selects_obsolete_group(&planned, workloads) => {
                route_to_planned(planned, live, workloads)
            }
            _ => {
                let route = self.change(&planned, workloads).map(|change| change.route());
                DesiredObject::Apply(route.unwrap_or(planned))
            }
        }
    }

    /// Returns whether a planned BackendPool waits for Pods that serve in place of those of the live one.
    pub(super) fn retains_pool(&self, planned: &Value, workloads: &[PlannedWorkload]) -> bool {
        planned["kind"] == BACKEND_POOL.kind
            && self.change(planned, workloads).is_some_and(|change| change.is_retained())
    }

    /// Returns the port changes of the Deployments that a planned route routes to.
    pub(super) fn port_changes(&self, planned: &Value, workloads: &[PlannedWorkload]) -> Vec<PortChange> {
        self.change(planned, workloads).map(|change| change.port_changes().collect()).unwrap_or_default()
    }

    /// Returns the LeaderWorkerSets of role-based services that serve until the `planned` routes have changed.
    pub(crate) fn last_sets(&self, planned: &[Value], workloads: &[PlannedWorkload]) -> BTreeSet<String> {
        let changes = planned.iter().filter_map(|planned| self.change(planned, workloads));
        changes.flat_map(|change| change.last_sets()).collect()
    }

    /// Returns the change of a planned route that exists.
    fn change<'a>(&'a self, planned: &'a Value, workloads: &'a [PlannedWorkload]) -> Option<RouteChange<'a>> {
        let live = if is_route(planned) { self.live(planned)? } else { return None };
        Some(RouteChange::new(planned, live, workloads.iter().chain(&self.surge_replicas)))
    }

    fn live(&self, planned: &Value) -> Option<&Value> {
        self.live.iter().find(|live| is_same(live, planned)).map(AsRef::as_ref)
    }

    /// Returns whether the selector matches Pods of a LeaderWorkerSet that is not planned and is not terminating. Workers that
    /// do not serve may be ready.
    fn selects_obsolete_group(&self, route: &Value, workloads: &[PlannedWorkload]) -> bool {
        let Some(selector) = selector(route).as_object() else { return false };
        let is_planned_set = |name: &Value| {
            let mut planned = workloads.iter().map(|workload| &workload.planned);
            planned.any(|planned| planned["kind"] != DEPLOYMENT.kind && planned["metadata"]["name"] == *name)
        };
        let is_selected = |pod: &Arc<Value>| {
            let labels = &pod["metadata"]["labels"];
            let set = &labels[LEADER_WORKER_SET_NAME];
            set.is_string() && !is_planned_set(set) && !is_terminating(pod) && selects(selector, labels)
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

/// Returns the live route, restricted to the obsolete workload of its component with the most serving Pods.
fn retained_route(planned: &Value, live: &Value, obsolete: &[LiveWorkload]) -> Value {
    let mut route = with_live_target(planned, live);
    let component = route["spec"]["selector"][COMPONENT].clone();
    let of_component = obsolete.iter().filter(|workload| workload.object["metadata"]["labels"][COMPONENT] == component);
    if let Some(labels) = of_component.max_by_key(|workload| serving_pods(workload).count()).and_then(pod_labels) {
        restrict(&mut route, planned, labels);
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
            let mut route = planned.clone();
            restrict(&mut route, &planned, labels);
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
        return Some(set_labels(&workload.object["metadata"]["name"]));
    }
    template_labels(serving_pods(workload))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::workloads::POD_TEMPLATE_HASH;

    /// Returns a ready Pod of a Deployment of `component` that serves on `port`.
    fn pod(component: &str, hash: &str, port: u16) -> Arc<Value> {
        Arc::new(json!({"metadata": {"labels": {COMPONENT: component, POD_TEMPLATE_HASH: hash}},
            "spec": {"containers": [{"ports": [{"containerPort": port}]}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
    }

    fn deployment(component: &str) -> Value {
        let labels = json!({COMPONENT: component});
        json!({"kind": "Deployment", "metadata": {"name": component, "labels": labels},
            "spec": {"template": {"metadata": {"labels": labels}}}})
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
        let live = LiveWorkload { object: Arc::new(deployment(component)), pods: pods.clone(), providers: Vec::new() };
        let planned = PlannedWorkload::new(
            deployment(component),
            Some(deployment(component)),
            pods.iter().map(|pod| (**pod).clone()).collect(),
        );
        let obsolete = LiveWorkload {
            object: Arc::new(deployment(obsolete)),
            pods: live.pods[..1].to_vec(),
            providers: Vec::new(),
        };
        let routes = Routes { live: vec![Arc::new(service(component, 8000))], pods, ..Routes::default() };
        let route = routes.desired_route(service(component, 9000), Some(&[obsolete]), &[planned]);
        let spec = &route.object()["spec"];
        assert_eq!(spec["ports"][0]["targetPort"], expected_port);
        assert_eq!(spec["selector"][POD_TEMPLATE_HASH], expected_template);
    }
}
