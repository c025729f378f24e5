use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::super::{SERVICE_LABEL, class_availability, node_infos};
use super::*;

const RESOURCE: &str = "nvidia.com/gpu";

fn node(name: &str, product: &str, count: u32, cordoned: bool) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product, "zone": "a"}},
        "spec": {"unschedulable": cordoned},
        "status": {"allocatable": {RESOURCE: count.to_string(), "cpu": "8"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}
    })
}

fn pod(node: &str, count: u32, phase: &str, service: &str) -> Value {
    json!({
        "metadata": {"labels": {SERVICE_LABEL: service}},
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": {RESOURCE: count}}}]},
        "status": {"phase": phase}
    })
}

fn class(name: &str, key: &str, value: &str) -> Class {
    let mut class = Class { name: name.to_owned(), vendor: Some("nvidia".to_owned()), ..Class::default() };
    class.discovery.node_selector = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    class
}

#[derive(Clone, Debug)]
enum Change {
    Node { name: usize, exists: bool, product: usize, count: u32, cordoned: bool },
    Pod { name: usize, exists: bool, node: usize, count: u32, is_terminal: bool },
    Class { name: usize, exists: bool, zone: bool, product: usize, is_discovered: bool },
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let node = (0..4usize, any::<bool>(), 0..3usize, 0..9u32, any::<bool>())
        .prop_map(|(name, exists, product, count, cordoned)| Change::Node { name, exists, product, count, cordoned });
    let pod = (0..6usize, any::<bool>(), 0..5usize, 0..5u32, any::<bool>())
        .prop_map(|(name, exists, node, count, is_terminal)| Change::Pod { name, exists, node, count, is_terminal });
    let class = (0..4usize, any::<bool>(), any::<bool>(), 0..3usize, any::<bool>()).prop_map(
        |(name, exists, zone, product, is_discovered)| Change::Class { name, exists, zone, product, is_discovered },
    );
    proptest::collection::vec(prop_oneof![3 => node, 4 => pod, 2 => class], 0..60)
}

/// Reference implementation that stores all objects and recounts them each time.
#[derive(Default)]
struct ReferenceInventory {
    nodes: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    classes: BTreeMap<String, Class>,
}

// === impl ReferenceInventory ===

impl ReferenceInventory {
    fn availability(&self, class: &Class) -> Availability {
        let nodes: Vec<Value> = self.nodes.values().cloned().collect();
        let pods: Vec<Value> = self.pods.values().cloned().collect();
        let infos = node_infos(&nodes, &pods);
        let mut availability = class_availability(class, &infos);
        availability.nodes.retain(|node| {
            let labels = node.labels.as_ref().unwrap();
            let is_replaced = self.classes.values().any(|other| {
                !other.is_discovered
                    && other.discovery.node_selector.contains_key("nvidia.com/gpu.product")
                    && crate::matches_discovery(&other.discovery, &node.name, labels)
            });
            !(class.is_discovered && is_replaced)
        });
        availability
    }
}

const PRODUCTS: [&str; 3] = ["NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S", "Tesla-T4"];

fn apply_step(change: &Change, inventory: &mut Inventory, reference: &mut ReferenceInventory) {
    match change {
        Change::Node { name, exists, product, count, cordoned } => {
            let name = format!("n{name}");
            let object = exists.then(|| node(&name, PRODUCTS[*product], *count, *cordoned));
            inventory.set_node(&name, object.as_ref());
            insert_or_remove(&mut reference.nodes, name, object);
        }
        Change::Pod { name, exists, node, count, is_terminal } => {
            let name = format!("p{name}");
            let phase = if *is_terminal { "Succeeded" } else { "Running" };
            let object = exists.then(|| pod(&format!("n{node}"), *count, phase, "s"));
            inventory.set_pod("default", &name, object.as_ref());
            insert_or_remove(&mut reference.pods, name, object);
        }
        Change::Class { name, exists, zone, product, is_discovered } => {
            let name = format!("c{name}");
            let (key, value) = if *zone { ("zone", "a") } else { ("nvidia.com/gpu.product", PRODUCTS[*product]) };
            let object = exists.then(|| Class { is_discovered: *is_discovered, ..class(&name, key, value) });
            inventory.set_class(&name, object.clone());
            insert_or_remove(&mut reference.classes, name, object);
        }
    }
}

fn insert_or_remove<T>(map: &mut BTreeMap<String, T>, name: String, value: Option<T>) {
    match value {
        Some(value) => drop(map.insert(name, value)),
        None => drop(map.remove(&name)),
    }
}

proptest! {
    /// After any sequence of changes the index equals a recount and reports the changed classes.
    // spec: ACC-28
    // spec: ACC-29
    #[test]
    fn incremental_counts_equal_a_recount(changes in changes()) {
        let (mut inventory, mut reference) = (Inventory::default(), ReferenceInventory::default());
        let mut previous: BTreeMap<String, Availability> = BTreeMap::new();
        for change in &changes {
            apply_step(change, &mut inventory, &mut reference);
            let changed = inventory.take_changed();
            for (name, class) in &reference.classes {
                let expected = reference.availability(class);
                let availability = inventory.availability(class, &ServiceUsage::default());
                prop_assert_eq!(&availability, &expected, "{} after {:?}", name, change);
                let expected_totals = ClassTotals {
                    nodes: expected.nodes.len(),
                    available_nodes: expected.nodes.iter().filter(|node| node.is_schedulable()).count(),
                    total: u64::from(expected.total()),
                    free: u64::from(expected.available()),
                };
                prop_assert_eq!(inventory.totals_of(name), expected_totals);
                prop_assert!(inventory.node_names(name, 99).eq(expected.nodes.iter().map(|node| node.name.as_str())));
                if previous.get(name) != Some(&expected) {
                    // Label changes alone do not change the counts.
                    let has_changed = previous.get(name).is_none_or(|previous| {
                        previous.nodes.len() != expected.nodes.len()
                            || previous.available() != expected.available()
                            || previous.total() != expected.total()
                    });
                    prop_assert!(!has_changed || changed.contains(name), "{} not reported after {:?}", name, change);
                    previous.insert(name.clone(), expected);
                }
            }
            previous.retain(|name, _| reference.classes.contains_key(name));
        }
    }
}

// spec: ACC-46
#[test]
fn heartbeats_change_nothing() {
    let mut inventory = Inventory::default();
    inventory.set_class("h100", Some(class("h100", "nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")));
    assert!(inventory.set_node("a", Some(&node("a", "NVIDIA-H100-80GB-HBM3", 8, false))));
    assert_eq!(inventory.take_changed(), BTreeSet::from(["h100".to_owned()]));
    let mut heartbeat = node("a", "NVIDIA-H100-80GB-HBM3", 8, false);
    heartbeat["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
    heartbeat["metadata"]["resourceVersion"] = json!("99");
    assert!(!inventory.set_node("a", Some(&heartbeat)));
    inventory.set_pod("default", "cpu-only", Some(&pod("a", 0, "Running", "s")));
    assert!(inventory.take_changed().is_empty());
}

/// Columns: allocatable resources before and after, nodes of the class of whole devices afterwards.
#[rstest]
#[case::partitioned(json!({"nvidia.com/gpu": "8"}), json!({"nvidia.com/gpu": "0", "nvidia.com/mig-3g.40gb": "16"}), 0)]
#[case::partitioned_without_whole_devices(json!({"nvidia.com/gpu": "8"}), json!({"nvidia.com/mig-3g.40gb": "16"}), 0)]
#[case::partly_partitioned(json!({"nvidia.com/gpu": "8"}), json!({"nvidia.com/gpu": "4", "nvidia.com/mig-3g.40gb": "8"}), 1)]
#[case::no_longer_partitioned(json!({"nvidia.com/mig-3g.40gb": "16"}), json!({"nvidia.com/gpu": "8"}), 1)]
#[case::plugin_has_not_registered(json!({}), json!({"cpu": "8"}), 1)]
fn fully_partitioned_node_offers_no_whole_device(#[case] before: Value, #[case] after: Value, #[case] nodes: usize) {
    let class = class("a100", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB");
    let mut inventory = Inventory::default();
    inventory.set_class("a100", Some(class.clone()));
    for allocatable in [before, after] {
        let node = json!({"metadata": {"name": "n", "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
            "status": {"allocatable": allocatable}});
        inventory.set_node("n", Some(&node));
        let recounted = class_availability(&class, &node_infos(&[node], &[]));
        assert_eq!(inventory.availability(&class, &ServiceUsage::default()), recounted);
    }
    assert_eq!(inventory.totals_of("a100").nodes, nodes);
}

#[test]
fn excludes_own_pods_of_a_service() {
    let mut inventory = Inventory::default();
    let h100 = class("h100", "nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3");
    inventory.set_class("h100", Some(h100.clone()));
    inventory.set_node("a", Some(&node("a", "NVIDIA-H100-80GB-HBM3", 8, false)));
    inventory.set_pod("default", "own-pod", Some(&pod("a", 4, "Running", "chat")));
    inventory.set_pod("default", "other-pod", Some(&pod("a", 3, "Pending", "other")));
    inventory.set_pod("other-namespace", "same-service-name", Some(&pod("a", 1, "Running", "chat")));
    let free = |inventory: &Inventory, own: &ServiceUsage| inventory.availability(&h100, own).available();
    assert_eq!(free(&inventory, &ServiceUsage::default()), 0);
    assert_eq!(free(&inventory, &inventory.service_usage("default", "chat")), 4);
    let unknown = Class { name: "new".to_owned(), ..h100.clone() };
    assert_eq!(inventory.availability(&unknown, &inventory.service_usage("default", "chat")).available(), 4);
}

/// A Pod that is observed before its node is counted as soon as the node is observed.
#[test]
fn watch_order_does_not_matter() {
    let mut inventory = Inventory::default();
    inventory.set_pod("default", "early", Some(&pod("a", 2, "Running", "s")));
    inventory.set_node("a", Some(&node("a", "Tesla-T4", 4, false)));
    inventory.set_class("t4", Some(class("t4", "nvidia.com/gpu.product", "Tesla-T4")));
    assert_eq!(inventory.totals_of("t4"), ClassTotals { nodes: 1, available_nodes: 1, total: 4, free: 2 });
    inventory.set_node("a", None);
    assert_eq!(inventory.totals_of("t4"), ClassTotals::default());
}
