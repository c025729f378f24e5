//! Defaults of Pods and of Pod templates.

use apimachinery::Quantity;
use serde_json::{Map, Value, json};

use apimachinery::object::{self, child_object, set_default};

/// Applies the defaults of a Pod.
pub(super) fn pod_defaults(spec: &mut Map<String, Value>) {
    pod_spec_defaults(spec);
    standalone_pod_defaults(spec);
    set_default(spec, "enableServiceLinks", json!(true));
}

/// Applies the defaults of a `PodSpec`, in Pods and in templates.
pub(super) fn pod_spec_defaults(spec: &mut Map<String, Value>) {
    set_default(spec, "restartPolicy", json!("Always"));
    set_default(spec, "terminationGracePeriodSeconds", json!(30));
    set_default(spec, "dnsPolicy", json!("ClusterFirst"));
    set_default(spec, "schedulerName", json!("default-scheduler"));
    child_object(spec, "securityContext");
    let service_account = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned();
    if let Some(account) = service_account {
        set_default(spec, "serviceAccount", account.clone());
        set_default(spec, "serviceAccountName", account);
    }
    for list in ["initContainers", "containers"] {
        items(spec.get_mut(list)).for_each(container_defaults);
    }
    items(spec.get_mut("volumes")).for_each(volume_defaults);
}

/// Applies the defaults that apply to Pods but not to Pod templates: host ports, and requests derived from limits.
fn standalone_pod_defaults(spec: &mut Map<String, Value>) {
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), json!(1));
    }
    let uses_host_network = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["containers", "initContainers"] {
        if uses_host_network {
            items(spec.get_mut(list)).for_each(default_host_ports);
        }
        items(spec.get_mut(list)).filter_map(|container| container.get_mut("resources")).for_each(default_requests);
    }
}

/// Sets the host port of each port of a container in the host network to the container port.
fn default_host_ports(container: &mut Map<String, Value>) {
    for port in items(container.get_mut("ports")) {
        let container_port = port.get("containerPort").filter(|port| **port != 0).cloned();
        let has_no_host_port = port.get("hostPort").is_none_or(|host| *host == 0);
        if let Some(container_port) = container_port.filter(|_| has_no_host_port) {
            port.insert("hostPort".to_owned(), container_port);
        }
    }
}

fn default_requests(resources: &mut Value) {
    let resources = object::members(resources);
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let requests = child_object(resources, "requests");
    for (name, limit) in limits {
        set_default(requests, &name, limit);
    }
}

fn container_defaults(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let is_untagged = !image.contains('@') && !image.rsplit('/').next().unwrap_or_default().contains(':');
    let policy = if is_untagged || image.ends_with(":latest") { "Always" } else { "IfNotPresent" };
    set_default(container, "imagePullPolicy", json!(policy));
    set_default(container, "terminationMessagePath", json!("/dev/termination-log"));
    set_default(container, "terminationMessagePolicy", json!("File"));
    canonicalize_resources(child_object(container, "resources"));
    for port in items(container.get_mut("ports")) {
        set_default(port, "protocol", json!("TCP"));
    }
    for env in items(container.get_mut("env")) {
        if let Some(field) = env.get_mut("valueFrom").and_then(|from| from.get_mut("fieldRef")) {
            set_default(object::members(field), "apiVersion", json!("v1"));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name) {
            probe_defaults(object::members(probe));
        }
    }
}

/// Converts the quantities in limits and requests to their canonical string form.
pub(super) fn canonicalize_resources(resources: &mut Map<String, Value>) {
    for field in ["limits", "requests"] {
        for quantity in resources.get_mut(field).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            canonicalize(quantity);
        }
    }
}

fn canonicalize(quantity: &mut Value) {
    let text = match &*quantity {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    // Invalid quantities are left unchanged and reported by validation.
    if let Ok(parsed) = text.parse::<Quantity>() {
        *quantity = json!(parsed.to_string());
    }
}

fn probe_defaults(probe: &mut Map<String, Value>) {
    set_default(probe, "timeoutSeconds", json!(1));
    set_default(probe, "periodSeconds", json!(10));
    set_default(probe, "successThreshold", json!(1));
    set_default(probe, "failureThreshold", json!(3));
    if let Some(http_get) = probe.get_mut("httpGet") {
        let http_get = object::members(http_get);
        set_default(http_get, "path", json!("/"));
        set_default(http_get, "scheme", json!("HTTP"));
    }
    if let Some(grpc) = probe.get_mut("grpc") {
        set_default(object::members(grpc), "service", json!(""));
    }
}

fn volume_defaults(volume: &mut Map<String, Value>) {
    for name in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(name) {
            set_default(object::members(source), "defaultMode", json!(0o644));
        }
    }
    for name in ["downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(name) else { continue };
        default_field_versions(source);
    }
    if let Some(source) = volume.get_mut("hostPath") {
        set_default(object::members(source), "type", json!(""));
    }
    if volume.len() == 1 {
        set_default(volume, "emptyDir", json!({}));
    }
}

/// Sets the API version of the field references in a downward API or projected volume.
fn default_field_versions(source: &mut Value) {
    for file in items(source.get_mut("items")) {
        if let Some(field) = file.get_mut("fieldRef") {
            set_default(object::members(field), "apiVersion", json!("v1"));
        }
    }
    for projection in items(source.get_mut("sources")) {
        if let Some(pod) = projection.get_mut("downwardAPI") {
            default_field_versions(pod);
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
    fn defaults_host_ports_in_host_network() {
        let ports = json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]);
        let containers = json!([{"name": "c", "image": "x", "ports": ports}]);
        let mut spec = json!({"hostNetwork": true, "initContainers": containers, "containers": containers});
        pod_defaults(object::members(&mut spec));
        for list in ["containers", "initContainers"] {
            assert_eq!(spec[list][0]["ports"][0]["hostPort"], 80);
            assert_eq!(spec[list][0]["ports"][1]["hostPort"], 81);
        }
        let mut template = json!({"hostNetwork": true, "containers": containers});
        pod_spec_defaults(object::members(&mut template));
        assert!(template["containers"][0]["ports"][0].get("hostPort").is_none());
    }

    #[test]
    fn defaults_requests_to_canonical_limits() {
        let mut spec = json!({"containers": [{"name": "c", "image": "vllm/vllm-openai:v0.9",
            "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "1024Mi"}}}]});
        pod_spec_defaults(object::members(&mut spec));
        standalone_pod_defaults(object::members(&mut spec));
        let container = &spec["containers"][0];
        assert_eq!(container["resources"]["requests"], json!({"nvidia.com/gpu": "1", "memory": "1Gi"}));
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(spec["restartPolicy"], "Always");
    }
}
