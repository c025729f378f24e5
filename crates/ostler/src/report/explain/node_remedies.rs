//! Nodes to uncordon or to add so that all pending Pods of a service can be scheduled, for services whose class is unknown.

use std::sync::Arc;

use apimachinery::pod_requests;
use decide::ProposedChange;
use embedded::{SchedulingSnapshot, UnschedulableReason, filter_nodes};
use serde_json::{Map, Value, json};

use super::deletions::can_schedule_all;
use super::fields::text;
use super::simulated_nodes;
use crate::report::names::format_count;

/// Maximum number of nodes to add.
const MAX_NODES: usize = 64;
/// Taint of a cordoned node.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// Taints of a node that is not ready.
const NOT_READY_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// Label with the name of the node.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Returns the nodes to uncordon, the nodes to repair, and the nodes to add, each of which lets all of `pods` run at the same time.
pub(super) fn node_remedies(pods: &[&Value], snapshot: &SchedulingSnapshot) -> Vec<String> {
    let Some(first) = pods.first() else { return Vec::new() };
    let recovered = uncordon(first, pods, snapshot).into_iter().chain(repair(pods, snapshot));
    recovered.chain(add_nodes(first, pods, snapshot)).collect()
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
    let names: Vec<&str> = cordoned.map(|(name, _)| name.as_str()).collect();
    let nodes = sufficient_changes(&names, pods, snapshot, uncordoned)?;
    Some(ProposedChange::Uncordon { nodes }.to_string())
}

/// Returns which nodes to make ready, and to uncordon then, as few as suffice.
fn repair(pods: &[&Value], snapshot: &SchedulingSnapshot) -> Option<String> {
    let broken: Vec<&Arc<Value>> = snapshot.nodes.iter().filter(|node| has_taint(node, &NOT_READY_TAINTS)).collect();
    let names: Vec<&str> = broken.iter().map(|node| text(node, "/metadata/name")).collect();
    let nodes = sufficient_changes(&names, pods, snapshot, repaired)?;
    let is_cordoned = |node: &&&Arc<Value>| {
        node["spec"]["unschedulable"] == true && nodes.iter().any(|name| text(node, "/metadata/name") == name)
    };
    let cordoned: Vec<String> =
        broken.iter().filter(is_cordoned).map(|node| text(node, "/metadata/name").to_owned()).collect();
    let uncordon = match cordoned.as_slice() {
        [] => String::new(),
        _ => format!(", and then {}", ProposedChange::Uncordon { nodes: cordoned }),
    };
    Some(format!("{}{uncordon}", ProposedChange::RepairNodes { nodes }))
}

/// Returns the first of the nodes `names`, as few as suffice, so that all of `pods` can be scheduled after `change` of them.
fn sufficient_changes(
    names: &[&str],
    pods: &[&Value],
    snapshot: &SchedulingSnapshot,
    change: impl Fn(&Value) -> Value,
) -> Option<Vec<String>> {
    let suffices = |count: &usize| {
        let mut changed = snapshot.clone();
        for node in &mut changed.nodes {
            if names.iter().take(*count).any(|name| node["metadata"]["name"] == *name) {
                *node = Arc::new(change(node));
            }
        }
        can_schedule_all(pods, &changed)
    };
    let counts: Vec<usize> = (1..=names.len()).collect();
    let count = *counts.get(counts.partition_point(|count| !suffices(count)))?;
    Some(names.iter().take(count).map(|name| (*name).to_owned()).collect())
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
    let is_cordoned = |node: &&Arc<Value>| node["spec"]["unschedulable"] == true;
    let template = snapshot.nodes.iter().filter(fits).min_by_key(is_cordoned)?;
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
    let command = simulated_nodes::add_command(&nodes, text(template, "/metadata/name"), count);
    let command = command.map(|command| format!(": `{command}`")).unwrap_or_default();
    let capacities = if capacities.is_empty() { String::new() } else { format!(" ({})", capacities.join(", ")) };
    Some(format!("add {} like {}{capacities}{command}", format_count(count, "node"), text(template, "/metadata/name")))
}

/// Returns whether all of `pods` can run at the same time after `changes`. Changes of anything but nodes and other Pods replace the
/// Pods, so the result is true. `is_of_class` returns whether a node belongs to a class.
pub(super) fn can_schedule_after(
    changes: &[&ProposedChange],
    pods: &[&Value],
    snapshot: &SchedulingSnapshot,
    is_of_class: impl Fn(&Value, &str) -> bool,
) -> bool {
    if snapshot.nodes.is_empty() {
        // The user may not read them.
        return true;
    }
    let mut changed = snapshot.clone();
    let change_nodes = |nodes: &mut [Arc<Value>], names: &[String], change: fn(&Value) -> Value| {
        let is_named = |node: &Arc<Value>| names.iter().any(|name| node["metadata"]["name"] == **name);
        nodes.iter_mut().filter(|node| is_named(node)).for_each(|node| *node = Arc::new(change(node)));
    };
    let mut templates: Vec<(Arc<Value>, u32)> = Vec::new();
    for change in changes {
        match change {
            ProposedChange::Uncordon { nodes } => change_nodes(&mut changed.nodes, nodes, uncordoned),
            ProposedChange::RepairNodes { nodes } => change_nodes(&mut changed.nodes, nodes, repaired),
            // At most the accelerators of all other Pods become free.
            ProposedChange::FreeAccelerators { .. } => changed.pods.clear(),
            ProposedChange::AddNodes { class, nodes, .. } => {
                templates = snapshot
                    .nodes
                    .iter()
                    .filter(|node| is_of_class(node, class))
                    .map(|node| (Arc::clone(node), *nodes))
                    .collect();
                if templates.is_empty() {
                    // The other resources of such nodes are unknown.
                    return true;
                }
            }
            _ => return true,
        }
    }
    let with_copies = |(template, count): &(Arc<Value>, u32)| {
        let mut changed = changed.clone();
        changed.nodes.extend((0..*count as usize).map(|index| Arc::new(copy(template, index))));
        can_schedule_all(pods, &changed)
    };
    if templates.is_empty() { can_schedule_all(pods, &changed) } else { templates.iter().any(with_copies) }
}

fn uncordoned(node: &Value) -> Value {
    let mut node = node.clone();
    if let Some(spec) = node["spec"].as_object_mut() {
        spec.remove("unschedulable");
        remove_taints(spec, &[CORDON_TAINT]);
    }
    node
}

/// Returns a node that is ready and not cordoned.
fn repaired(node: &Value) -> Value {
    let mut node = uncordoned(node);
    if let Some(spec) = node["spec"].as_object_mut() {
        remove_taints(spec, &NOT_READY_TAINTS);
    }
    node
}

fn remove_taints(spec: &mut Map<String, Value>, keys: &[&str]) {
    if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
        taints.retain(|taint| keys.iter().all(|key| taint["key"] != *key));
    }
}

fn has_taint(node: &Value, keys: &[&str]) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|taints| taints.iter().any(|taint| keys.iter().any(|key| taint["key"] == *key)))
}

/// Returns a ready, schedulable copy of a node, with another name.
fn copy(node: &Value, index: usize) -> Value {
    let mut node = repaired(node);
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
    fn snapshot(states: &[&str], used: u32) -> SchedulingSnapshot {
        let node = |(index, state): (usize, &&str)| {
            let name = format!("n{index}");
            let keys =
                [("cordoned", CORDON_TAINT), ("not-ready", NOT_READY_TAINTS[0]), ("unreachable", NOT_READY_TAINTS[1])];
            let keys = keys.iter().filter(|(name, _)| state.contains(name));
            let taints: Vec<Value> = keys.map(|(_, key)| json!({"key": key, "effect": "NoSchedule"})).collect();
            Arc::new(json!({
                "metadata": {"name": name, "labels": {HOSTNAME_LABEL: name, "zone": "a"}},
                "spec": {"unschedulable": state.contains("cordoned"), "taints": taints},
                "status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
            }))
        };
        let user = json!({"metadata": {"name": "u"}, "status": {"phase": "Running"}, "spec": {"nodeName": "n0",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": used}}}]}});
        SchedulingSnapshot {
            nodes: states.iter().enumerate().map(node).collect(),
            pods: vec![Arc::new(user)],
            ..SchedulingSnapshot::default()
        }
    }

    #[rstest]
    #[case::full_node(&["ready"], 6, 2, json!({}), &["add 1 node like n0 (8 × nvidia.com/gpu)"])]
    #[case::several_nodes(&["ready"], 6, 3, json!({}), &["add 2 nodes like n0 (8 × nvidia.com/gpu)"])]
    #[case::cordoned_node(
        &["cordoned"], 0, 1, json!({}), &["uncordon the node: `kubectl uncordon n0`", "add 1 node like n0 (8 × nvidia.com/gpu)"]
    )]
    #[case::as_few_nodes_as_suffice(
        &["ready", "cordoned", "cordoned", "cordoned"], 8, 3, json!({}),
        &["uncordon the nodes: `kubectl uncordon n1 n2`", "add 2 nodes like n0 (8 × nvidia.com/gpu)"]
    )]
    #[case::uncordoning_does_not_suffice(&["cordoned"], 0, 3, json!({}), &["add 2 nodes like n0 (8 × nvidia.com/gpu)"])]
    #[case::not_ready(
        &["not-ready"], 0, 1, json!({}),
        &["make n0 ready (`kubectl describe node n0` shows why it is not)", "add 1 node like n0 (8 × nvidia.com/gpu)"]
    )]
    #[case::one_of_several_is_not_ready(
        &["ready", "unreachable", "not-ready"], 8, 1, json!({}),
        &["make n1 ready (`kubectl describe node n1` shows why it is not)", "add 1 node like n0 (8 × nvidia.com/gpu)"]
    )]
    #[case::cordoned_and_not_ready(
        &["cordoned,not-ready"], 0, 1, json!({}),
        &["make n0 ready (`kubectl describe node n0` shows why it is not), and then uncordon the node: `kubectl uncordon n0`",
          "add 1 node like n0 (8 × nvidia.com/gpu)"]
    )]
    #[case::repair_does_not_suffice(&["not-ready"], 8, 1, json!({}), &["add 1 node like n0 (8 × nvidia.com/gpu)"])]
    #[case::pod_of_one_node(&["ready"], 6, 1, json!({HOSTNAME_LABEL: "n0"}), &[])]
    #[case::label_of_no_node(&["ready"], 0, 1, json!({"zone": "b"}), &[])]
    fn proposes_nodes_that_let_all_pods_run(
        #[case] states: &[&str],
        #[case] used: u32,
        #[case] count: usize,
        #[case] selector: Value,
        #[case] expected: &[&str],
    ) {
        let pods = vec![pod(selector); count];
        assert_eq!(node_remedies(&pods.iter().collect::<Vec<_>>(), &snapshot(states, used)), expected);
    }
}
