//! The defaults of a Pod's specification, in Pods and in templates.

use apimachinery::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{child, set};
use crate::object;

/// Fills in the specification of a Pod itself.
pub(super) fn of_pod(spec: &mut Map<String, Value>) {
    specification(spec);
    only_pods(spec);
    set(spec, "enableServiceLinks", json!(true));
}

/// Fills in a `PodSpec`.
pub(super) fn specification(spec: &mut Map<String, Value>) {
    set(spec, "restartPolicy", json!("Always"));
    set(spec, "terminationGracePeriodSeconds", json!(30));
    set(spec, "dnsPolicy", json!("ClusterFirst"));
    set(spec, "schedulerName", json!("default-scheduler"));
    child(spec, "securityContext");
    let account = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned();
    if let Some(account) = account {
        set(spec, "serviceAccount", account.clone());
        set(spec, "serviceAccountName", account);
    }
    for list in ["initContainers", "containers"] {
        items(spec.get_mut(list)).for_each(container);
    }
    items(spec.get_mut("volumes")).for_each(volume);
}

/// What only Pods get, and templates of Pods do not: limits are requests unless said otherwise.
fn only_pods(spec: &mut Map<String, Value>) {
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), json!(1));
    }
    let on_host = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["containers", "initContainers"] {
        if on_host {
            items(spec.get_mut(list)).for_each(host_ports);
        }
        items(spec.get_mut(list)).filter_map(|container| container.get_mut("resources")).for_each(requests);
    }
}

/// In the network of the node a port is one of the node.
fn host_ports(container: &mut Map<String, Value>) {
    for port in items(container.get_mut("ports")) {
        let own = port.get("containerPort").filter(|own| **own != 0).cloned();
        let is_open = port.get("hostPort").is_none_or(|host| *host == 0);
        if let Some(own) = own.filter(|_| is_open) {
            port.insert("hostPort".to_owned(), own);
        }
    }
}

fn requests(resources: &mut Value) {
    let resources = object::members(resources);
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let requests = child(resources, "requests");
    for (name, limit) in limits {
        set(requests, &name, limit);
    }
}

fn container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let untagged = !image.contains('@') && !image.rsplit('/').next().unwrap_or_default().contains(':');
    let policy = if untagged || image.ends_with(":latest") { "Always" } else { "IfNotPresent" };
    set(container, "imagePullPolicy", json!(policy));
    set(container, "terminationMessagePath", json!("/dev/termination-log"));
    set(container, "terminationMessagePolicy", json!("File"));
    resources(child(container, "resources"));
    for port in items(container.get_mut("ports")) {
        set(port, "protocol", json!("TCP"));
    }
    for env in items(container.get_mut("env")) {
        if let Some(field) = env.get_mut("valueFrom").and_then(|from| from.get_mut("fieldRef")) {
            set(object::members(field), "apiVersion", json!("v1"));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(found) = container.get_mut(name) {
            probe(object::members(found));
        }
    }
}

/// Quantities are strings in their canonical form.
pub(super) fn resources(resources: &mut Map<String, Value>) {
    for part in ["limits", "requests"] {
        for quantity in resources.get_mut(part).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            canonical(quantity);
        }
    }
}

fn canonical(quantity: &mut Value) {
    let written = match &*quantity {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    // A text that is no quantity stays, for validation to name it.
    if let Ok(parsed) = written.parse::<Quantity>() {
        *quantity = json!(parsed.to_string());
    }
}

fn probe(probe: &mut Map<String, Value>) {
    set(probe, "timeoutSeconds", json!(1));
    set(probe, "periodSeconds", json!(10));
    set(probe, "successThreshold", json!(1));
    set(probe, "failureThreshold", json!(3));
    if let Some(get) = probe.get_mut("httpGet") {
        let get = object::members(get);
        set(get, "path", json!("/"));
        set(get, "scheme", json!("HTTP"));
    }
    if let Some(call) = probe.get_mut("grpc") {
        set(object::members(call), "service", json!(""));
    }
}

fn volume(volume: &mut Map<String, Value>) {
    for name in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(name) {
            set(object::members(source), "defaultMode", json!(0o644));
        }
    }
    for name in ["downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(name) else { continue };
        field_versions(source);
    }
    if let Some(source) = volume.get_mut("hostPath") {
        set(object::members(source), "type", json!(""));
    }
    if volume.len() == 1 {
        set(volume, "emptyDir", json!({}));
    }
}

/// Fields are those of `v1`, in files as in variables.
fn field_versions(source: &mut Value) {
    for file in items(source.get_mut("items")) {
        if let Some(field) = file.get_mut("fieldRef") {
            set(object::members(field), "apiVersion", json!("v1"));
        }
    }
    for projection in items(source.get_mut("sources")) {
        if let Some(pod) = projection.get_mut("downwardAPI") {
            field_versions(pod);
        }
    }
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.and_then(Value::as_array_mut).into_iter().flatten().map(object::members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_in_the_network_of_the_node_are_its_ports() {
        let ports = json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]);
        let containers = json!([{"name": "c", "image": "x", "ports": ports}]);
        let mut spec = json!({"hostNetwork": true, "initContainers": containers, "containers": containers});
        of_pod(object::members(&mut spec));
        for list in ["containers", "initContainers"] {
            assert_eq!(spec[list][0]["ports"][0]["hostPort"], 80);
            assert_eq!(spec[list][0]["ports"][1]["hostPort"], 81);
        }
        let mut template = json!({"hostNetwork": true, "containers": containers});
        specification(object::members(&mut template));
        assert!(template["containers"][0]["ports"][0].get("hostPort").is_none());
    }

    #[test]
    fn limits_become_requests_in_canonical_form() {
        let mut spec = json!({"containers": [{"name": "c", "image": "vllm/vllm-openai:v0.9",
            "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "1024Mi"}}}]});
        specification(object::members(&mut spec));
        only_pods(object::members(&mut spec));
        let container = &spec["containers"][0];
        assert_eq!(container["resources"]["requests"], json!({"nvidia.com/gpu": "1", "memory": "1Gi"}));
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(spec["restartPolicy"], "Always");
    }
}
