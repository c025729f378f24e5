//! Defects of the deployed controller that its code or its issues show.

use std::time::Duration;

use actuation::{CallErrorKind, Settings};
use api::dual_pods;
use rstest::rstest;
use serde_json::json;

use crate::models::{EngineActivity, EngineModel};
use crate::world::World;

fn world() -> World {
    World::new(Settings::default())
}

fn labels(world: &World, name: &str) -> serde_json::Value {
    world.pod(name).unwrap()["metadata"]["labels"].clone()
}

/// A requester of the same name that is created again is another server.
// spec: DP-44
#[test]
fn recreated_requester_is_another_server() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let provider = world.provider_of("r").unwrap();
    world.force_delete("r");
    world.create("r", "b", "m");
    world.run();
    let second = world.provider_of("r").unwrap();
    assert_ne!(provider, second);
    assert_eq!(world.engine(&provider).activity, EngineActivity::Asleep);
    let pod = world.pod(&second).unwrap();
    assert_eq!(pod["metadata"]["annotations"][dual_pods::ACCELERATORS], "GPU-b");
}

/// The next requester gets the accelerator of one that was force-deleted: nothing is woken before its engine is asleep.
// spec: DP-59
#[test]
fn accelerator_of_a_lost_requester_is_busy() {
    let mut world = world();
    world.create("old", "a", "old");
    world.run();
    let provider = world.provider_of("old").unwrap();
    world.engine(&provider).running_requests = 2;
    world.force_delete("old");
    world.create("r", "a", "m");
    world.run_controller();
    world.run();
    let journal = world.take_journal().join("\n");
    let sleep = journal.find("POST old-dual/sleep").unwrap();
    assert!(sleep < journal.find("CREATE r-dual").unwrap(), "{journal}");
    assert!(world.requesters["r"].is_ready);
}

/// The requester is deleted while its engine loads. It waits until the provider is gone, and the engine never serves unbound.
// spec: DP-65, DP-66
#[test]
fn requester_waits_for_an_engine_that_loads() {
    let mut world = world();
    world.engines_start = false;
    world.create("r", "a", "m");
    world.run();
    let finalizers = world.pod("r").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!([dual_pods::REQUESTER_FINALIZER]), "before the engine runs");
    world.delete("r");
    world.run_controller();
    assert!(world.pod("r").is_some() && !world.requesters["r"].is_released);
    world.engines_start = true;
    world.run();
    assert!(world.pods().is_empty());
}

/// An engine that died cannot be put to sleep: it is deleted, and its requester ends.
// spec: DP-69, DP-70
#[test]
fn requester_of_a_dead_engine_ends_after_a_restart() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let provider = world.provider_of("r").unwrap();
    world.is_running = false;
    world.delete("r");
    world.engine(&provider).activity = EngineActivity::Dead;
    world.run();
    world.restart();
    world.run();
    assert!(world.pods().is_empty());
}

// spec: DP-69
#[test]
fn sleep_that_fails_three_times_deletes_the_provider() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let provider = world.provider_of("r").unwrap();
    world.engine(&provider).ignores_sleep = true;
    world.take_journal();
    world.delete("r");
    world.run();
    let journal = world.take_journal();
    assert_eq!(journal.iter().filter(|entry| entry.contains("/sleep?")).count(), 3, "{journal:?}");
    assert!(journal.iter().any(|entry| entry == "DELETE r-dual NotSleeping"));
    assert!(world.pods().is_empty());
}

/// The main memory does not suffice for the weights of the engine, which shows when it is first put to sleep.
// spec: DP-40
#[rstest]
#[case::request_fails(|engine: &mut EngineModel| engine.failing = Some(("sleep", CallErrorKind::Rejected)), "failed")]
#[case::engine_is_killed(|engine: &mut EngineModel| engine.ends_at_sleep = true, "connection reset")]
fn first_sleep_fails(#[case] edit: fn(&mut EngineModel), #[case] cause: &str) {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let provider = world.provider_of("r").unwrap();
    edit(world.engine(&provider));
    world.take_journal();
    world.delete("r");
    world.run();
    let journal = world.take_journal();
    let status = format!("STATUS r [\"failed to put to sleep the engine of Pod r-dual: {cause}\"]");
    assert_eq!(journal.iter().filter(|entry| **entry == status).count(), 1, "{journal:?}");
    assert!(world.pods().is_empty());
}

/// A sleeper that is being deleted, and one that is bound, are not bound.
// spec: DP-54
#[test]
fn terminating_sleeper_is_not_bound() {
    let mut world = world();
    let provider = world.create_sleeper("first", "a", "m");
    world.delete(&provider);
    world.create("second", "a", "m");
    world.run();
    assert_ne!(world.provider_of("second").unwrap(), provider);
    world.create("third", "b", "m");
    world.run();
    assert_eq!(world.providers().len(), 2, "each requester has its own provider");
}

/// Two providers are bound to one requester: the ready one remains, the other is unbound, and the status of the requester reports both.
// spec: DP-48
#[test]
fn surplus_provider_is_unbound() {
    let mut world = world();
    world.create_sleeper("first", "a", "m");
    world.create("r", "b", "m");
    world.run();
    let retained = world.provider_of("r").unwrap();
    let surplus = world
        .providers()
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .find(|name| *name != retained)
        .unwrap();
    let binding = world.pod(&retained).unwrap()["metadata"]["annotations"][dual_pods::REQUESTER].clone();
    world.edit(&surplus, |pod| {
        pod["metadata"]["annotations"][dual_pods::REQUESTER] = binding.clone();
        pod["metadata"]["finalizers"] = json!([dual_pods::PROVIDER_FINALIZER]);
    });
    world.take_journal();
    world.run_unchecked();
    assert!(
        world.take_journal().iter().any(|entry| entry.starts_with("STATUS r [\"2 server-providing Pods are bound"))
    );
    assert_eq!(world.provider_of("r"), Some(retained));
    assert!(world.errors("r").is_empty());
    assert_eq!(world.providers().len(), 2);
}

/// A provider is created once, although the cache does not show it yet.
#[test]
fn stale_cache_does_not_create_a_second_provider() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let name = world.provider_of("r").unwrap();
    let again = world.pod("r").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    assert!(!again.is_empty());
    let duplicate = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let error = world.server.create("pods", duplicate).unwrap_err();
    assert_eq!(error.reason, "AlreadyExists", "its name depends on the requester");
}

/// Node and ConfigMap events trigger the servers that wait for them.
// spec: DP-45, DP-106
#[test]
fn late_gpu_map_triggers_waiting_servers() {
    let mut world = world();
    world.server.delete("configmaps", "default", "gpu-map", None).unwrap();
    world.create("r", "a", "m");
    world.run();
    assert_eq!(world.errors("r"), ["GPU map ConfigMap gpu-map is not available"]);
    let map = |data: &str| json!({"metadata": {"name": "gpu-map", "namespace": "default"}, "data": {"node-1": data}});
    world.server.create("configmaps", map("{}")).unwrap();
    world.run();
    assert_eq!(world.errors("r"), ["UUID GPU-a is not known"]);
    assert!(world.providers().is_empty());
    world.server.update("configmaps", map(r#"{"GPU-a": 0}"#)).unwrap();
    world.run();
    assert!(world.errors("r").is_empty() && world.requesters["r"].is_ready);
}

/// Pools select the engine only while it is awake: the labels are removed before it drains.
// spec: DP-36, DP-68
#[test]
fn requests_finish_before_the_engine_sleeps() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let provider = world.provider_of("r").unwrap();
    assert_eq!(labels(&world, &provider)["model"], "m");
    world.engine(&provider).running_requests = 3;
    world.delete("r");
    world.take_journal();
    world.run();
    let journal = world.take_journal();
    assert_eq!(journal.iter().filter(|entry| entry.contains("/metrics")).count(), 3, "{journal:?}");
    assert!(journal.contains(&"POST r-dual/sleep?level=1&mode=wait".to_owned()));
    assert!(!world.engine(&provider).aborted && labels(&world, &provider).get("model").is_none());
}

// spec: DP-68
#[test]
fn requests_that_take_too_long_are_aborted() {
    let mut world = World::new(Settings { drain: Duration::from_millis(100), ..Settings::default() });
    world.create("r", "a", "m");
    world.run();
    let provider = world.provider_of("r").unwrap();
    world.engine(&provider).running_requests = 1000;
    world.delete("r");
    world.run();
    assert!(world.engine(&provider).aborted && world.pod("r").is_none());
}

/// Readiness is withdrawn when the provider is not ready any longer, and reported again.
// spec: DP-60, DP-61
#[test]
fn readiness_is_relayed_in_both_directions() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let provider = world.provider_of("r").unwrap();
    for is_ready in [false, true] {
        world.set_ready(&provider, is_ready);
        world.take_journal();
        world.run();
        assert_eq!(world.requesters["r"].is_ready, is_ready);
        assert_eq!(world.take_journal().len(), 1, "one request");
    }
}

/// The labels of the former requester end with the binding; those of other clients remain.
#[test]
fn binding_retains_labels_of_other_clients() {
    let mut world = world();
    let provider = world.create_sleeper("first", "a", "m");
    let metadata = json!({"name": provider, "namespace": "default", "labels": {"zone": "z"}});
    world.server.apply("pods", &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}), "other").unwrap();
    world.create("second", "a", "m");
    world.run();
    assert_eq!(world.provider_of("second").as_ref(), Some(&provider));
    assert_eq!(labels(&world, &provider)["zone"], "z");
}

/// A request that withdraws the readiness fails once, and is repeated.
#[test]
fn readiness_is_withdrawn_after_a_failure() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let provider = world.provider_of("r").unwrap();
    world.set_ready(&provider, false);
    world.requesters.get_mut("r").unwrap().failing = Some(CallErrorKind::NoResponse);
    world.run_controller();
    assert!(world.requesters["r"].is_ready);
    world.requesters.get_mut("r").unwrap().failing = None;
    world.run();
    assert!(!world.requesters["r"].is_ready);
}

/// The engine is not the one that fell asleep: it is deleted, and the requester gets another one.
// spec: DP-57
#[test]
fn changed_completion_deletes_the_provider() {
    let mut world = World::new(Settings { verify_completion: true, ..Settings::default() });
    let provider = world.create_sleeper("first", "a", "m");
    world.engine(&provider).completion = "b".to_owned();
    world.create("second", "a", "m");
    world.run();
    let second = world.provider_of("second").unwrap();
    assert_ne!(second, provider);
    assert!(world.pod(&provider).is_none() && world.requesters["second"].is_ready);
}

/// An unbound engine that is awake, for example after a wake request of a former leader arrived late, is put to sleep.
// spec: DP-56
#[test]
fn awake_sleeper_is_put_to_sleep_at_the_start_of_a_term() {
    let mut world = world();
    let provider = world.create_sleeper("first", "a", "m");
    world.engine(&provider).activity = EngineActivity::Awake;
    world.restart();
    world.create("second", "a", "other");
    world.run();
    assert_eq!(world.engine(&provider).activity, EngineActivity::Asleep);
    assert!(world.requesters["second"].is_ready);
}

/// An engine without the routes of sleep mode serves, its requester reports what is missing, and it is deleted with its requester.
#[test]
fn engine_without_sleep_mode_is_deleted_at_unbind() {
    let mut world = world();
    world.templates.insert("r".to_owned(), EngineModel { has_sleep_mode: false, ..EngineModel::new() });
    world.create("r", "a", "m");
    world.run();
    assert!(world.requesters["r"].is_ready);
    let [error] = <[String; 1]>::try_from(world.errors("r")).unwrap();
    assert!(error.ends_with("set the variable VLLM_SERVER_DEV_MODE=1 and the flag --enable-sleep-mode"), "{error}");
    world.delete("r");
    world.run();
    assert!(world.pods().is_empty());
}

/// A wake request whose answer is lost is followed by queries.
#[test]
fn lost_answer_of_a_wake_request() {
    let mut world = world();
    let provider = world.create_sleeper("first", "a", "m");
    world.engine(&provider).failing = Some(("wake", CallErrorKind::NoResponse));
    world.create("second", "a", "m");
    world.run_controller();
    world.engine(&provider).failing = None;
    world.engine(&provider).activity = EngineActivity::Awake;
    world.run();
    assert_eq!(world.provider_of("second"), Some(provider));
    assert!(world.requesters["second"].is_ready);
}

/// The Node is deleted: both Pods end without further work.
// spec: DP-79
#[test]
fn pods_of_a_deleted_node_end() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let provider = world.provider_of("r").unwrap();
    world.server.delete("nodes", "", crate::world::NODE, None).unwrap();
    world.delete("r");
    world.delete(&provider);
    world.take_journal();
    world.run();
    assert_eq!(world.take_journal(), ["PATCH r-dual unbind", "PATCH r finish"], "no request to a Pod of the node");
    world.advance(Duration::from_secs(60));
    world.run();
    assert!(world.pods().is_empty());
}

/// A binding that a user edits is repaired: the finalizer is present exactly while bound.
// spec: DP-47
#[test]
fn finalizer_is_restored() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let provider = world.provider_of("r").unwrap();
    world.edit(&provider, |pod| pod["metadata"]["finalizers"] = json!([]));
    world.take_journal();
    world.run_unchecked();
    assert_eq!(world.take_journal(), ["PATCH r-dual restore"]);
}

/// A requester that reports other accelerators after its container restarted gets another engine.
#[test]
fn changed_accelerators_change_the_engine() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    let first = world.provider_of("r").unwrap();
    world.requesters.get_mut("r").unwrap().accelerators = ["GPU-b".to_owned()].into();
    world.restart_requester("r");
    world.run();
    let second = world.provider_of("r").unwrap();
    let pod = world.pod(&second).unwrap();
    assert_eq!(pod["metadata"]["annotations"][dual_pods::ACCELERATORS], "GPU-b");
    assert!(world.requesters["r"].is_ready);
    assert!(world.pod(&first).is_none() || first == second, "its name is needed");
}
