//! EndpointSlices: which Pods answer for a Service.
//!
//! One slice per distinct set of resolved ports (a named target port may differ between Pods), IPv4 only, without the
//! limit of 100 endpoints per slice.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::selector::LabelSelector;
use serde_json::{Map, Value, json};

use super::action::{Action, Plan};
use super::{ownership, pod};
use crate::object;
use crate::ports::Random;

pub(crate) const RESOURCE: &str = "endpointslices.discovery.k8s.io";

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// What follows from a Service, the Pods and the slices around it.
pub(crate) fn plan(service: &Value, pods: &[Arc<Value>], slices: &[Arc<Value>], random: &dyn Random) -> Plan {
    let mut plan = Plan::default();
    let selector = ownership::string_map(service.pointer("/spec/selector"));
    if selector.is_empty() || object::is_deleting(service) {
        return plan;
    }
    let selector = LabelSelector::from_labels(&selector);
    let mut wanted: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| selects(service, &selector, pod)) {
        let ports = ports(service, pod);
        wanted.entry(ports.to_string()).or_insert_with(|| (ports, Vec::new())).1.push(endpoint(service, pod));
    }
    if wanted.is_empty() {
        wanted.insert(String::new(), (json!([]), Vec::new())); // a Service without Pods has one empty slice
    }
    let mine = |slice: &&Arc<Value>| is_slice_of(service, slice);
    let mut existing: Vec<&Arc<Value>> = slices.iter().filter(mine).collect();
    for (ports, endpoints) in wanted.into_values() {
        let same = existing.iter().position(|s| s.get("ports").unwrap_or(&json!([])) == &ports);
        let slot = same.or((!existing.is_empty()).then_some(0));
        match slot.map(|at| existing.remove(at)) {
            Some(slice) => update(&mut plan, slice, ports, endpoints),
            None => plan.push(Action::Create { resource: RESOURCE, object: slice(service, ports, endpoints, random) }),
        }
    }
    for slice in existing {
        plan.push(Action::Delete { resource: RESOURCE, object: Arc::clone(slice) });
    }
    plan
}

/// The Service a slice was made for, if we made it.
pub(crate) fn service_of(slice: &Value) -> Option<&str> {
    let labels = slice.pointer("/metadata/labels")?;
    (labels.get(MANAGED_BY)? == MANAGER).then(|| labels.get(SERVICE_NAME)?.as_str()).flatten()
}

fn is_slice_of(service: &Value, slice: &Value) -> bool {
    object::namespace(slice) == object::namespace(service) && service_of(slice) == Some(object::name(service))
}

fn selects(service: &Value, selector: &LabelSelector, pod: &Value) -> bool {
    object::namespace(pod) == object::namespace(service)
        && selector.matches(&ownership::labels(pod))
        && !object::text(pod, "/status/podIP").is_empty()
        && !matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

fn endpoint(service: &Value, pod: &Value) -> Value {
    let publishes = service.pointer("/spec/publishNotReadyAddresses") == Some(&Value::Bool(true));
    let serving = pod::is_ready(pod);
    let terminating = object::is_deleting(pod);
    let mut endpoint = json!({
        "addresses": [object::text(pod, "/status/podIP")],
        "conditions": {
            "ready": publishes || (serving && !terminating),
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

/// The Service's ports with their targets resolved against one Pod; a name that the Pod lacks is left out.
fn ports(service: &Value, pod: &Value) -> Value {
    let declared = service.pointer("/spec/ports").and_then(Value::as_array);
    let resolved = declared.into_iter().flatten().filter_map(|port| {
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

/// The number behind a port name of any of the Pod's containers.
pub(crate) fn container_port(pod: &Value, name: &str) -> Option<i64> {
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    let mut ports = containers.iter().filter_map(|c| c.get("ports")?.as_array()).flatten();
    ports.find(|port| object::text(port, "/name") == name)?.get("containerPort")?.as_i64()
}

fn update(plan: &mut Plan, slice: &Arc<Value>, ports: Value, endpoints: Vec<Value>) {
    let endpoints = Value::Array(endpoints);
    let none = json!([]);
    if slice.get("ports").unwrap_or(&none) == &ports && slice.get("endpoints").unwrap_or(&none) == &endpoints {
        return;
    }
    let mut slice = slice.as_ref().clone();
    slice["ports"] = ports;
    slice["endpoints"] = endpoints;
    plan.push(Action::Update { resource: RESOURCE, object: slice });
}

fn slice(service: &Value, ports: Value, endpoints: Vec<Value>, random: &dyn Random) -> Value {
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
            "ownerReferences": [ownership::reference(&owner)],
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": endpoints,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::SystemRandom;

    #[test]
    fn a_ready_pod_becomes_an_endpoint_once() {
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
        let emptied = plan(&service, &[], &slices, &SystemRandom);
        let [Action::Update { object, .. }] = emptied.actions.as_slice() else { panic!("{emptied:?}") };
        assert_eq!(object["endpoints"], json!([]));
    }
}
