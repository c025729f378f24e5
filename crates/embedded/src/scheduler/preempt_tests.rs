//! Who makes room for whom.

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use super::assign::assign;
use super::{GROUP_NAME, Outcome, World};
use crate::object;

fn node(name: &str, cpu: i64) -> Arc<Value> {
    Arc::new(json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu.to_string()}}}))
}

/// A Pod that runs on `node`, or waits where that is empty.
fn pod(name: &str, priority: i64, cpu: i64, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name},
        "spec": {"priority": priority, "nodeName": node,
                 "containers": [{"resources": {"requests": {"cpu": cpu.to_string()}}}]},
        "status": {"startTime": "2026-01-01T00:00:00Z"},
    })
}

fn in_group(mut pod: Value) -> Value {
    pod["metadata"]["annotations"] = json!({GROUP_NAME: "g"});
    pod["spec"]["schedulerName"] = json!("volcano");
    pod
}

/// `new → a: old-1 old-2`, or why it waits.
fn outcome(pods: Vec<Value>, nodes: &[Arc<Value>], groups: &[Arc<Value>]) -> String {
    let pods = pods.into_iter().map(Arc::new).collect();
    shown(&World { pods, nodes: nodes.to_vec(), groups: groups.to_vec(), ..World::default() })
}

fn shown(world: &World) -> String {
    let verdicts = assign(world);
    let shown = verdicts.iter().map(|verdict| {
        let name = object::name(&verdict.pod);
        match &verdict.outcome {
            Outcome::Bind { node } => format!("{name} on {node}"),
            Outcome::Wait { message, .. } => format!("{name} waits: {message}"),
            Outcome::Preempt { node, victims, .. } => {
                let mut victims: Vec<&str> = victims.iter().map(|victim| object::name(victim)).collect();
                victims.sort_unstable();
                format!("{name} -> {node}: {}", victims.join(" "))
            }
        }
    });
    shown.collect::<Vec<_>>().join("; ")
}

#[rstest]
#[case::lower_makes_room(vec![pod("old", 0, 4, "a"), pod("new", 10, 4, "")], "new -> a: old")]
#[case::as_few_as_needed(vec![pod("old-1", 0, 2, "a"), pod("old-2", 0, 2, "a"), pod("new", 10, 2, "")], "new -> a: old-2")]
#[case::the_less_important(vec![pod("old-1", 1, 2, "a"), pod("old-2", 5, 2, "a"), pod("new", 10, 2, "")], "new -> a: old-1")]
#[case::equals_do_not(
    vec![pod("old", 10, 4, "a"), pod("new", 10, 4, "")],
    "new waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
)]
#[case::it_would_not_help(
    vec![pod("old", 0, 2, "a"), pod("new", 10, 8, "")],
    "new waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)]
fn on_one_node(#[case] pods: Vec<Value>, #[case] expect: &str) {
    assert_eq!(outcome(pods, &[node("a", 4)], &[]), expect);
}

#[rstest]
#[case::the_lower_priority(
    vec![pod("x", 5, 4, "a"), pod("y-1", 3, 2, "b"), pod("y-2", 3, 2, "b"), pod("new", 10, 4, "")], "new -> b: y-1 y-2"
)]
#[case::the_fewer(
    vec![pod("x-1", 3, 2, "a"), pod("x-2", 3, 2, "a"), pod("y", 3, 4, "b"), pod("new", 10, 4, "")], "new -> b: y"
)]
#[case::nobody_twice(
    vec![pod("x", 0, 4, "a"), pod("y", 0, 4, "b"), pod("new-1", 10, 4, ""), pod("new-2", 10, 4, "")],
    "new-1 -> a: x; new-2 -> b: y"
)]
fn the_node_whose_victims_matter_least(#[case] pods: Vec<Value>, #[case] expect: &str) {
    assert_eq!(outcome(pods, &[node("a", 4), node("b", 4)], &[]), expect);
}

/// Two Pods of equal weight on one node, of which one has to go; `old-2` is younger.
#[rstest]
#[case::without_a_budget(None, "new -> a: old-2")]
#[case::the_budget_is_kept(Some(("old-2", 0)), "new -> a: old-1")]
#[case::it_allows_one(Some(("old-2", 1)), "new -> a: old-2")]
#[case::of_another_pod(Some(("old-1", 0)), "new -> a: old-2")]
fn budgets(#[case] budget: Option<(&str, i64)>, #[case] expect: &str) {
    let named = |name: &str, started: &str| {
        let mut pod = pod(name, 0, 2, "a");
        pod["metadata"]["labels"] = json!({"app": name});
        pod["status"]["startTime"] = json!(started);
        pod
    };
    let pods = [named("old-1", "2026-01-01T00:00:00Z"), named("old-2", "2026-01-02T00:00:00Z"), pod("new", 10, 2, "")];
    let budget = budget.map(|(app, allowed)| {
        json!({"metadata": {"namespace": "n"}, "spec": {"selector": {"matchLabels": {"app": app}}},
               "status": {"disruptionsAllowed": allowed}})
    });
    let world = World {
        pods: pods.map(Arc::new).into(),
        nodes: vec![node("a", 4)],
        budgets: budget.into_iter().map(Arc::new).collect(),
        ..World::default()
    };
    assert_eq!(shown(&world), expect);
}

#[test]
fn a_budget_is_broken_where_nothing_else_helps_and_elsewhere_is_better() {
    let labelled = |name: &str, node: &str| {
        let mut pod = pod(name, 0, 4, node);
        pod["metadata"]["labels"] = json!({"app": name});
        pod
    };
    let budget = json!({"metadata": {"namespace": "n"}, "spec": {"selector": {"matchLabels": {"app": "x"}}},
                        "status": {"disruptionsAllowed": 0}});
    let mut world = World {
        pods: [labelled("x", "a"), pod("y", 5, 4, "b"), pod("new", 10, 4, "")].map(Arc::new).into(),
        nodes: vec![node("a", 4), node("b", 4)],
        budgets: vec![Arc::new(budget)],
        ..World::default()
    };
    // A Pod of higher priority goes rather than one that is protected.
    assert_eq!(shown(&world), "new -> b: y");
    world.nodes.pop();
    assert_eq!(shown(&world), "new -> a: x");
}

#[test]
fn who_does_not_want_the_pod_makes_room() {
    let mut old = pod("old", 0, 1, "a");
    let avoid = json!([{"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "new"}}}]);
    old["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": avoid}});
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
fn a_policy_of_never_waits() {
    let mut new = pod("new", 10, 4, "");
    new["spec"]["preemptionPolicy"] = json!("Never");
    assert_eq!(
        outcome(vec![pod("old", 0, 4, "a"), new], &[node("a", 4)], &[]),
        "new waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    );
}

#[test]
fn while_victims_end_the_room_is_kept_and_nobody_else_is_sent_away() {
    let mut going = pod("going", 0, 2, "a");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    let mut new = pod("new", 10, 4, "");
    new["status"]["nominatedNodeName"] = json!("a");
    // Two of four are free already; the third Pod would fit there.
    let seen = outcome(vec![going, new, pod("small", 0, 2, "")], &[node("a", 4)], &[]);
    assert!(
        seen.starts_with("new waits: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node.; small waits: "),
        "{seen}"
    );
}

fn gang(spec: Value) -> Arc<Value> {
    Arc::new(json!({"metadata": {"name": "g", "namespace": "n"}, "spec": spec}))
}

/// Two Pods of one gang on two nodes, and a Pod that wants the room of one of them.
#[rstest]
#[case::whole(2, 0, "new -> a: one two")]
#[case::above_its_minimum(1, 0, "new -> a: one")]
#[case::one_may_not(
    2,
    20,
    "new waits: 0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
)]
fn a_gang_goes_whole_or_stays(#[case] minimum: u32, #[case] priority_of_two: i64, #[case] expect: &str) {
    let one = in_group(pod("one", 0, 4, "a"));
    let two = in_group(pod("two", priority_of_two, 4, "b"));
    let groups = [gang(json!({"minMember": minimum}))];
    assert_eq!(outcome(vec![one, two, pod("new", 10, 4, "")], &[node("a", 4), node("b", 4)], &groups), expect);
}

#[test]
fn a_surplus_subgroup_goes_alone_and_whole() {
    let member = |name: &str, replica: &str, node: &str| {
        let mut pod = in_group(pod(name, 0, 4, node));
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
fn a_gang_takes_nobodys_room() {
    let pods = vec![pod("old", 0, 4, "a"), in_group(pod("new", 10, 4, ""))];
    let seen = outcome(pods, &[node("a", 4)], &[gang(json!({"minMember": 1}))]);
    assert!(seen.starts_with("new waits: pod group is not ready"), "{seen}");
}
