//! Launcher mode: traces and budget.

use std::collections::BTreeMap;

use actuation::{Mode, Settings};
use rstest::rstest;
use serde_json::{Value, json};

use crate::models::EngineActivity;
use crate::world::World;

const MODE: &str = "dual-pods.llm-d.ai/mode";

fn settings(sleeper_limit: usize, max_instances: usize) -> Settings {
    let mut settings = Settings { sleeper_limit, mode: Mode::Launcher, health_interval: None, ..Settings::default() };
    settings.launcher.max_instances = max_instances;
    settings
}

fn world(sleeper_limit: usize, max_instances: usize) -> World {
    World::new(settings(sleeper_limit, max_instances))
}

/// Creates a requester whose engine serves `model` on a port of its own.
fn create(world: &mut World, name: &str, accelerators: &str, model: &str) {
    let port = 8100 + model.bytes().map(u64::from).sum::<u64>();
    world.create_with(name, accelerators, model, |pod| set_port(pod, port));
}

fn set_port(pod: &mut Value, port: u64) {
    let patch = &mut pod["metadata"]["annotations"]["dual-pods.llm-d.ai/server-patch"];
    *patch = json!(patch.as_str().unwrap().replace("8000", &port.to_string()));
}

/// Starts an engine and puts it to sleep.
fn sleep(world: &mut World, name: &str, accelerators: &str, model: &str) {
    create(world, name, accelerators, model);
    world.run();
    assert!(world.requesters[name].is_ready, "{name}: {:?}", world.errors(name));
    world.delete(name);
    world.run();
    assert!(world.pod(name).is_none(), "{name} is not gone");
}

fn instances(expected: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    let models = |models: &[&str]| models.iter().map(|model| (*model).to_owned()).collect();
    expected.iter().map(|(name, list)| ((*name).to_owned(), models(list))).collect()
}

// spec: DP-20, DP-103
#[test]
fn launcher_cold() {
    let mut world = world(1, 4);
    create(&mut world, "r", "a", "m");
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    GET r/v1/dual-pods/accelerators
    PATCH r claim
    GET r/v1/dual-pods/accelerator-memory-usage
    CREATE r-dual
    GET r-dual/v2/vllm/instances
    PUT r-dual/instances/m
    GET r-dual/v2/vllm/instances/watch
    GET r-dual/is_sleeping
    GET r-dual/health
    PATCH r-dual publish
    POST r/v1/become-ready
    PATCH r link
    ");
    assert!(world.requesters["r"].is_ready);
    assert_eq!(world.errors("r"), Vec::<String>::new());
}

/// The launcher that exists gets the second engine.
// spec: DP-21, DP-100
#[test]
fn launcher_warm() {
    let mut world = world(2, 4);
    sleep(&mut world, "first", "a", "m");
    world.take_journal();
    create(&mut world, "second", "a", "n");
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    GET second/v1/dual-pods/accelerators
    PATCH second claim
    GET second/v1/dual-pods/accelerator-memory-usage
    PATCH first-dual launch
    PUT first-dual/instances/n
    GET first-dual/v2/vllm/instances/watch
    GET first-dual/is_sleeping
    GET first-dual/health
    PATCH first-dual publish
    POST second/v1/become-ready
    PATCH second link
    ");
    assert_eq!(world.instances(), instances(&[("first-dual", &["m", "n"])]));
    let launcher = world.launchers.values().next().unwrap();
    let started = launcher.instances.values().find(|instance| instance.model() == "n").unwrap();
    assert_eq!(started.config["gpu_uuids"], json!(["GPU-a"]));
    assert_eq!(started.config["command"], json!(["vllm", "serve", "n"]));
}

// spec: DP-21
#[test]
fn launcher_hot() {
    let mut world = world(2, 4);
    sleep(&mut world, "first", "a", "m");
    sleep(&mut world, "other", "a", "n");
    world.take_journal();
    create(&mut world, "second", "a", "m");
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    GET second/v1/dual-pods/accelerators
    PATCH second claim
    PATCH first-dual bind
    GET second/v1/dual-pods/accelerator-memory-usage
    POST first-dual/wake_up
    GET first-dual/health
    PATCH first-dual publish
    POST second/v1/become-ready
    PATCH second link
    ");
    assert!(world.requesters["second"].is_ready);
}

// spec: DP-21
#[test]
fn launcher_unbind() {
    let mut world = world(1, 4);
    create(&mut world, "r", "a", "m");
    world.run();
    world.take_journal();
    world.delete("r");
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    PATCH r-dual withdraw
    GET r-dual/metrics
    POST r-dual/sleep?level=1&mode=wait
    GET r-dual/is_sleeping
    PATCH r-dual unbind
    POST r/v1/dual-pods/release
    PATCH r finish
    ");
}

/// An engine that ends, or that another client deletes from the launcher, ends its requester; the launcher remains.
#[rstest]
#[case::ended(false)]
#[case::deleted(true)]
fn instance_died(#[case] is_deleted: bool) {
    let mut world = world(1, 4);
    create(&mut world, "r", "a", "m");
    world.run();
    let launcher = world.provider_of("r").unwrap();
    if is_deleted {
        let model = world.launchers.values_mut().next().unwrap();
        model.instances.clear();
        model.revision += 1;
    } else {
        world.instance(&launcher, "m").activity = EngineActivity::Dead;
    }
    world.run();
    assert!(world.pod("r").is_none());
    assert_eq!(world.instances(), instances(&[("r-dual", &[])]));
    create(&mut world, "next", "a", "m");
    world.run();
    assert!(world.requesters["next"].is_ready);
    assert_eq!(world.instances(), instances(&[("r-dual", &["m"])]));
}

#[test]
fn launcher_lost() {
    let mut world = world(1, 4);
    create(&mut world, "r", "a", "m");
    world.run();
    let launcher = world.provider_of("r").unwrap();
    world.delete(&launcher);
    world.run();
    assert!(world.pods().is_empty());
}

/// A launcher at its own limit loses its oldest engine, whatever its accelerator.
// spec: DP-101
#[test]
fn oldest_instance_of_a_full_launcher_is_deleted() {
    let mut world = world(4, 2);
    sleep(&mut world, "r1", "a", "x");
    sleep(&mut world, "r2", "a", "y");
    create(&mut world, "r3", "a", "z");
    world.run();
    assert!(world.requesters["r3"].is_ready);
    assert_eq!(world.instances(), instances(&[("r1-dual", &["y", "z"])]));
}

/// The limit of the accelerator is exceeded: exactly the oldest engine is deleted.
// spec: DP-101
#[test]
fn oldest_instance_of_the_accelerator_is_deleted() {
    let mut world = world(1, 8);
    for (name, model) in [("r1", "x"), ("r2", "y")] {
        sleep(&mut world, name, "a", model);
    }
    world.take_journal();
    create(&mut world, "r3", "a", "z");
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    GET r3/v1/dual-pods/accelerators
    PATCH r3 claim
    DELETE r1-dual/instances/x
    PATCH r1-dual remove instance
    GET r3/v1/dual-pods/accelerator-memory-usage
    PATCH r1-dual launch
    PUT r1-dual/instances/z
    GET r1-dual/v2/vllm/instances/watch
    GET r1-dual/is_sleeping
    GET r1-dual/health
    PATCH r1-dual publish
    POST r3/v1/become-ready
    PATCH r3 link
    ");
    assert_eq!(world.instances(), instances(&[("r1-dual", &["y", "z"])]));
}

/// Engines on both accelerators, in two launchers of which one is bound, are deleted and gone first.
// spec: DP-102
#[test]
fn victims_are_in_other_launchers() {
    let mut world = world(1, 8);
    sleep(&mut world, "r1", "a", "x");
    sleep(&mut world, "r2", "b", "y");
    sleep(&mut world, "r3", "a", "z");
    sleep(&mut world, "r4", "b", "w");
    create(&mut world, "busy", "c", "v");
    world.run();
    create(&mut world, "r5", "a,b", "u");
    world.run();
    assert!(world.requesters["r5"].is_ready, "{:?}", world.errors("r5"));
    assert_eq!(world.instances(), instances(&[("r1-dual", &["v", "w", "z"]), ("r5-dual", &["u"])]));
}

/// No launcher is usable, because the one that exists serves a requester, or has an engine on the port. Victims are deleted first.
// spec: DP-103, DP-104
#[test]
fn launcher_is_created_after_victims_are_gone() {
    let mut world = world(0, 8);
    sleep(&mut world, "r1", "a", "x");
    create(&mut world, "busy", "b", "y");
    world.run();
    world.take_journal();
    create(&mut world, "r2", "a", "z");
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    GET r2/v1/dual-pods/accelerators
    PATCH r2 claim
    DELETE r1-dual/instances/x
    PATCH r1-dual remove instance
    GET r2/v1/dual-pods/accelerator-memory-usage
    CREATE r2-dual
    GET r1-dual/v2/vllm/instances/watch
    GET r2-dual/v2/vllm/instances
    PUT r2-dual/instances/z
    GET r2-dual/v2/vllm/instances/watch
    GET r2-dual/is_sleeping
    GET r2-dual/health
    PATCH r2-dual publish
    POST r2/v1/become-ready
    PATCH r2 link
    ");
    assert_eq!(world.instances(), instances(&[("r1-dual", &["y"]), ("r2-dual", &["z"])]));
}

#[test]
fn launcher_has_one_engine_per_port() {
    let mut world = world(4, 8);
    for (name, model) in [("r1", "x"), ("r2", "y")] {
        world.create(name, "a", model);
        world.run();
        world.delete(name);
        world.run();
    }
    assert_eq!(world.instances(), instances(&[("r1-dual", &["x"]), ("r2-dual", &["y"])]));
}

/// Sleepers of both modes count together, and the oldest one is the victim, in whichever mode it runs.
// spec: DP-90
#[rstest]
#[case::direct_is_older("direct", "launcher", &["r2"])]
#[case::launcher_is_older("launcher", "direct", &["r1", "r2"])]
fn sleepers_of_both_modes_count_together(#[case] first: &str, #[case] second: &str, #[case] expected: &[&str]) {
    let mut world = world(1, 8);
    for (name, mode) in [("r1", first), ("r2", second), ("r3", "launcher")] {
        world.create_with(name, "a", name, |pod| {
            pod["metadata"]["annotations"][MODE] = json!(mode);
            set_port(pod, if name == "r2" { 8002 } else { 8003 });
        });
        world.run();
        assert!(world.requesters[name].is_ready, "{name}: {:?}", world.errors(name));
        if name != "r3" {
            world.delete(name);
            world.run();
        }
    }
    let owners: Vec<String> =
        world.providers().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()[..2].to_owned()).collect();
    assert_eq!(owners, expected);
    let engines = world.engines.values().filter(|engine| engine.activity != EngineActivity::Dead).count();
    assert_eq!(engines, 2, "one sleeps, one is awake");
}

/// After a restart, the launcher is listed and each engine queried; nothing else happens.
#[test]
fn restart_only_queries() {
    let mut world = world(2, 4);
    sleep(&mut world, "first", "a", "m");
    create(&mut world, "second", "a", "n");
    world.run();
    world.take_journal();
    world.restart();
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    GET first-dual/v2/vllm/instances
    GET first-dual/is_sleeping
    GET first-dual/health
    GET first-dual/is_sleeping
    ");
    assert!(world.requesters["second"].is_ready);
}

#[test]
fn quiet_launchers_have_no_effects() {
    let mut world = world(2, 4);
    sleep(&mut world, "first", "a", "m");
    create(&mut world, "second", "a", "n");
    world.run();
    world.take_journal();
    world.run();
    assert!(world.take_journal().is_empty());
}

/// The kubelet probes only the launcher: the controller checks the health of the engine, and withdraws it while that fails.
// spec: DP-20
#[test]
fn unhealthy_instance_is_withdrawn() {
    let health_interval = Settings::default().health_interval;
    let mut world = World::new(Settings { health_interval, ..settings(1, 4) });
    create(&mut world, "r", "a", "m");
    world.run();
    let launcher = world.provider_of("r").unwrap();
    let is_in_pool = |world: &World| world.pod(&launcher).unwrap()["metadata"]["labels"]["model"] == "m";
    for is_healthy in [true, false, true] {
        world.instance(&launcher, "m").is_unhealthy = !is_healthy;
        world.run();
        assert_eq!((world.requesters["r"].is_ready, is_in_pool(&world)), (is_healthy, is_healthy));
    }
}

/// A launcher that does not start an engine, for example because it does not have the GPU, is reported.
#[test]
fn rejected_creation_is_reported() {
    let mut world = world(1, 4);
    world.launchers_reject = true;
    create(&mut world, "r", "a", "m");
    world.run();
    let launcher = world.provider_of("r").unwrap();
    assert_eq!(world.errors("r"), [format!("failed to create the engine of Pod {launcher}: no such GPU")]);
    world.launchers_reject = false;
    world.run();
    assert!(world.requesters["r"].is_ready && world.errors("r").is_empty());
}
