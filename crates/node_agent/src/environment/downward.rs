//! The downward API: fields of the Pod and resources of its containers.

use apimachinery::{Quantity, object};
use serde_json::Value;

use super::object_source::ObjectSource;

/// Returns a field of the downward API. `metadata.labels` and `metadata.annotations` are formatted as lines of
/// `key="value"`.
pub(crate) fn pod_field(path: &str, pod: &Value) -> String {
    if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        let pointer = format!("/{}", map.replace('.', "/"));
        return object::string_map(pod.pointer(&pointer)).remove(key).unwrap_or_default();
    }
    match path {
        "metadata.labels" | "metadata.annotations" => {
            let entries = object::string_map(pod.pointer(&format!("/{}", path.replace('.', "/"))));
            let lines: Vec<String> = entries.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
            lines.join("\n")
        }
        "status.podIPs" => object::text(pod, "/status/podIP").to_owned(),
        "status.hostIPs" => object::text(pod, "/status/hostIP").to_owned(),
        _ => object::text(pod, &format!("/{}", path.replace('.', "/"))).to_owned(),
    }
}

/// Returns a resource field such as `limits.cpu`, divided by `divisor` and rounded up. If the container has no CPU or
/// memory limit, returns the allocatable amount of its node.
pub(crate) fn resource_field(field: &Value, container: &Value, pod: &Value, sources: &dyn ObjectSource) -> String {
    let container_name = object::text(field, "/containerName");
    let named_container =
        object::items(pod.pointer("/spec/containers")).find(|c| object::text(c, "/name") == container_name);
    let container = named_container.unwrap_or(container);
    let Some((list_name, resource)) = object::text(field, "/resource").split_once('.') else { return String::new() };
    let amount = container.get("resources").and_then(|r| r.get(list_name)?.get(resource));
    let parse_quantity = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
    let node_allocatable = || (list_name == "limits").then(|| sources.allocatable().get(resource).copied()).flatten();
    let amount = amount.and_then(parse_quantity).or_else(node_allocatable).unwrap_or(Quantity::ZERO);
    let divisor = field
        .get("divisor")
        .and_then(parse_quantity)
        .filter(|divisor| !divisor.is_zero())
        .unwrap_or(Quantity::from_units(1));
    let ratio = amount.as_f64() / divisor.as_f64();
    format!("{:.0}", ratio.ceil())
}
