//! What a Pod's status says from its first moment.

use serde_json::{Value, json};

use super::default::set;
use crate::object;

/// A Pod's address is also the first of its addresses.
pub(in crate::write) fn addresses(pod: &mut Value) {
    let address = object::text(pod, "/status/podIP").to_owned();
    if let Some(status) = pod.get_mut("status").filter(|_| !address.is_empty()) {
        set(object::members(status), "podIPs", json!([{"ip": address}]));
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`, by the requests and limits of the containers.
pub(super) fn quality(pod: &Value) -> &'static str {
    let containers = || {
        ["/spec/containers", "/spec/initContainers"]
            .into_iter()
            .filter_map(|list| pod.pointer(list).and_then(Value::as_array))
            .flatten()
    };
    let counted = ["cpu", "memory"];
    let value =
        |container: &Value, part: &str, name: &str| container.pointer(&format!("/resources/{part}/{name}")).cloned();
    let any = containers().any(|container| {
        counted
            .iter()
            .any(|name| value(container, "requests", name).is_some() || value(container, "limits", name).is_some())
    });
    if !any {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        counted.iter().all(|name| {
            let limit = value(container, "limits", name);
            limit.is_some() && value(container, "requests", name).is_none_or(|request| Some(request) == limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}
