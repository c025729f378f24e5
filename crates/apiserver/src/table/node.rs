//! Table columns of Nodes.

use apimachinery::object;
use serde_json::{Value, json};

use super::cell::{age, column, items, or_none, or_unknown};
use super::column::Column;

pub(super) fn columns() -> Vec<Column> {
    vec![
        column("Status", "string", 0, |node, _| json!(node_status(node))),
        column("Roles", "string", 0, |node, _| or_none(&node_roles(node))),
        age(),
        column("Version", "string", 0, |node, _| json!(object::text(node, "/status/nodeInfo/kubeletVersion"))),
        column("Internal-IP", "string", 1, |node, _| or_none(address(node, "InternalIP"))),
        column("External-IP", "string", 1, |node, _| or_none(address(node, "ExternalIP"))),
        column("OS-Image", "string", 1, |node, _| or_unknown(object::text(node, "/status/nodeInfo/osImage"))),
        column("Kernel-Version", "string", 1, |node, _| {
            or_unknown(object::text(node, "/status/nodeInfo/kernelVersion"))
        }),
        column("Container-Runtime", "string", 1, |node, _| {
            or_unknown(object::text(node, "/status/nodeInfo/containerRuntimeVersion"))
        }),
    ]
}

fn node_status(node: &Value) -> String {
    let ready = items(node, "/status/conditions").find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|ready| object::text(ready, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let roles: Vec<&str> = labels.filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/")).collect();
    roles.join(",")
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    items(node, "/status/addresses")
        .find(|address| address["type"] == kind)
        .map(|address| object::text(address, "/address"))
        .unwrap_or_default()
}
