//! Tests of preemption: victims and nominated nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::object;
use rstest::rstest;
use serde_json::{Value, json};

use super::SchedulingSnapshot;
use super::assign::schedule_pending;
use super::decision::Outcome;
use super::pod_info::GROUP_NAME;

fn node(name: &str, cpu: i64) -> Arc<Value> {
    Arc::new(json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu.to_string()}}}))
}

/// Returns a Pod that runs on `node`, or a pending Pod if `node` is empty.
fn pod(name: &str, priority: i64, cpu: i64, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name},
        "spec": {"priority": priority, "nodeName": node,
                 "containers": [{"resources": {"requests": {"cpu": cpu.to_string()}}}]},
        "status": {"startTime": "2026-01-01T00:00:00Z"},
    })
}

fn gang_member(mut pod: Value) -> Value {
    pod["metadata"]["annotations"] = json!({GROUP_NAME: "g"});
    pod["spec"]["schedulerName"] = json!("volcano");
    pod
}

/// Returns `POD -> NODE: VICTIMS`, `POD on NODE` or `POD waits: MESSAGE` for every pending Pod.
fn outcome(pods: Vec<Value>, nodes: &[Arc<Value>], groups: &[Arc<Value>]) -> String {
    let pods = pods.into_iter().map(Arc::new).collect();
    outcomes(&SchedulingSnapshot {
        pods,
        nodes: nodes.to_vec(),
        groups: groups.to_vec(),
        ..SchedulingSnapshot::default()
    })
}

fn outcomes(snapshot: &SchedulingSnapshot) -> String {
    let decisions = schedule_pending(snapshot, &BTreeSet::new()).decisions;
    let lines = decisions.iter().map(|decision| {
        let name = object::name(&decision.pod);
        match &decision.outcome {
            Outcome::Bind { node } => format!("{name} on {node}"),
            Outcome::Wait { message, .. } => format!("{name} waits: {message}"),
            Outcome::Preempt { node, victims, .. } => {
                let mut victims: Vec<&str> = victims.iter().map(|victim| object::name(victim)).collect();
                victims.sort_unstable();
                format!("{name} -> {node}: {}", victims.join(" "))
            }
        }
    });
    lines.collect::<Vec<_>>().join("; ")
}

#[rstest]
#[case::lower_priority(vec![pod("old", 0, 4, "a"), pod("new", 10, 4, "")], "new -> a: old")]
#[case::fewest_victims(vec![pod("old-1", 0, 2, "a"), pod("old-2", 0, 2, "a"), pod("new", 10, 2, "")], "new -> a: old-2")]
#[case::lowest_priority(vec![pod("old-1", 1, 2, "a"), pod("old-2", 5, 2, "a"), pod("new", 10, 2, "")], "new -> a: old-1")]
#[case::equal_priority(
    vec![pod("old", 10, 4, "a"), pod("new", 10, 4, "")],
    "new waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
)]
#[case::not_helpful(
    vec![pod("old", 0, 2, "a"), pod("new", 10, 8, "")],
    "new waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)]
fn selects_victims_on_one_node(#[case] pods: Vec<Value>, #[case] expect: &str) {
    assert_eq!(outcome(pods, &[node("a", 4)], &[]), expect);
}

#[rstest]
#[case::lowest_priority_node(
    vec![pod("x", 5, 4, "a"), pod("y-1", 3, 2, "b"), pod("y-2", 3, 2, "b"), pod("new", 10, 4, "")], "new -> b: y-1 y-2"
)]
#[case::fewest_victims_node(
    vec![pod("x-1", 3, 2, "a"), pod("x-2", 3, 2, "a"), pod("y", 3, 4, "b"), pod("new", 10, 4, "")], "new -> b: y"
)]
#[case::victims_are_preempted_once(
    vec![pod("x", 0, 4, "a"), pod("y", 0, 4, "b"), pod("new-1", 10, 4, ""), pod("new-2", 10, 4, "")],
    "new-1 -> a: x; new-2 -> b: y"
)]
fn selects_node_with_least_important_victims(#[case] pods: Vec<Value>, #[case] expect: &str) {
    assert_eq!(outcome(pods, &[node("a", 4), node("b", 4)], &[]), expect);
}

/// One of two Pods with equal priority on a node must be preempted; `old-2` is the younger one.
#[rstest]
#[case::no_budget(None, "new -> a: old-2")]
#[case::protected_by_budget(Some(("old-2", 0)), "new -> a: old-1")]
#[case::budget_allows_disruption(Some(("old-2", 1)), "new -> a: old-2")]
#[case::budget_of_other_pod(Some(("old-1", 0)), "new -> a: old-2")]
fn respects_budgets(#[case] budget: Option<(&str, i64)>, #[case] expect: &str) {
    let labeled_pod = |name: &str, started: &str| {
        let mut pod = pod(name, 0, 2, "a");
        pod["metadata"]["labels"] = json!({"app": name});
        pod["status"]["startTime"] = json!(started);
        pod
    };
    let pods = [
        labeled_pod("old-1", "2026-01-01T00:00:00Z"),
        labeled_pod("old-2", "2026-01-02T00:00:00Z"),
        pod("new", 10, 2, ""),
    ];
    let budget = budget.map(|(app, allowed)| {
        json!({"metadata": {"namespace": "n"}, "spec": {"selector": {"matchLabels": {"app": app}}},
               "status": {"disruptionsAllowed": allowed}})
    });
    let snapshot = SchedulingSnapshot {
        pods: pods.map(Arc::new).into(),
        nodes: vec![node("a", 4)],
        budgets: budget.into_iter().map(Arc::new).collect(),
        ..SchedulingSnapshot::default()
    };
    assert_eq!(outcomes(&snapshot), expect);
}

#[test]
fn violates_budget_only_without_alternative() {
    let labeled_pod = |name: &str, node: &str| {
        let mut pod = pod(name, 0, 4, node);
        pod["metadata"]["labels"] = json!({"app": name});
        pod
    };
    let budget = json!({"metadata": {"namespace": "n"}, "spec": {"selector": {"matchLabels": {"app": "x"}}},
                        "status": {"disruptionsAllowed": 0}});
    let mut snapshot = SchedulingSnapshot {
        pods: [labeled_pod("x", "a"), pod("y", 5, 4, "b"), pod("new", 10, 4, "")].map(Arc::new).into(),
        nodes: vec![node("a", 4), node("b", 4)],
        budgets: vec![Arc::new(budget)],
        ..SchedulingSnapshot::default()
    };
    // The Pod with the higher priority is preempted, because a budget protects the other one.
    assert_eq!(outcomes(&snapshot), "new -> b: y");
    snapshot.nodes.pop();
    assert_eq!(outcomes(&snapshot), "new -> a: x");
}

#[test]
fn preempts_pod_with_anti_affinity() {
    let mut old = pod("old", 0, 1, "a");
    let terms = json!([{"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "new"}}}]);
    old["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    let mut new = pod("new", 10, 1, "");
    new["metadata"]["labels"] = json!({"app": "new"});
    let mut host = Value::clone(&node("a", 4));
    host["metadata"]["labels"] = json!({"host": "a"});
    assert_eq!(
        outcome(vec![old, new, pod("other", 0, 1, "a")].into_iter().collect(), &[Arc::new(host)], &[]),
        "new -> a: old"
    );
}

#[test]
fn preemption_policy_never_waits() {
    let mut new = pod("new", 10, 4, "");
    new["spec"]["preemptionPolicy"] = json!("Never");
    assert_eq!(
        outcome(vec![pod("old", 0, 4, "a"), new], &[node("a", 4)], &[]),
        "new waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    );
}

#[test]
fn reserves_nominated_node_while_victims_terminate() {
    let mut terminating = pod("going", 0, 2, "a");
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    let mut new = pod("new", 10, 4, "");
    new["status"]["nominatedNodeName"] = json!("a");
    // Two of the four cores are already free, so `small` would fit without the reservation for `new`.
    let outcome = outcome(vec![terminating, new, pod("small", 0, 2, "")], &[node("a", 4)], &[]);
    assert!(
        outcome.starts_with("new waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node.; small waits: "),
        "{outcome}"
    );
}

fn gang(spec: Value) -> Arc<Value> {
    Arc::new(json!({"metadata": {"name": "g", "namespace": "n"}, "spec": spec}))
}

/// A gang has one Pod on each of two nodes, and a Pod of higher priority needs one of these nodes.
#[rstest]
#[case::entire_gang(2, 0, "new -> a: one two")]
#[case::above_minimum(1, 0, "new -> a: one")]
#[case::member_of_higher_priority(
    2,
    20,
    "new waits: 0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
)]
fn preempts_entire_gang_or_none(#[case] min_member: u32, #[case] second_priority: i64, #[case] expect: &str) {
    let first = gang_member(pod("one", 0, 4, "a"));
    let second = gang_member(pod("two", second_priority, 4, "b"));
    let groups = [gang(json!({"minMember": min_member}))];
    assert_eq!(outcome(vec![first, second, pod("new", 10, 4, "")], &[node("a", 4), node("b", 4)], &groups), expect);
}

#[test]
fn preempts_surplus_subgroup_only() {
    let member = |name: &str, replica: &str, node: &str| {
        let mut pod = gang_member(pod(name, 0, 4, node));
        pod["metadata"]["labels"] = json!({"role": "decode", "replica": replica});
        pod
    };
    let policy = json!({"labelSelector": {"matchLabels": {"role": "decode"}}, "matchLabelKeys": ["replica"],
                        "subGroupSize": 2, "minSubGroups": 1});
    let groups = [gang(json!({"minMember": 2, "subGroupPolicy": [policy]}))];
    let pods = vec![
        member("d-0-0", "0", "a"),
        member("d-0-1", "0", "b"),
        member("d-1-0", "1", "c"),
        member("d-1-1", "1", "d"),
        pod("new", 10, 4, ""),
    ];
    let nodes: Vec<_> = ["a", "b", "c", "d"].map(|name| node(name, 4)).into();
    assert_eq!(outcome(pods, &nodes, &groups), "new -> a: d-0-0 d-0-1");
}

#[test]
fn gang_does_not_preempt() {
    let pods = vec![pod("old", 0, 4, "a"), gang_member(pod("new", 10, 4, ""))];
    let outcome = outcome(pods, &[node("a", 4)], &[gang(json!({"minMember": 1}))]);
    assert!(outcome.starts_with("new waits: pod group is not ready"), "{outcome}");
}
