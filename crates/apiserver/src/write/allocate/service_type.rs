//! Determines whether the type of a Service requires a cluster IP and node ports.

use apimachinery::object;
use serde_json::Value;

/// Fields that apply only to Services with a cluster IP.
const CLUSTER_IP_FIELDS: [&str; 5] =
    ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"];

/// Fields that apply only to Services with node ports.
const NODE_PORT_FIELDS: [&str; 1] = ["externalTrafficPolicy"];

/// Fields that apply only to Services with a load balancer.
const LOAD_BALANCER_FIELDS: [&str; 2] = ["allocateLoadBalancerNodePorts", "loadBalancerClass"];

pub(super) fn has_cluster_ip(service: &Value) -> bool {
    object::text(service, "/spec/type") != "ExternalName"
}

pub(super) fn has_node_ports(service: &Value) -> bool {
    match object::text(service, "/spec/type") {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

/// Clears the fields that do not apply to the new type of a Service, unless the client changed them.
pub(super) fn clear_unused_fields(current: &Value, service: &mut Value) {
    let is_load_balancer = |service: &Value| object::text(service, "/spec/type") == "LoadBalancer";
    let becomes_unused = |is_needed: fn(&Value) -> bool, service: &Value| is_needed(current) && !is_needed(service);
    if becomes_unused(has_cluster_ip, service) {
        remove_unchanged(current, service, &CLUSTER_IP_FIELDS);
    }
    if becomes_unused(has_node_ports, service) {
        remove_unchanged(current, service, &NODE_PORT_FIELDS);
        let current_ports = ports(current);
        for port in service["spec"]["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            let number = port.get("nodePort").cloned();
            if current_ports.iter().any(|current_port| current_port.get("nodePort").cloned() == number) {
                port.remove("nodePort");
            }
        }
    }
    if is_load_balancer(current) && !is_load_balancer(service) {
        remove_unchanged(current, service, &LOAD_BALANCER_FIELDS);
    }
}

fn remove_unchanged(current: &Value, service: &mut Value, fields: &[&str]) {
    let spec = object::members(&mut service["spec"]);
    for field in fields {
        if spec.get(*field) == current["spec"].get(*field) {
            spec.remove(*field);
        }
    }
}

/// Returns the ports of a Service.
pub(super) fn ports(service: &Value) -> Vec<Value> {
    service.pointer("/spec/ports").and_then(Value::as_array).cloned().unwrap_or_default()
}
