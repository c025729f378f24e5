//! What the type of a Service asks for: an address in the cluster, ports on nodes.

use serde_json::Value;

use crate::object;

/// Fields that go with an address.
const OF_ADDRESS: [&str; 5] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"];

/// Fields that go with ports on nodes.
const OF_NODE_PORTS: [&str; 1] = ["externalTrafficPolicy"];

/// Fields that go with a load balancer.
const OF_BALANCER: [&str; 2] = ["allocateLoadBalancerNodePorts", "loadBalancerClass"];

pub(super) fn has_address(service: &Value) -> bool {
    object::text(service, "/spec/type") != "ExternalName"
}

pub(super) fn has_node_ports(service: &Value) -> bool {
    match object::text(service, "/spec/type") {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

/// A Service of another type loses what its old one gave it, unless the client wrote something else there.
pub(super) fn left(current: &Value, service: &mut Value) {
    let is_balanced = |service: &Value| object::text(service, "/spec/type") == "LoadBalancer";
    let lost = |needs: fn(&Value) -> bool, service: &Value| needs(current) && !needs(service);
    if lost(has_address, service) {
        drop_same(current, service, &OF_ADDRESS);
    }
    if lost(has_node_ports, service) {
        drop_same(current, service, &OF_NODE_PORTS);
        let had = ports(current);
        for port in service["spec"]["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            let number = port.get("nodePort").cloned();
            if had.iter().any(|before| before.get("nodePort").cloned() == number) {
                port.remove("nodePort");
            }
        }
    }
    if is_balanced(current) && !is_balanced(service) {
        drop_same(current, service, &OF_BALANCER);
    }
}

fn drop_same(current: &Value, service: &mut Value, fields: &[&str]) {
    let spec = object::members(&mut service["spec"]);
    for field in fields {
        if spec.get(*field) == current["spec"].get(*field) {
            spec.remove(*field);
        }
    }
}

/// The ports of a Service.
pub(super) fn ports(service: &Value) -> Vec<Value> {
    service.pointer("/spec/ports").and_then(Value::as_array).cloned().unwrap_or_default()
}
