//! Nodes to uncordon or to add so that all pending Pods of a service can be scheduled, for services whose class is unknown.

use std::sync::Arc;

use apimachinery::pod_requests;
use embedded::{SchedulingSnapshot, UnschedulableReason, filter_nodes};
use serde_json::{Value, json};

use super::deletions::can_schedule_all;
use super::fields::text;
use super::simulated_nodes;
use crate::report::names::format_count;

/// Maximum number of nodes to add.
const MAX_NODES: usize = 64;
/// Taint of a cordoned node.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// Label with the name of the node.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Returns the nodes to uncordon, and the nodes to add, either of which lets all of `pods` run at the same time.
pub(super) fn node_remedies(pods: &[&Value], snapshot: &SchedulingSnapshot) -> Vec<String> {
    let Some(first) = pods.first() else { return Vec::new() };
    uncordon(first, pods, snapshot).into_iter().chain(add_nodes(first, pods, snapshot)).collect()
}

/// Returns the command that uncordons as few nodes as suffice.
fn uncordon(first: &Value, pods: &[&Value], snapshot: &SchedulingSnapshot) -> Option<String> {
    let is_cordon = |reason: &UnschedulableReason| match reason {
        UnschedulableReason::Unschedulable => true,
        UnschedulableReason::UntoleratedTaint { key, .. } => key == CORDON_TAINT,
        _ => false,
    };
    let rejections = filter_nodes(first, snapshot);
    let cordoned = rejections.iter().filter(|(_, reasons)| !reasons.is_empty() && reasons.iter().all(is_cordon));
    let names: Vec<&String> = cordoned.map(|(name, _)| name).collect();
    let suffices = |count: &usize| {
        let mut changed = snapshot.clone();
        for node in &mut changed.nodes {
            if names.iter().take(*count).any(|name| node["metadata"]["name"] == name.as_str()) {
                *node = Arc::new(uncordoned(node));
            }
        }
        can_schedule_all(pods, &changed)
    };
    let counts: Vec<usize> = (1..=names.len()).collect();
    let count = *counts.get(counts.partition_point(|count| !suffices(count)))?;
    let object = if count == 1 { "the node" } else { "the nodes" };
    let names: Vec<&str> = names.iter().take(count).map(|name| name.as_str()).collect();
    Some(format!("uncordon {object}: `kubectl uncordon {}`", names.join(" ")))
}

/// Returns the number of copies of an existing node that suffice: a new node has another name and runs no Pods.
fn add_nodes(first: &Value, pods: &[&Value], snapshot: &SchedulingSnapshot) -> Option<String> {
    let with_copies = |template: &Value, count: usize| {
        let mut changed = snapshot.clone();
        changed.nodes.extend((0..count).map(|index| Arc::new(copy(template, index))));
        changed
    };
    let fits = |template: &&Arc<Value>| {
        let nodes = filter_nodes(first, &with_copies(template, 1));
        nodes.get(&copy_name(0)).is_some_and(Vec::is_empty)
    };
    let template = snapshot.nodes.iter().find(fits)?;
    let counts: Vec<usize> = (1..=MAX_NODES.min(pods.len())).collect();
    let suffices = |count: &usize| can_schedule_all(pods, &with_copies(template, *count));
    let count = *counts.get(counts.partition_point(|count| !suffices(count)))?;
    let nodes: Vec<Value> = snapshot.nodes.iter().map(|node| Value::clone(node)).collect();
    let resources = pod_requests(first).into_keys().filter(|resource| resource.contains('/'));
    let capacities = resources.filter_map(|resource| {
        let quantity = template["status"]["allocatable"].get(&resource)?.as_str()?.to_owned();
        Some(format!("{quantity} × {resource}"))
    });
    let capacities: Vec<String> = capacities.collect();
    let hint = simulated_nodes::restart_hint(&nodes, text(template, "/metadata/name"), count);
    let hint = hint.map(|hint| format!(": {hint}")).unwrap_or_default();
    let capacities = if capacities.is_empty() { String::new() } else { format!(" ({})", capacities.join(", ")) };
    Some(format!("add {} like {}{capacities}{hint}", format_count(count, "node"), text(template, "/metadata/name")))
}

fn uncordoned(node: &Value) -> Value {
    let mut node = node.clone();
    if let Some(spec) = node["spec"].as_object_mut() {
        spec.remove("unschedulable");
        if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
            taints.retain(|taint| taint["key"] != CORDON_TAINT);
        }
    }
    node
}

/// Returns a schedulable copy of a node, with another name.
fn copy(node: &Value, index: usize) -> Value {
    let mut node = uncordoned(node);
    let name = copy_name(index);
    node["metadata"]["labels"][HOSTNAME_LABEL] = json!(name);
    node["metadata"]["name"] = json!(name);
    node
}

/// Returns a name that is not valid for a Node, so that no existing node has it.
fn copy_name(index: usize) -> String {
    format!("new/{index}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn pod(selector: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"nodeSelector": selector,
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 4}}}]}})
    }

    /// A node with eight accelerators, of which `used` are in use.
    fn snapshot(cordoned: &[bool], used: u32) -> SchedulingSnapshot {
        let node = |(index, cordoned): (usize, &bool)| {
            let name = format!("n{index}");
            let taints = if *cordoned { json!([{"key": CORDON_TAINT, "effect": "NoSchedule"}]) } else { json!([]) };
            Arc::new(json!({
                "metadata": {"name": name, "labels": {HOSTNAME_LABEL: name, "zone": "a"}},
                "spec": {"unschedulable": cordoned, "taints": taints},
                "status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
            }))
        };
        let user = json!({"metadata": {"name": "u"}, "status": {"phase": "Running"}, "spec": {"nodeName": "n0",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": used}}}]}});
        SchedulingSnapshot {
            nodes: cordoned.iter().enumerate().map(node).collect(),
            pods: vec![Arc::new(user)],
            ..SchedulingSnapshot::default()
        }
    }

    #[rstest]
    #[case::full_node(&[false], 6, 2, json!({}), &["add 1 node like n0 (8 × nvidia.com/gpu)"])]
    #[case::several_nodes(&[false], 6, 3, json!({}), &["add 2 nodes like n0 (8 × nvidia.com/gpu)"])]
    #[case::cordoned_node(
        &[true], 0, 1, json!({}), &["uncordon the node: `kubectl uncordon n0`", "add 1 node like n0 (8 × nvidia.com/gpu)"]
    )]
    #[case::as_few_nodes_as_suffice(
        &[false, true, true, true], 8, 3, json!({}),
        &["uncordon the nodes: `kubectl uncordon n1 n2`", "add 2 nodes like n0 (8 × nvidia.com/gpu)"]
    )]
    #[case::uncordoning_does_not_suffice(&[true], 0, 3, json!({}), &["add 2 nodes like n0 (8 × nvidia.com/gpu)"])]
    #[case::pod_of_one_node(&[false], 6, 1, json!({HOSTNAME_LABEL: "n0"}), &[])]
    #[case::label_of_no_node(&[false], 0, 1, json!({"zone": "b"}), &[])]
    fn proposes_nodes_that_let_all_pods_run(
        #[case] cordoned: &[bool],
        #[case] used: u32,
        #[case] count: usize,
        #[case] selector: Value,
        #[case] expected: &[&str],
    ) {
        let pods = vec![pod(selector); count];
        assert_eq!(node_remedies(&pods.iter().collect::<Vec<_>>(), &snapshot(cordoned, used)), expected);
    }
}
