//! Defaults of Services and EndpointSlices.

use serde_json::{Map, Value, json};

use apimachinery::object::{self, child_object, set_default};

pub(super) fn service_defaults(spec: &mut Map<String, Value>) {
    set_default(spec, "type", json!("ClusterIP"));
    set_default(spec, "sessionAffinity", json!("None"));
    if spec["sessionAffinity"] == "ClientIP" {
        set_default(
            child_object(child_object(spec, "sessionAffinityConfig"), "clientIP"),
            "timeoutSeconds",
            json!(10800),
        );
    }
    if spec["type"] != "ExternalName" {
        set_default(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if spec["type"] == "NodePort" || spec["type"] == "LoadBalancer" {
        set_default(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if spec["type"] == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports {
        let port = object::members(port);
        set_default(port, "protocol", json!("TCP"));
        if port.get("targetPort").is_some_and(|target| *target == 0 || *target == "") {
            port.remove("targetPort");
        }
        if let Some(number) = port.get("port").cloned() {
            set_default(port, "targetPort", number);
        }
    }
}

/// Applies the defaults of the ports of an EndpointSlice.
pub(super) fn endpoint_slice_defaults(slice: &mut Value) {
    for port in slice.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let port = object::members(port);
        set_default(port, "name", json!(""));
        set_default(port, "protocol", json!("TCP"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded on kube-apiserver 1.37.
    #[test]
    fn zero_and_empty_target_ports_are_defaulted() {
        for target in [json!(0), json!("")] {
            let mut spec = json!({"ports": [{"port": 80, "targetPort": target}]});
            service_defaults(object::members(&mut spec));
            assert_eq!(spec["ports"][0]["targetPort"], 80, "{target}");
        }
    }
}
