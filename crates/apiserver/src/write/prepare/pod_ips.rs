//! Pod IPs in the status of Pods.

use serde_json::{Value, json};

use crate::resources::Resource;
use apimachinery::object::{self, set_default};

/// If `status.podIPs` of a Pod is absent, sets it to a list that contains `status.podIP`.
pub(in crate::write) fn default_pod_ips(resource: &Resource, pod: &mut Value) {
    if resource.storage != "pods" {
        return;
    }
    let address = object::text(pod, "/status/podIP").to_owned();
    if let Some(status) = pod.get_mut("status").filter(|_| !address.is_empty()) {
        set_default(object::members(status), "podIPs", json!([{"ip": address}]));
    }
}
