//! The defaults of a Service, and of its EndpointSlices.

use serde_json::{Map, Value, json};

use super::{child, set};
use crate::object;

pub(super) fn fill(spec: &mut Map<String, Value>) {
    set(spec, "type", json!("ClusterIP"));
    set(spec, "sessionAffinity", json!("None"));
    if spec["sessionAffinity"] == "ClientIP" {
        set(child(child(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", json!(10800));
    }
    if spec["type"] != "ExternalName" {
        set(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if spec["type"] == "NodePort" || spec["type"] == "LoadBalancer" {
        set(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if spec["type"] == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports {
        let port = object::members(port);
        set(port, "protocol", json!("TCP"));
        if let Some(number) = port.get("port").cloned() {
            set(port, "targetPort", number);
        }
    }
}

/// What is not said of the ports of an EndpointSlice.
pub(super) fn slice(slice: &mut Value) {
    for port in slice.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let port = object::members(port);
        set(port, "name", json!(""));
        set(port, "protocol", json!("TCP"));
    }
}
