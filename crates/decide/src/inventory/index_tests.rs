use proptest::prelude::*;
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
enum Step {
    Node { name: usize, there: bool, product: usize, count: u32, cordoned: bool },
    Pod { name: usize, there: bool, node: usize, count: u32, ended: bool },
    Class { name: usize, there: bool, zone: bool, product: usize, is_discovered: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = (0..4usize, any::<bool>(), 0..3usize, 0..9u32, any::<bool>())
        .prop_map(|(name, there, product, count, cordoned)| Step::Node { name, there, product, count, cordoned });
    let pod = (0..6usize, any::<bool>(), 0..5usize, 0..5u32, any::<bool>())
        .prop_map(|(name, there, node, count, ended)| Step::Pod { name, there, node, count, ended });
    let class = (0..4usize, any::<bool>(), any::<bool>(), 0..3usize, any::<bool>()).prop_map(
        |(name, there, zone, product, is_discovered)| Step::Class { name, there, zone, product, is_discovered },
    );
    proptest::collection::vec(prop_oneof![3 => node, 4 => pod, 2 => class], 0..60)
}

/// Everything that was ever said, kept as objects and counted from the start each time.
#[derive(Default)]
struct Recount {
    nodes: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    classes: BTreeMap<String, Class>,
}

impl Recount {
    fn of(&self, class: &Class) -> Availability {
        let nodes: Vec<Value> = self.nodes.values().cloned().collect();
        let pods: Vec<Value> = self.pods.values().cloned().collect();
        let facts = node_infos(&nodes, &pods);
        let mut counted = class_availability(class, &facts);
        counted.nodes.retain(|node| {
            let labels = node.labels.as_ref().unwrap();
            let pinned = self.classes.values().any(|other| {
                !other.is_discovered
                    && other.discovery.node_selector.contains_key("nvidia.com/gpu.product")
                    && matches_discovery(&other.discovery, &node.name, labels)
            });
            !(class.is_discovered && pinned)
        });
        counted
    }
}

const PRODUCTS: [&str; 3] = ["NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S", "Tesla-T4"];

fn take(step: &Step, index: &mut Inventory, recount: &mut Recount) {
    match step {
        Step::Node { name, there, product, count, cordoned } => {
            let name = format!("n{name}");
            let object = there.then(|| node(&name, PRODUCTS[*product], *count, *cordoned));
            index.set_node(&name, object.as_ref());
            put(&mut recount.nodes, name, object);
        }
        Step::Pod { name, there, node, count, ended } => {
            let name = format!("p{name}");
            let phase = if *ended { "Succeeded" } else { "Running" };
            let object = there.then(|| pod(&format!("n{node}"), *count, phase, "s"));
            index.set_pod("default", &name, object.as_ref());
            put(&mut recount.pods, name, object);
        }
        Step::Class { name, there, zone, product, is_discovered } => {
            let name = format!("c{name}");
            let (key, value) = if *zone { ("zone", "a") } else { ("nvidia.com/gpu.product", PRODUCTS[*product]) };
            let object = there.then(|| Class { is_discovered: *is_discovered, ..class(&name, key, value) });
            index.set_class(&name, object.clone());
            put(&mut recount.classes, name, object);
        }
    }
}

fn put<T>(map: &mut BTreeMap<String, T>, name: String, value: Option<T>) {
    match value {
        Some(value) => drop(map.insert(name, value)),
        None => drop(map.remove(&name)),
    }
}

proptest! {
    /// Whatever comes and goes, in whatever order, the index says what a recount says, and tells what changed.
    // spec: ACC-28
    // spec: ACC-29
    #[test]
    fn deltas_are_a_recount(steps in steps()) {
        let (mut index, mut recount) = (Inventory::default(), Recount::default());
        let mut told: BTreeMap<String, Availability> = BTreeMap::new();
        for step in &steps {
            take(step, &mut index, &mut recount);
            let changed = index.take_changed();
            for (name, class) in &recount.classes {
                let expect = recount.of(class);
                prop_assert_eq!(&index.availability(class, &ServiceUsage::default()), &expect, "{} after {:?}", name, step);
                let numbers = index.totals_of(name);
                let summed = (expect.nodes.len(), expect.nodes.iter().filter(|node| node.schedulable).count(), u64::from(expect.total()), u64::from(expect.free()));
                prop_assert_eq!((numbers.nodes, numbers.available_nodes, numbers.total, numbers.free), summed);
                prop_assert!(index.node_names(name, 99).eq(expect.nodes.iter().map(|node| node.name.as_str())));
                if told.get(name) != Some(&expect) {
                    // Labels alone move no number.
                    let moved = told.get(name).is_none_or(|before| before.nodes.len() != expect.nodes.len() || before.free() != expect.free() || before.total() != expect.total());
                    prop_assert!(!moved || changed.contains(name), "{} moved untold after {:?}", name, step);
                    told.insert(name.clone(), expect);
                }
            }
            told.retain(|name, _| recount.classes.contains_key(name));
        }
    }
}

// spec: ACC-46
#[test]
fn a_heartbeat_changes_nothing() {
    let mut index = Inventory::default();
    index.set_class("h100", Some(class("h100", "nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")));
    assert!(index.set_node("a", Some(&node("a", "NVIDIA-H100-80GB-HBM3", 8, false))));
    assert_eq!(index.take_changed(), BTreeSet::from(["h100".to_owned()]));
    let mut beat = node("a", "NVIDIA-H100-80GB-HBM3", 8, false);
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
    beat["metadata"]["resourceVersion"] = json!("99");
    assert!(!index.set_node("a", Some(&beat)));
    index.set_pod("default", "cpu-only", Some(&pod("a", 0, "Running", "s")));
    assert!(index.take_changed().is_empty());
}

#[test]
fn a_service_does_not_stand_in_its_own_way() {
    let mut index = Inventory::default();
    let h100 = class("h100", "nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3");
    index.set_class("h100", Some(h100.clone()));
    index.set_node("a", Some(&node("a", "NVIDIA-H100-80GB-HBM3", 8, false)));
    index.set_pod("default", "mine", Some(&pod("a", 4, "Running", "chat")));
    index.set_pod("default", "theirs", Some(&pod("a", 3, "Pending", "other")));
    index.set_pod("elsewhere", "namesake", Some(&pod("a", 1, "Running", "chat")));
    let free = |index: &Inventory, own: &ServiceUsage| index.availability(&h100, own).free();
    assert_eq!(free(&index, &ServiceUsage::default()), 0);
    assert_eq!(free(&index, &index.service_usage("default", "chat")), 4);
    let unknown = Class { name: "new".to_owned(), ..h100.clone() };
    assert_eq!(index.availability(&unknown, &index.service_usage("default", "chat")).free(), 4);
}

/// A Pod that is seen before its node holds its accelerators as soon as the node is there.
#[test]
fn the_order_of_watches_does_not_matter() {
    let mut index = Inventory::default();
    index.set_pod("default", "early", Some(&pod("a", 2, "Running", "s")));
    index.set_node("a", Some(&node("a", "Tesla-T4", 4, false)));
    index.set_class("t4", Some(class("t4", "nvidia.com/gpu.product", "Tesla-T4")));
    assert_eq!(index.totals_of("t4"), ClassTotals { nodes: 1, available_nodes: 1, total: 4, free: 2 });
    index.set_node("a", None);
    assert_eq!(index.totals_of("t4"), ClassTotals::default());
}
