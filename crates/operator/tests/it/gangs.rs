//! The scheduling table of seed 002, with operator, workload controllers, scheduler and node agent at work.

use embedded::Server;
use rstest::rstest;
use serde_json::json;

use crate::cluster::ROLES;
use crate::machine::{Machine, placed, role, roles, story_4};

const NAME: &str = "deepseek-r1-disagg";

/// A replica has all its nodes or none, and nothing runs before one replica of each role can.
fn nothing_by_halves(server: &Server) {
    let placed = placed(server);
    for (replica, count) in &placed {
        let whole = if replica.starts_with("prefill") { 2 } else { 4 };
        assert_eq!(*count, whole, "{replica} in {placed:?}");
    }
    let has = |role: &str| placed.keys().any(|replica| replica.starts_with(role));
    assert_eq!(has("prefill"), has("decode"), "{placed:?}");
}

async fn settles(machine: &Machine, reason: &str) -> String {
    let probe = |server: &Server| {
        let told = crate::machine::condition(server, NAME, "GangScheduled")?;
        (told["reason"] == reason).then(|| told["message"].as_str().unwrap().to_owned())
    };
    machine.until_with(&format!("{reason} at {:?}", machine.placed()), &probe, &nothing_by_halves).await
}

// spec: TOP-15
// spec: TOP-85
#[rstest]
// spec: TOP-60
#[case::everything(80, "FullCapacity", &["decode-0 4", "decode-1 4", "prefill-0 2"])]
// spec: TOP-61
#[case::a_pair_and_two_nodes_left(64, "PartialCapacity", &["decode-0 4", "prefill-0 2"])]
// spec: TOP-62
#[case::a_pair(48, "PartialCapacity", &["decode-0 4", "prefill-0 2"])]
// spec: TOP-63
#[case::no_pair(32, "Blocked", &[])]
// spec: TOP-64
#[case::a_prefill_would_fit(16, "Blocked", &[])]
#[tokio::test(start_paused = true)]
async fn the_table_row_by_row(#[case] gpus: usize, #[case] reason: &str, #[case] expect: &[&str]) {
    let machine = Machine::with_gpus(gpus);
    machine.server.create(ROLES, story_4()).unwrap();
    settles(&machine, reason).await;
    assert_eq!(machine.placed(), expect);
}

// spec: TOP-66
// spec: TOP-67
// spec: TOP-69
#[tokio::test(start_paused = true)]
async fn it_grows_as_gpus_are_added_and_what_runs_is_not_touched() {
    let mut machine = Machine::with_gpus(16);
    machine.server.create(ROLES, story_4()).unwrap();
    let blocked = settles(&machine, "Blocked").await;
    assert!(
        blocked.starts_with("nothing runs before one replica of each role has its nodes; prefill-0 waits: "),
        "{blocked}"
    );
    machine.grow_to(32);
    settles(&machine, "Blocked").await;
    machine.grow_to(48);
    let partial = settles(&machine, "PartialCapacity").await;
    assert!(partial.starts_with("1 prefill + 1 decode of 1 + 2; decode-1 waits: "), "{partial}");
    let active = machine.condition(NAME, "Active", "MinimumReady").await;
    assert_eq!(active["message"], "ready replicas: prefill 1 of 1, decode 1 of 2");
    let server = machine.server.clone();
    let running = || {
        let bound = server.list("pods").into_iter().filter(|pod| pod["spec"]["nodeName"].is_string());
        bound.map(|pod| pod["metadata"]["uid"].to_string()).collect::<Vec<_>>()
    };
    let first = running();
    machine.grow_to(64);
    settles(&machine, "PartialCapacity").await;
    assert_eq!(running(), first);
    machine.grow_to(80);
    settles(&machine, "FullCapacity").await;
    machine.ready(NAME).await;
    let all = running();
    assert!(first.iter().all(|uid| all.contains(uid)) && all.len() == 10);
}

// spec: TOP-66
// spec: TOP-67
#[tokio::test(start_paused = true)]
async fn all_or_nothing_starts_when_all_of_it_fits() {
    let mut machine = Machine::with_gpus(64);
    let mut service = story_4();
    service["spec"]["schedulingStrategy"] = json!({"gangPolicy": "All"});
    machine.server.create(ROLES, service).unwrap();
    settles(&machine, "Blocked").await;
    assert_eq!(machine.placed(), [""; 0]);
    machine.grow_to(80);
    settles(&machine, "FullCapacity").await;
    assert_eq!(machine.placed(), ["decode-0 4", "decode-1 4", "prefill-0 2"]);
}

// spec: TOP-26
// spec: TOP-41
// spec: TOP-42
// spec: TOP-68
#[tokio::test(start_paused = true)]
async fn one_whole_replica_of_several_nodes_is_better_than_none() {
    let mut machine = Machine::with_gpus(56);
    machine.server.create(ROLES, roles("deepseek-r1", vec![role("inference", "worker", 2, 4, 8)])).unwrap();
    // The second replica is told to wait once the scheduler has looked at it.
    let waits = |server: &Server| {
        let told = crate::machine::condition(server, "deepseek-r1", "GangScheduled")?;
        told["message"].as_str()?.starts_with("1 inference of 2; inference-1 waits: ").then_some(told)
    };
    let told = machine.until("the second replica to wait", &waits).await;
    assert_eq!(told["reason"], "PartialCapacity");
    assert_eq!(machine.placed(), ["inference-0 4"]);
    machine.grow_to(64);
    machine.ready("deepseek-r1").await;
    let names = ["", "-1", "-2", "-3"].map(|worker| format!("deepseek-r1-inference-0-0{worker}"));
    let others = ["", "-1", "-2", "-3"].map(|worker| format!("deepseek-r1-inference-1-0{worker}"));
    assert_eq!(machine.names("pods"), [names, others].concat());
    let mut nodes: Vec<String> =
        machine.server.list("pods").iter().map(|pod| pod["spec"]["nodeName"].to_string()).collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 8, "each Pod has a node of its own");
}

/// Worker, pair, several nodes, and a pair over several nodes: all four are kept as they were written.
// spec: TOP-1
#[test]
fn every_story_is_accepted_as_it_is() {
    let server = crate::cluster::bare();
    let stories = [
        roles("qwen-inference", vec![role("inference", "worker", 1, 1, 1)]),
        roles(
            "qwen-inference-service",
            vec![role("prefill", "prefiller", 2, 1, 1), role("decode", "decoder", 4, 1, 1)],
        ),
        roles("deepseek-r1-inference", vec![role("inference", "worker", 2, 4, 8)]),
        story_4(),
    ];
    for story in stories {
        let stored = server.create(ROLES, story.clone()).unwrap();
        assert_eq!(stored["spec"], story["spec"]);
        let mut told = (*stored).clone();
        (told["status"]["observedGeneration"], told["spec"]["roles"]) = (json!(1), json!([]));
        let told = server.update_status(ROLES, told).unwrap();
        assert_eq!((&told["spec"], &told["status"]["observedGeneration"]), (&story["spec"], &json!(1)));
    }
}

// spec: TOP-20
#[tokio::test(start_paused = true)]
async fn one_pod_on_one_gpu() {
    let machine = Machine::with_gpus(8);
    let mut service = roles("qwen-inference", vec![role("inference", "worker", 1, 1, 1)]);
    service["spec"]["roles"][0].as_object_mut().unwrap().remove("multinode");
    machine.server.create(ROLES, service).unwrap();
    machine.ready("qwen-inference").await;
    assert_eq!(machine.names("pods"), ["qwen-inference-inference-0-0"]);
    assert!(crate::machine::condition(&machine.server, "qwen-inference", "GangScheduled").is_none());
}
