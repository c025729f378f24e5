//! Which servers and nodes the cached objects make known.

use std::collections::BTreeSet;

use api::dual_pods as names;
use cluster::{Kind, Stores};
use rstest::rstest;
use serde_json::{Value, json};

use super::kinds::cache_policy;
use super::node_table::NodeTable;
use super::{CONFIG_MAP, NODE, POD};
use crate::facts::RequesterFacts;
use crate::node::{Demand, NodeState};
use crate::problem::Problem;
use crate::settings::Settings;

const MANAGER: &str = "us";

struct Table {
    stores: Stores,
    nodes: NodeTable,
}

impl Table {
    /// A table with the nodes `n1` and `n2`.
    fn new() -> Table {
        let stores = Stores::with_cache_policy(MANAGER, cache_policy);
        let nodes = NodeTable::new(stores.clone(), Settings::default(), "n".to_owned());
        let mut table = Table { stores, nodes };
        table.replace(
            NODE,
            ["n1", "n2"].map(|name| json!({"metadata": {"name": name, "resourceVersion": "1"}})).to_vec(),
        );
        table
    }

    /// Delivers the objects of a kind.
    fn replace(&mut self, kind: Kind, objects: Vec<Value>) {
        for change in self.stores.replace_all(kind, objects) {
            self.nodes.observe(&change);
        }
    }

    fn node(&self, name: &str) -> &NodeState {
        self.nodes.get(name).unwrap()
    }
}

fn requester(name: &str, uid: &str, node: &str, accelerator: &str) -> Value {
    let container = json!({"name": "inference-server", "image": "vllm:1", "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}}});
    let annotations = json!({
        "dual-pods.llm-d.ai/server-patch": json!({"spec": {"containers": [container]}}).to_string(),
        names::ACCELERATORS: accelerator,
        names::ACCELERATORS_CONTAINER: "c",
    });
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": uid, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "inference-server", "image": "requester:1"}]},
        "status": {"containerStatuses": [{"name": "inference-server", "containerID": "c"}]},
    })
}

/// Returns a provider that is bound to a requester.
fn provider(requester: &str) -> Value {
    let annotations =
        json!({names::NOMINAL: "i", names::REQUESTER: format!("{requester} r"), names::ACCELERATORS: "GPU-a"});
    let fields = json!({"f:metadata": {"f:annotations": {format!("f:{}", names::NOMINAL): {}}}});
    json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "p", "resourceVersion": "1", "annotations": annotations,
            "managedFields": [{"manager": MANAGER, "operation": "Update", "fieldsV1": fields}]},
        "spec": {"nodeName": "n1"},
    })
}

// spec: DP-49
#[rstest]
#[case::both(true, true, true)]
#[case::no_provider(true, false, true)]
#[case::requester_gone(false, true, true)]
#[case::both_gone(false, false, false)]
fn server_is_forgotten_with_both_pods(#[case] has_requester: bool, #[case] has_provider: bool, #[case] is_known: bool) {
    let mut table = Table::new();
    let (requester, provider) = (requester("r", "u1", "n1", "GPU-a"), provider("u1"));
    table.replace(POD, vec![requester.clone(), provider.clone()]);
    let pods = has_requester.then_some(requester).into_iter().chain(has_provider.then_some(provider));
    table.replace(POD, pods.collect());
    assert_eq!(table.nodes.get("n1").is_some_and(|node| node.servers.contains_key("u1")), is_known);
}

/// A requester of the same name is another server: it gets neither the engine nor the observations of the former one.
// spec: DP-44
#[test]
fn recreated_requester_is_another_server() {
    let mut table = Table::new();
    table.replace(POD, vec![requester("r", "u1", "n1", "GPU-a"), provider("u1")]);
    let former = table.nodes.get_mut("n1").unwrap().servers.get_mut("u1").unwrap();
    former.facts.relayed = Some(true);
    former.facts.accelerators = Some(BTreeSet::from(["GPU-a".to_owned()]));
    table.replace(POD, vec![requester("r", "u2", "n1", "GPU-b"), provider("u1")]);
    let node = table.node("n1");
    assert!(node.servers["u1"].requester.is_none(), "its provider is bound");
    assert_eq!(node.servers["u2"].facts, RequesterFacts::default());
    assert_eq!((node.bound_engines("u1").count(), node.bound_engines("u2").count()), (1, 0));
}

/// Nodes are the items of work: a Pod or Node makes one of them due, `gpu-map` all those with a server that needs it.
// spec: DP-45
#[test]
fn gpu_map_triggers_each_waiting_server() {
    let mut table = Table::new();
    let pods = vec![
        requester("a", "a", "n1", "GPU-a"),
        requester("b", "b", "n1", "GPU-b"),
        requester("c", "c", "n2", "GPU-c"),
    ];
    table.replace(POD, pods[..2].to_vec());
    assert_eq!(table.nodes.take_changed(), BTreeSet::from(["n1".to_owned()]));
    assert_eq!(table.node("n1").servers.keys().collect::<Vec<_>>(), ["a", "b"]);
    table.replace(POD, pods);
    assert_eq!(table.nodes.take_changed(), BTreeSet::from(["n2".to_owned()]));
    let demands = |table: &Table| {
        let servers = ["n1", "n2"].into_iter().flat_map(|node| table.node(node).servers.values());
        servers.map(|server| server.demand.clone()).collect::<Vec<_>>()
    };
    assert_eq!(demands(&table), vec![Demand::Invalid(Problem::GpuMapUnavailable); 3]);
    let data = json!({"n1": r#"{"GPU-a":0,"GPU-b":1}"#, "n2": r#"{"GPU-c":0}"#});
    let metadata = json!({"name": names::GPU_MAP, "namespace": "n", "resourceVersion": "1"});
    table.replace(CONFIG_MAP, vec![json!({"metadata": metadata, "data": data})]);
    assert_eq!(table.nodes.take_changed(), BTreeSet::from(["n1".to_owned(), "n2".to_owned()]));
    assert!(demands(&table).iter().all(|demand| matches!(demand, Demand::Nominal(_))));
}
