//! Servers do not delay or disturb each other. One is decided about at a time per node.

use actuation::{Action, Settings};
use apimachinery::object;

use crate::models::EngineActivity;
use crate::world::{NODE, World};

fn world() -> World {
    World::new(Settings::default())
}

/// A requester does not answer. Servers on its node and on another one become ready, and so does its own once it answers.
// spec: DP-46
#[test]
fn call_that_hangs_delays_no_other_server() {
    let mut world = world();
    world.add_node("node-2", "e");
    world.create("hanging", "a", "m");
    world.requesters.get_mut("hanging").unwrap().hangs = true;
    world.create("same-node", "b", "m");
    world.create_with("other-node", "e", "m", |pod| pod["spec"]["nodeName"] = "node-2".into());
    world.run();
    let is_ready = |world: &World, name: &str| world.requesters[name].is_ready;
    assert!(is_ready(&world, "same-node") && is_ready(&world, "other-node") && !is_ready(&world, "hanging"));
    world.requesters.get_mut("hanging").unwrap().hangs = false;
    world.run();
    assert!(is_ready(&world, "hanging"));
}

/// Until the result of a write is known, its node is not decided about, but another one is.
// spec: DP-46
#[test]
fn one_write_is_in_progress_per_node() {
    let mut world = world();
    world.add_node("node-2", "e");
    world.create("first", "a", "m");
    world.create("second", "b", "m");
    world.create_with("other-node", "e", "m", |pod| pod["spec"]["nodeName"] = "node-2".into());
    world.run_kubelet();
    let mut in_progress = Vec::new();
    while let Some(decision) = world.decide() {
        match decision.action {
            Some(Action::Write(_)) => in_progress.push(decision),
            _ => world.execute(&decision),
        }
    }
    in_progress.sort_by(|one, other| one.node.cmp(&other.node));
    let nodes: Vec<&str> = in_progress.iter().map(|decision| decision.node.as_str()).collect();
    assert_eq!(nodes, [NODE, "node-2"]);
    world.edit("second", |pod| pod["metadata"]["labels"] = serde_json::json!({"changed": "true"}));
    assert_eq!(world.decide(), None, "the change is considered after the write");
    in_progress.iter().for_each(|decision| world.execute(decision));
    world.run();
    assert!(world.requesters.values().all(|requester| requester.is_ready));
}

/// A server is recorded while its requester exists, and while a provider is bound to it.
// spec: DP-49
#[test]
fn server_is_forgotten_with_both_pods() {
    let mut world = world();
    let servers = |world: &World| {
        let node = world.coordinator.node(NODE);
        node.into_iter().flat_map(|node| node.servers.keys().cloned()).collect::<Vec<_>>()
    };
    world.create("r", "a", "m");
    world.requesters.get_mut("r").unwrap().hangs = true;
    world.run();
    let uid = object::uid(&world.pod("r").unwrap()).to_owned();
    assert!(world.providers().is_empty());
    assert_eq!(servers(&world), [uid.as_str()], "it has no provider yet");

    world.requesters.get_mut("r").unwrap().hangs = false;
    world.run();
    let provider = world.provider_of("r").unwrap();
    world.force_delete("r");
    let decision = world.decide().unwrap();
    assert_eq!(servers(&world), [uid.as_str()], "its provider is bound");
    world.execute(&decision);
    world.run();
    assert_eq!(world.engine(&provider).activity, EngineActivity::Asleep);
    assert_eq!(servers(&world), Vec::<String>::new());
}

/// A set is scaled out: nothing is sent to the Pods of a running engine, and its requester remains ready.
// spec: DP-91
#[test]
fn scaling_out_disturbs_no_engine() {
    let mut world = world();
    world.create_sleeper("former", "b", "m");
    world.create("running", "a", "m");
    world.run();
    let pods = |world: &World| [world.pod("running"), world.pod(&world.provider_of("running").unwrap())];
    let before = pods(&world);
    world.take_journal();
    world.create("hot", "b", "m");
    world.create("cold", "c", "m");
    world.run();
    assert!(["running", "hot", "cold"].iter().all(|name| world.requesters[*name].is_ready));
    assert_eq!(pods(&world), before, "both Pods have the same resource version");
    let journal = world.take_journal();
    assert!(!journal.iter().any(|entry| entry.contains("running")), "{journal:?}");
}
