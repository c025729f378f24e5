//! Where Pods may be beside others. The same worlds were put before a kube-scheduler v1.37.

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use super::assign::assign;
use super::{Outcome, World};
use crate::object;

/// Three nodes: `a` and `b` in zone 1, `c` in zone 2; `d` has no zone.
fn nodes() -> Vec<Arc<Value>> {
    let node = |name: &str, zone: Option<&str>| {
        let mut labels = json!({"host": name});
        if let Some(zone) = zone {
            labels["zone"] = json!(zone);
        }
        Arc::new(json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
        }))
    };
    vec![node("a", Some("1")), node("b", Some("1")), node("c", Some("2")), node("d", None)]
}

fn pod(name: &str, app: &str, node: &str, spec: Value) -> Arc<Value> {
    let mut whole = json!({"containers": [{"name": "c", "image": "i"}]});
    object::members(&mut whole).extend(spec.as_object().cloned().unwrap_or_default());
    if !node.is_empty() {
        whole["nodeName"] = json!(node);
    }
    let labels = json!({"app": app, "version": "1"});
    Arc::new(json!({"metadata": {"name": name, "namespace": "n", "uid": name, "labels": labels}, "spec": whole}))
}

fn web() -> Value {
    json!({"matchLabels": {"app": "web"}})
}

fn term(key: &str, more: Value) -> Value {
    let mut term = json!({"topologyKey": key, "labelSelector": web()});
    object::members(&mut term).extend(more.as_object().cloned().unwrap_or_default());
    term
}

fn required(side: &str, terms: &[Value]) -> Value {
    json!({"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn near(term: Value) -> Value {
    required("podAffinity", &[term])
}

fn far(term: Value) -> Value {
    required("podAntiAffinity", &[term])
}

fn spread(key: &str, more: Value) -> Value {
    let mut constraint = term(key, json!({"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}));
    object::members(&mut constraint).extend(more.as_object().cloned().unwrap_or_default());
    json!({"topologySpreadConstraints": [constraint]})
}

/// The nodes that take the Pod, or what is said of all.
fn seen(world: &World) -> String {
    let pending = world.pods.iter().find(|pod| pod.pointer("/spec/nodeName").is_none()).unwrap();
    let open: Vec<String> = super::fits(pending, world)
        .into_iter()
        .filter_map(|(node, reasons)| reasons.is_empty().then_some(node))
        .collect();
    if !open.is_empty() {
        return open.join(" ");
    }
    match &assign(world).first().unwrap().outcome {
        Outcome::Wait { message, .. } => message.split(". preemption").next().unwrap_or_default().to_owned(),
        other => format!("{other:?}"),
    }
}

#[rstest]
#[case::near_a_host(near(term("host", json!({}))), "a")]
#[case::near_a_zone(near(term("zone", json!({}))), "a b")]
#[case::far_from_a_host(far(term("host", json!({}))), "b c d")]
#[case::far_from_a_zone(far(term("zone", json!({}))), "c d")]
#[case::near_and_far(
    json!({"affinity": {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("zone", json!({}))]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("host", json!({}))]},
    }}),
    "b"
)]
#[case::near_nobody(
    near(term("host", json!({"labelSelector": {"matchLabels": {"app": "db"}}}))),
    "0/4 nodes are available: 4 node(s) didn't match pod affinity rules"
)]
#[case::the_first_of_its_kind(near(term("zone", json!({"labelSelector": {"matchLabels": {"app": "new"}}}))), "a b c")]
#[case::no_selector_means_nobody(far(json!({"topologyKey": "host"})), "a b c d")]
#[case::an_empty_selector_means_everybody(far(term("host", json!({"labelSelector": {}}))), "b c d")]
#[case::another_namespace(far(term("host", json!({"namespaces": ["other"]}))), "a b c d")]
#[case::selected_namespaces(far(term("host", json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}))), "b c d")]
#[case::all_namespaces(far(term("host", json!({"namespaceSelector": {}}))), "b c d")]
#[case::of_the_same_version(far(term("host", json!({"matchLabelKeys": ["version"]}))), "b c d")]
#[case::of_another_version(far(term("host", json!({"mismatchLabelKeys": ["version"]}))), "a b c d")]
#[case::both_zones_are_taken(
    required("podAntiAffinity", &[term("zone", json!({})), term("host", json!({"labelSelector": {}})),
        term("host", json!({"labelSelector": {"matchLabels": {"app": "new"}}}))]),
    "c d"
)]
fn beside_a_web_server_on_a(#[case] spec: Value, #[case] expect: &str) {
    let namespace = |name: &str, team: &str| Arc::new(json!({"metadata": {"name": name, "labels": {"team": team}}}));
    let world = World {
        pods: vec![pod("web", "web", "a", json!({})), pod("new", "new", "", spec)],
        nodes: nodes(),
        namespaces: vec![namespace("n", "x"), namespace("other", "y")],
        ..World::default()
    };
    assert_eq!(seen(&world), expect);
}

#[test]
fn who_is_there_may_object() {
    let world = World {
        pods: vec![pod("guard", "guard", "a", far(term("zone", json!({})))), pod("new", "web", "", json!({}))],
        nodes: nodes(),
        ..World::default()
    };
    assert_eq!(seen(&world), "c d");
    let world = World { nodes: nodes()[..2].to_vec(), ..world };
    assert_eq!(seen(&world), "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules");
}

#[rstest]
#[case::even(&["a"], spread("zone", json!({})), "c")]
#[case::level_again(&["a", "c"], spread("zone", json!({})), "a b c")]
#[case::by_host(&["a", "b", "c"], spread("host", json!({})), "d")]
#[case::more_skew(&["a"], spread("zone", json!({"maxSkew": 2})), "a b c")]
#[case::too_few_places(
    &["a", "c"], spread("zone", json!({"minDomains": 3})),
    "0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label), 3 node(s) didn't match pod topology spread constraints"
)]
#[case::if_possible(&["a"], spread("zone", json!({"whenUnsatisfiable": "ScheduleAnyway"})), "a b c d")]
#[case::of_the_same_version(&["a"], spread("zone", json!({"matchLabelKeys": ["version"]})), "c")]
// Only zone 1 counts, so it is level with itself.
#[case::where_the_pod_may_be(
    &["a"],
    { let mut spec = spread("zone", json!({})); spec["nodeSelector"] = json!({"zone": "1"}); spec },
    "a b"
)]
#[case::wherever_it_may_be(
    &["a"],
    { let mut spec = spread("zone", json!({"nodeAffinityPolicy": "Ignore"})); spec["nodeSelector"] = json!({"zone": "1"}); spec },
    "0/4 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, 2 node(s) didn't match pod topology spread constraints"
)]
fn spread_beside_web_servers(#[case] on: &[&str], #[case] spec: Value, #[case] expect: &str) {
    let mut pods: Vec<Arc<Value>> = on.iter().map(|node| pod(&format!("on-{node}"), "web", node, json!({}))).collect();
    pods.push(pod("new", "web", "", spec));
    assert_eq!(seen(&World { pods, nodes: nodes(), ..World::default() }), expect);
}

/// Zone 2 has one node, which is tainted.
#[rstest]
#[case::counts(json!({}), "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match pod topology spread constraints")]
#[case::does_not(json!({"nodeTaintsPolicy": "Honor"}), "a b")]
fn a_tainted_place(#[case] more: Value, #[case] expect: &str) {
    let mut nodes = nodes();
    nodes.pop();
    let mut tainted = Value::clone(&nodes[2]);
    tainted["spec"] = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    nodes[2] = Arc::new(tainted);
    let pods = vec![pod("web", "web", "a", json!({})), pod("new", "web", "", spread("zone", more))];
    assert_eq!(seen(&World { pods, nodes, ..World::default() }), expect);
}

#[rstest]
#[case::the_same(json!([{"hostPort": 80}]), "b c d")]
#[case::of_another_protocol(json!([{"hostPort": 80, "protocol": "UDP"}]), "a b c d")]
#[case::of_one_address(json!([{"hostPort": 80, "hostIP": "127.0.0.1"}]), "b c d")]
#[case::another(json!([{"hostPort": 81}]), "a b c d")]
#[case::of_the_container_only(json!([{"containerPort": 80}]), "a b c d")]
fn host_ports(#[case] ports: Value, #[case] expect: &str) {
    let with = |ports: Value| json!({"containers": [{"name": "c", "image": "i", "ports": ports}]});
    let pods = vec![pod("web", "web", "a", with(json!([{"hostPort": 80}]))), pod("new", "new", "", with(ports))];
    assert_eq!(seen(&World { pods, nodes: nodes(), ..World::default() }), expect);
}
