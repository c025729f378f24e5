//! EndpointSlices: the Pods that a Service selects.
//!
//! There is one slice per distinct set of resolved ports (a named target port may differ between Pods). Only IPv4 is
//! supported. The limit of 100 endpoints per slice is not enforced.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::{LabelSelector, object, pod};
use apiserver::ports::Random;
use serde_json::{Map, Value, json};

use super::action::{Action, Plan};
use super::ownership;

/// Storage name of EndpointSlices.
pub(crate) const RESOURCE: &str = "endpointslices.discovery.k8s.io";

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Reconciles the slices of a Service with its Pods.
pub(crate) fn plan(service: &Value, pods: &[Arc<Value>], slices: &[Arc<Value>], random: &dyn Random) -> Plan {
    let mut plan = Plan::default();
    let selector = object::string_map(service.pointer("/spec/selector"));
    if selector.is_empty() || object::is_deleting(service) {
        return plan;
    }
    let selector = LabelSelector::from_labels(&selector);
    let mut desired: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| selects(service, &selector, pod)) {
        let ports = ports(service, pod);
        desired.entry(ports.to_string()).or_insert_with(|| (ports, Vec::new())).1.push(endpoint(service, pod));
    }
    if desired.is_empty() {
        desired.insert(String::new(), (json!([]), Vec::new())); // a Service without Pods has one empty slice
    }
    let belongs_to_service = |slice: &&Arc<Value>| is_slice_of(service, slice);
    let mut existing: Vec<&Arc<Value>> = slices.iter().filter(belongs_to_service).collect();
    for (ports, endpoints) in desired.into_values() {
        let matching = existing.iter().position(|s| s.get("ports").unwrap_or(&json!([])) == &ports);
        let index = matching.or((!existing.is_empty()).then_some(0));
        match index.map(|index| existing.remove(index)) {
            Some(slice) => update(&mut plan, slice, ports, endpoints),
            None => {
                plan.push(Action::Create { resource: RESOURCE, object: new_slice(service, ports, endpoints, random) });
            }
        }
    }
    for slice in existing {
        plan.push(Action::Delete { resource: RESOURCE, object: Arc::clone(slice) });
    }
    plan
}

/// Returns the Service of a slice that this controller manages.
pub(crate) fn service_of(slice: &Value) -> Option<&str> {
    let labels = slice.pointer("/metadata/labels")?;
    (labels.get(MANAGED_BY)? == MANAGER).then(|| labels.get(SERVICE_NAME)?.as_str()).flatten()
}

fn is_slice_of(service: &Value, slice: &Value) -> bool {
    object::namespace(slice) == object::namespace(service) && service_of(slice) == Some(object::name(service))
}

/// Whether the Pod is an endpoint of the Service.
fn selects(service: &Value, selector: &LabelSelector, pod: &Value) -> bool {
    object::namespace(pod) == object::namespace(service)
        && selector.matches(&object::labels(pod))
        && !object::text(pod, "/status/podIP").is_empty()
        && !pod::is_finished(pod)
}

/// Returns the endpoint of a Pod.
fn endpoint(service: &Value, pod: &Value) -> Value {
    let publish_not_ready = service.pointer("/spec/publishNotReadyAddresses") == Some(&Value::Bool(true));
    let serving = pod::is_ready(pod);
    let terminating = object::is_deleting(pod);
    let mut endpoint = json!({
        "addresses": [object::text(pod, "/status/podIP")],
        "conditions": {
            "ready": publish_not_ready || (serving && !terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "nodeName": object::text(pod, "/spec/nodeName"),
        "targetRef": {
            "kind": "Pod",
            "namespace": object::namespace(pod),
            "name": object::name(pod),
            "uid": object::uid(pod),
        },
    });
    let hostname = object::text(pod, "/spec/hostname");
    if !hostname.is_empty() && object::text(pod, "/spec/subdomain") == object::name(service) {
        endpoint["hostname"] = json!(hostname);
    }
    endpoint
}

/// Returns the ports of the Service with the target ports resolved for one Pod; a named port that no container of the
/// Pod declares is omitted.
fn ports(service: &Value, pod: &Value) -> Value {
    let service_ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let resolved = service_ports.into_iter().flatten().filter_map(|port| {
        let number = match port.get("targetPort") {
            None | Some(Value::Null) => port.get("port")?.as_i64()?,
            Some(Value::String(name)) => container_port(pod, name)?,
            Some(number) => number.as_i64()?,
        };
        let mut entry = Map::new();
        entry.insert("name".to_owned(), json!(object::text(port, "/name")));
        entry.insert("port".to_owned(), json!(number));
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        entry.insert("protocol".to_owned(), json!(protocol));
        if let Some(protocol) = port.get("appProtocol") {
            entry.insert("appProtocol".to_owned(), protocol.clone());
        }
        Some(Value::Object(entry))
    });
    Value::Array(resolved.collect())
}

/// Returns the number of the container port with this name in the Pod.
pub(crate) fn container_port(pod: &Value, name: &str) -> Option<i64> {
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    let mut ports = containers.iter().filter_map(|c| c.get("ports")?.as_array()).flatten();
    ports.find(|port| object::text(port, "/name") == name)?.get("containerPort")?.as_i64()
}

/// Updates a slice if its ports or endpoints differ.
fn update(plan: &mut Plan, slice: &Arc<Value>, ports: Value, endpoints: Vec<Value>) {
    let endpoints = Value::Array(endpoints);
    let empty = json!([]);
    if slice.get("ports").unwrap_or(&empty) == &ports && slice.get("endpoints").unwrap_or(&empty) == &endpoints {
        return;
    }
    let mut slice = slice.as_ref().clone();
    slice["ports"] = ports;
    slice["endpoints"] = endpoints;
    plan.push(Action::Update { resource: RESOURCE, object: slice });
}

/// Returns a new slice of the Service.
fn new_slice(service: &Value, ports: Value, endpoints: Vec<Value>, random: &dyn Random) -> Value {
    let mut owner = service.clone();
    owner["apiVersion"] = json!("v1");
    owner["kind"] = json!("Service");
    let name = object::name(service);
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-{}", random.suffix(5)),
            "generateName": format!("{name}-"),
            "namespace": object::namespace(service),
            "labels": {SERVICE_NAME: name, MANAGED_BY: MANAGER},
            "ownerReferences": [ownership::controller_reference(&owner)],
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": endpoints,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver::ports::SystemRandom;

    #[test]
    fn creates_and_updates_slice_of_ready_pod() {
        let service = json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "s"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]},
        });
        let pod = Arc::new(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "p", "labels": {"app": "web"}},
            "spec": {"nodeName": "x", "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"phase": "Running", "podIP": "127.1.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
        }));
        let first = plan(&service, &[Arc::clone(&pod)], &[], &SystemRandom);
        let [Action::Create { object, .. }] = first.actions.as_slice() else { panic!("{first:?}") };
        assert_eq!(object["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
        assert_eq!(object["endpoints"][0]["conditions"]["ready"], true);
        let slices = [Arc::new(object.clone())];
        assert_eq!(plan(&service, &[pod], &slices, &SystemRandom).actions, []);
        let without_pods = plan(&service, &[], &slices, &SystemRandom);
        let [Action::Update { object, .. }] = without_pods.actions.as_slice() else { panic!("{without_pods:?}") };
        assert_eq!(object["endpoints"], json!([]));
    }
}
