//! Fields of routes: Services, BackendPools and InferencePools.

use cluster::metadata_field;
use plan::labels::{LEADER_WORKER_SET_NAME, WORKER_INDEX};
use serde_json::{Map, Value};

use crate::kinds::{BACKEND_POOL, INFERENCE_POOL, SERVICE};
use crate::workloads::{GROUP_TEMPLATE_HASH, POD_TEMPLATE_HASH};

/// Labels that restrict a selector to the Pods of one workload or of one of its templates.
const RESTRICTING_LABELS: [&str; 4] = [POD_TEMPLATE_HASH, GROUP_TEMPLATE_HASH, LEADER_WORKER_SET_NAME, WORKER_INDEX];

/// Fields of a route that depend on the Pods that it routes to.
const TARGET_FIELDS: [&str; 4] = ["selector", "ports", "targetPorts", "modelServer"];

/// Returns whether requests are routed to the Pods that the object selects.
pub(super) fn is_route(object: &Value) -> bool {
    [SERVICE, BACKEND_POOL, INFERENCE_POOL].iter().any(|kind| object["kind"] == kind.kind)
}

/// Returns whether both are the same object.
pub(super) fn is_same(left: &Value, right: &Value) -> bool {
    left["kind"] == right["kind"] && metadata_field(left, "name") == metadata_field(right, "name")
}

/// Returns the first port of the Pods that a route routes to.
pub(super) fn target_port(route: &Value) -> &Value {
    let spec = &route["spec"];
    match () {
        () if route["kind"] == SERVICE.kind => &spec["ports"][0]["targetPort"],
        () if route["kind"] == INFERENCE_POOL.kind => &spec["targetPorts"][0]["number"],
        () => &spec["targetPorts"][0],
    }
}

/// Returns the labels of the Pods that a route selects.
pub(super) fn selector(route: &Value) -> &Value {
    let selector = &route["spec"]["selector"];
    if route["kind"] == INFERENCE_POOL.kind { &selector["matchLabels"] } else { selector }
}

/// Returns the selector of a route without the restriction to one workload. The `planned` route is not restricted.
pub(super) fn unrestricted_selector(route: &Value, planned: &Value) -> Map<String, Value> {
    let mut unrestricted = selector(route).as_object().cloned().unwrap_or_default();
    let restrictions = RESTRICTING_LABELS.iter().filter(|label| selector(planned)[**label].is_null());
    restrictions.for_each(|label| drop(unrestricted.remove(*label)));
    unrestricted
}

/// Returns whether the Pod has all labels of a selector.
pub(super) fn selects(selector: &Map<String, Value>, labels: &Value) -> bool {
    selector.iter().all(|(key, value)| labels[key] == *value)
}

/// Returns the planned route with the Pods and the ports of the live one.
pub(super) fn with_live_target(planned: &Value, live: &Value) -> Value {
    let mut route = planned.clone();
    for (field, value) in route["spec"].as_object_mut().into_iter().flatten() {
        let live = &live["spec"][field];
        if TARGET_FIELDS.contains(&field.as_str()) && !live.is_null() {
            *value = live.clone();
        }
    }
    route
}

/// Restricts a route, which has the target of the planned or of the live route, to Pods with these labels.
pub(super) fn restrict(route: &mut Value, planned: &Value, labels: Map<String, Value>) {
    let mut restricted = unrestricted_selector(route, planned);
    restricted.extend(labels);
    let selector = &mut route["spec"]["selector"];
    *(if selector["matchLabels"].is_object() { &mut selector["matchLabels"] } else { selector }) = restricted.into();
}
