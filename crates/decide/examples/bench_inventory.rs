//! Measures the inventory with 5,000 nodes, 40,000 Pods and 50 classes and prints the results.
//!
//! `cargo run --release -p decide --example bench_inventory [--small]`. `--small` uses a tenth of the nodes and Pods.

#![allow(clippy::print_stdout, reason = "prints measurements")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use decide::{Class, Inventory, ServiceUsage, class_availability, discover_classes, node_infos};
use serde_json::{Value, json};

const NODES: usize = 5000;
const PODS_PER_NODE: usize = 8;
const CLASSES: usize = 50;

fn main() {
    let is_small = std::env::args().any(|argument| argument == "--small");
    let (node_count, changed_count) = if is_small { (NODES / 10, 100) } else { (NODES, 1000) };
    let nodes: Vec<Value> = (0..node_count).map(|number| node(number, 8, false)).collect();
    let pods: Vec<Value> = (0..node_count * PODS_PER_NODE).map(|number| pod(number, "Running")).collect();
    let mut inventory = Inventory::default();
    measure("first list of nodes", node_count, || set_nodes(&mut inventory, &nodes));
    measure("first list of pods", pods.len(), || set_pods(&mut inventory, &pods));
    measure("classes", CLASSES, || set_classes(&mut inventory, CLASSES));
    let heartbeats: Vec<Value> = (0..node_count).map(|number| node(number, 8, true)).collect();
    measure("heartbeat", node_count, || set_nodes(&mut inventory, &heartbeats));
    let terminated: Vec<Value> = (0..changed_count).map(|number| pod(number, "Succeeded")).collect();
    measure("terminated pod", terminated.len(), || set_pods(&mut inventory, &terminated));
    let changed_nodes: Vec<Value> = (0..changed_count).map(|number| node(number, 7, false)).collect();
    measure("node with changed capacity", changed_nodes.len(), || set_nodes(&mut inventory, &changed_nodes));
    measure("modified class", 10, || set_classes(&mut inventory, 10));
    measure("availability of one class", CLASSES, || {
        for number in 0..CLASSES {
            drop(inventory.availability(&class(number), &ServiceUsage::default()));
        }
    });
    measure("discovery over all nodes", 1, || drop(discover_classes(&inventory, std::iter::empty(), &[])));
    measure("full recount of 50 classes, for comparison", 1, || {
        let infos = node_infos(&nodes, &pods);
        for number in 0..CLASSES {
            drop(class_availability(&class(number), &infos));
        }
    });
}

fn set_nodes(inventory: &mut Inventory, nodes: &[Value]) {
    for node in nodes {
        inventory.set_node(name(node), Some(node));
    }
}

fn set_pods(inventory: &mut Inventory, pods: &[Value]) {
    for pod in pods {
        inventory.set_pod("default", name(pod), Some(pod));
    }
}

fn set_classes(inventory: &mut Inventory, count: usize) {
    for number in 0..count {
        let class = class(number);
        inventory.set_class(&class.name.clone(), Some(class));
    }
}

fn measure(name: &str, count: usize, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let elapsed = start.elapsed();
    let per_item = elapsed / u32::try_from(count).unwrap_or(1).max(1);
    println!("{name:<45} {count:>6} × {:>10} = {:>10}", microseconds(per_item), microseconds(elapsed));
}

fn microseconds(time: Duration) -> String {
    format!("{:.1} µs", time.as_secs_f64() * 1e6)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn node(number: usize, count: u32, is_heartbeat: bool) -> Value {
    let mut labels: BTreeMap<String, String> =
        (0..30).map(|label| (format!("example.com/label-{label}"), number.to_string())).collect();
    labels.insert("nvidia.com/gpu.product".to_owned(), format!("NVIDIA-X{}", number % CLASSES));
    labels.insert("nvidia.com/gpu.memory".to_owned(), "81559".to_owned());
    json!({
        "metadata": {"name": format!("n{number:04}"), "labels": labels},
        "status": {
            "allocatable": {"nvidia.com/gpu": count.to_string(), "cpu": "96", "memory": "1Ti"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": if is_heartbeat { "b" } else { "a" }}],
        },
    })
}

fn pod(number: usize, phase: &str) -> Value {
    json!({
        "metadata": {"name": format!("p{number}"), "namespace": "default"},
        "spec": {
            "nodeName": format!("n{:04}", number / PODS_PER_NODE),
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {"phase": phase},
    })
}

/// Classes with node selectors, lists of values and ranges.
fn class(number: usize) -> Class {
    let is_discovered = number.is_multiple_of(3);
    let mut class = Class { name: format!("class-{number:02}"), is_discovered, ..Class::default() };
    let product = format!("NVIDIA-X{number}");
    let memory = json!({"key": "nvidia.com/gpu.memory", "operator": "Gte", "values": ["80Gi"]});
    let product_expression =
        json!({"key": "nvidia.com/gpu.product", "operator": "In", "values": [product, "NVIDIA-OTHER"]});
    match number % 5 {
        0 => class.discovery.terms.push(json!({"matchExpressions": [memory]})),
        1 | 2 => class.discovery.terms.push(json!({"matchExpressions": [product_expression]})),
        _ => class.discovery.node_selector = [("nvidia.com/gpu.product".to_owned(), product)].into(),
    }
    class
}
