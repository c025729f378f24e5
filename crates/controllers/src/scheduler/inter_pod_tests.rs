//! Tests of topology spread constraints, Pod affinity and host ports. The expected results were measured on
//! kube-scheduler v1.37.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::object;
use rstest::rstest;
use serde_json::{Value, json};

use super::SchedulingSnapshot;
use super::assign::schedule_pending;
use super::decision::Outcome;

/// Returns four nodes: `a` and `b` in zone 1, `c` in zone 2, and `d` without a zone label.
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
    let mut full_spec = json!({"containers": [{"name": "c", "image": "i"}]});
    object::members(&mut full_spec).extend(spec.as_object().cloned().unwrap_or_default());
    if !node.is_empty() {
        full_spec["nodeName"] = json!(node);
    }
    let labels = json!({"app": app, "version": "1"});
    Arc::new(json!({"metadata": {"name": name, "namespace": "n", "uid": name, "labels": labels}, "spec": full_spec}))
}

fn web_selector() -> Value {
    json!({"matchLabels": {"app": "web"}})
}

fn term(key: &str, additional_fields: Value) -> Value {
    let mut term = json!({"topologyKey": key, "labelSelector": web_selector()});
    object::members(&mut term).extend(additional_fields.as_object().cloned().unwrap_or_default());
    term
}

fn required(kind: &str, terms: &[Value]) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn affinity(term: Value) -> Value {
    required("podAffinity", &[term])
}

fn anti_affinity(term: Value) -> Value {
    required("podAntiAffinity", &[term])
}

fn spread(key: &str, additional_fields: Value) -> Value {
    let mut constraint = term(key, json!({"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}));
    object::members(&mut constraint).extend(additional_fields.as_object().cloned().unwrap_or_default());
    json!({"topologySpreadConstraints": [constraint]})
}

/// Returns the names of the nodes on which the pending Pod fits, or the message if it fits on none.
fn feasible_nodes_or_message(snapshot: &SchedulingSnapshot) -> String {
    let pending = snapshot.pods.iter().find(|pod| pod.pointer("/spec/nodeName").is_none()).unwrap();
    let feasible: Vec<String> = super::filter_nodes(pending, snapshot)
        .into_iter()
        .filter_map(|(node, reasons)| reasons.is_empty().then_some(node))
        .collect();
    if !feasible.is_empty() {
        return feasible.join(" ");
    }
    match &schedule_pending(snapshot, &BTreeSet::new()).decisions.first().unwrap().outcome {
        Outcome::Wait { message, .. } => message.split(". preemption").next().unwrap_or_default().to_owned(),
        other => format!("{other:?}"),
    }
}

#[rstest]
#[case::affinity_to_host(affinity(term("host", json!({}))), "a")]
#[case::affinity_to_zone(affinity(term("zone", json!({}))), "a b")]
#[case::anti_affinity_to_host(anti_affinity(term("host", json!({}))), "b c d")]
#[case::anti_affinity_to_zone(anti_affinity(term("zone", json!({}))), "c d")]
#[case::affinity_and_anti_affinity(
    json!({"affinity": {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("zone", json!({}))]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("host", json!({}))]},
    }}),
    "b"
)]
#[case::affinity_without_match(
    affinity(term("host", json!({"labelSelector": {"matchLabels": {"app": "db"}}}))),
    "0/4 nodes are available: 4 node(s) didn't match pod affinity rules"
)]
#[case::first_pod_of_its_group(affinity(term("zone", json!({"labelSelector": {"matchLabels": {"app": "new"}}}))), "a b c")]
#[case::without_selector_matches_nothing(anti_affinity(json!({"topologyKey": "host"})), "a b c d")]
#[case::empty_selector_matches_everything(anti_affinity(term("host", json!({"labelSelector": {}}))), "b c d")]
#[case::another_namespace(anti_affinity(term("host", json!({"namespaces": ["other"]}))), "a b c d")]
#[case::selected_namespaces(anti_affinity(term("host", json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}))), "b c d")]
#[case::all_namespaces(anti_affinity(term("host", json!({"namespaceSelector": {}}))), "b c d")]
#[case::match_label_keys(anti_affinity(term("host", json!({"matchLabelKeys": ["version"]}))), "b c d")]
#[case::mismatch_label_keys(anti_affinity(term("host", json!({"mismatchLabelKeys": ["version"]}))), "a b c d")]
#[case::several_anti_affinity_terms(
    required("podAntiAffinity", &[term("zone", json!({})), term("host", json!({"labelSelector": {}})),
        term("host", json!({"labelSelector": {"matchLabels": {"app": "new"}}}))]),
    "c d"
)]
fn filters_by_pod_affinity(#[case] spec: Value, #[case] expect: &str) {
    let namespace = |name: &str, team: &str| Arc::new(json!({"metadata": {"name": name, "labels": {"team": team}}}));
    let snapshot = SchedulingSnapshot {
        pods: vec![pod("web", "web", "a", json!({})), pod("new", "new", "", spec)],
        nodes: nodes(),
        namespaces: vec![namespace("n", "x"), namespace("other", "y")],
        ..SchedulingSnapshot::default()
    };
    assert_eq!(feasible_nodes_or_message(&snapshot), expect);
}

#[test]
fn filters_by_anti_affinity_of_existing_pods() {
    let snapshot = SchedulingSnapshot {
        pods: vec![
            pod("guard", "guard", "a", anti_affinity(term("zone", json!({})))),
            pod("new", "web", "", json!({})),
        ],
        nodes: nodes(),
        ..SchedulingSnapshot::default()
    };
    assert_eq!(feasible_nodes_or_message(&snapshot), "c d");
    let snapshot = SchedulingSnapshot { nodes: nodes()[..2].to_vec(), ..snapshot };
    assert_eq!(
        feasible_nodes_or_message(&snapshot),
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules"
    );
}

#[rstest]
#[case::zone_with_fewer_pods(&["a"], spread("zone", json!({})), "c")]
#[case::balanced_zones(&["a", "c"], spread("zone", json!({})), "a b c")]
#[case::host_with_fewer_pods(&["a", "b", "c"], spread("host", json!({})), "d")]
#[case::max_skew_of_two(&["a"], spread("zone", json!({"maxSkew": 2})), "a b c")]
#[case::min_domains(
    &["a", "c"], spread("zone", json!({"minDomains": 3})),
    "0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label), 3 node(s) didn't match pod topology spread constraints"
)]
#[case::schedule_anyway(&["a"], spread("zone", json!({"whenUnsatisfiable": "ScheduleAnyway"})), "a b c d")]
#[case::match_label_keys(&["a"], spread("zone", json!({"matchLabelKeys": ["version"]})), "c")]
// Only zone 1 counts, so its skew is 0.
#[case::node_selector_limits_domains(
    &["a"],
    { let mut spec = spread("zone", json!({})); spec["nodeSelector"] = json!({"zone": "1"}); spec },
    "a b"
)]
#[case::node_affinity_policy_ignore(
    &["a"],
    { let mut spec = spread("zone", json!({"nodeAffinityPolicy": "Ignore"})); spec["nodeSelector"] = json!({"zone": "1"}); spec },
    "0/4 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, 2 node(s) didn't match pod topology spread constraints"
)]
fn filters_by_topology_spread(#[case] on: &[&str], #[case] spec: Value, #[case] expect: &str) {
    let mut pods: Vec<Arc<Value>> = on.iter().map(|node| pod(&format!("on-{node}"), "web", node, json!({}))).collect();
    pods.push(pod("new", "web", "", spec));
    assert_eq!(
        feasible_nodes_or_message(&SchedulingSnapshot { pods, nodes: nodes(), ..SchedulingSnapshot::default() }),
        expect
    );
}

/// The only node in zone 2 is tainted.
#[rstest]
#[case::taints_ignored(json!({}), "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match pod topology spread constraints")]
#[case::taints_honored(json!({"nodeTaintsPolicy": "Honor"}), "a b")]
fn filters_by_node_taints_policy(#[case] policy: Value, #[case] expect: &str) {
    let mut nodes = nodes();
    nodes.pop();
    let mut untolerated_taint = Value::clone(&nodes[2]);
    untolerated_taint["spec"] = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    nodes[2] = Arc::new(untolerated_taint);
    let pods = vec![pod("web", "web", "a", json!({})), pod("new", "web", "", spread("zone", policy))];
    assert_eq!(feasible_nodes_or_message(&SchedulingSnapshot { pods, nodes, ..SchedulingSnapshot::default() }), expect);
}

#[rstest]
#[case::same_port(json!([{"hostPort": 80}]), "b c d")]
#[case::other_protocol(json!([{"hostPort": 80, "protocol": "UDP"}]), "a b c d")]
#[case::host_ip(json!([{"hostPort": 80, "hostIP": "127.0.0.1"}]), "b c d")]
#[case::other_port(json!([{"hostPort": 81}]), "a b c d")]
#[case::without_host_port(json!([{"containerPort": 80}]), "a b c d")]
fn node_ports(#[case] ports: Value, #[case] expect: &str) {
    let spec_with_ports = |ports: Value| json!({"containers": [{"name": "c", "image": "i", "ports": ports}]});
    let pods = vec![
        pod("web", "web", "a", spec_with_ports(json!([{"hostPort": 80}]))),
        pod("new", "new", "", spec_with_ports(ports)),
    ];
    assert_eq!(
        feasible_nodes_or_message(&SchedulingSnapshot { pods, nodes: nodes(), ..SchedulingSnapshot::default() }),
        expect
    );
}
