//! The downward API: what a container is told of its Pod and of its own resources.

use apimachinery::quantity::Quantity;
use serde_json::Value;

use super::{Sources, list};
use crate::object;
use crate::workloads::ownership::string_map;

/// A field of the downward API; all labels or annotations together are lines of `key="value"`.
pub(crate) fn downward(path: &str, pod: &Value) -> String {
    if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        let pointer = format!("/{}", map.replace('.', "/"));
        return string_map(pod.pointer(&pointer)).remove(key).unwrap_or_default();
    }
    match path {
        "metadata.labels" | "metadata.annotations" => {
            let all = string_map(pod.pointer(&format!("/{}", path.replace('.', "/"))));
            let lines: Vec<String> = all.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
            lines.join("\n")
        }
        "status.podIPs" => object::text(pod, "/status/podIP").to_owned(),
        "status.hostIPs" => object::text(pod, "/status/hostIP").to_owned(),
        _ => object::text(pod, &format!("/{}", path.replace('.', "/"))).to_owned(),
    }
}

/// `limits.cpu` and the like, rounded up in units of the divisor. Without a limit of cpu or memory it is what the node
/// has.
pub(crate) fn resource_field(field: &Value, container: &Value, pod: &Value, sources: &dyn Sources) -> String {
    let named = object::text(field, "/containerName");
    let other = list(pod.get("spec").unwrap_or(&Value::Null), "containers").find(|c| object::text(c, "/name") == named);
    let container = other.unwrap_or(container);
    let Some((kind, resource)) = object::text(field, "/resource").split_once('.') else { return String::new() };
    let amount = container.get("resources").and_then(|r| r.get(kind)?.get(resource));
    let parse = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
    let of_node = || (kind == "limits").then(|| sources.allocatable().get(resource).copied()).flatten();
    let amount = amount.and_then(parse).or_else(of_node).unwrap_or(Quantity::ZERO);
    let divisor = field.get("divisor").and_then(parse).filter(|d| !d.is_zero()).unwrap_or(Quantity::from_units(1));
    let ratio = amount.as_f64() / divisor.as_f64();
    format!("{:.0}", ratio.ceil())
}
