//! The golden traces: the external effects of each scenario, in order.

use actuation::{Mode, Settings};
use rstest::rstest;

use crate::models::EngineActivity;
use crate::world::World;

fn world() -> World {
    World::new(Settings::default())
}

// spec: DP-7, DP-19, DP-58, DP-60, DP-65, DP-95
#[test]
fn direct_cold() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    GET r/v1/dual-pods/accelerators
    PATCH r claim
    GET r/v1/dual-pods/accelerator-memory-usage
    CREATE r-dual
    GET r-dual/is_sleeping
    GET r-dual/health
    PATCH r-dual publish
    POST r/v1/become-ready
    PATCH r link
    ");
    assert!(world.requesters["r"].is_ready);
    assert_eq!(world.errors("r"), Vec::<String>::new());
}

// spec: DP-54, DP-55, DP-84, DP-92, DP-93
#[test]
fn direct_hot() {
    let mut world = world();
    world.create_sleeper("first", "a", "m");
    world.take_journal();
    world.create("second", "a", "m");
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

// spec: DP-56, DP-64, DP-67, DP-68
#[test]
fn direct_unbind() {
    let mut world = world();
    world.create("r", "a", "m");
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
    assert!(world.pod("r").is_none());
    assert_eq!(world.providers().len(), 1);
}

// spec: DP-71, DP-72
#[test]
fn provider_lost() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    world.take_journal();
    let provider = world.provider_of("r").unwrap();
    world.delete(&provider);
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    DELETE r ProviderLost
    PATCH r-dual unbind
    POST r/v1/dual-pods/release
    PATCH r finish
    ");
    assert!(world.pods().is_empty());
}

#[test]
fn engine_died() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    world.take_journal();
    let provider = world.provider_of("r").unwrap();
    world.engine(&provider).activity = EngineActivity::Dead;
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    DELETE r EngineDied
    DELETE r-dual NotReusable
    PATCH r-dual unbind
    POST r/v1/dual-pods/release
    PATCH r finish
    ");
    assert!(world.pods().is_empty());
}

// spec: DP-66, DP-70
#[test]
fn provider_broken_at_unbind() {
    let mut world = world();
    world.engines_start = false;
    world.create("r", "a", "m");
    world.run();
    world.take_journal();
    world.delete("r");
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    DELETE r-dual NotReusable
    PATCH r-dual unbind
    POST r/v1/dual-pods/release
    PATCH r finish
    ");
    assert!(world.pods().is_empty());
}

// spec: DP-80
#[test]
fn cordoned_without_provider() {
    let mut world = world();
    world.edit_node(|node| node["spec"]["unschedulable"] = true.into());
    world.create("r", "a", "m");
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    GET r/v1/dual-pods/accelerators
    PATCH r claim
    DELETE r NodeCordoned
    POST r/v1/dual-pods/release
    PATCH r finish
    ");
    assert!(world.pods().is_empty());
}

// spec: DP-81
#[test]
fn cordoned_with_running_provider() {
    let mut world = world();
    world.create("r", "a", "m");
    world.run();
    world.take_journal();
    world.edit_node(|node| node["spec"]["unschedulable"] = true.into());
    world.run();
    assert!(world.take_journal().is_empty());
}

/// A second pass over a quiet node has no effects.
#[test]
fn quiet_node_has_no_effects() {
    let mut world = world();
    world.create("r", "a", "m");
    world.create_sleeper("other", "b", "m");
    world.take_journal();
    world.run();
    assert!(world.take_journal().is_empty());
}

/// After a restart the state of each engine is observed again, and nothing else happens.
// spec: DP-50
#[test]
fn restart_only_queries() {
    let mut world = world();
    world.create("r", "a", "m");
    world.create_sleeper("other", "b", "m");
    world.take_journal();
    world.restart();
    world.run();
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    GET r-dual/is_sleeping
    GET r-dual/health
    GET other-dual/is_sleeping
    ");
}

/// Another engine takes over an accelerator: clients send requests to awake engines only, and those in progress are completed.
// spec: DP-14
#[rstest]
fn swap_completes_requests(#[values(Mode::Direct, Mode::Launcher)] mode: Mode) {
    let mut world = World::new(Settings { mode, health_interval: None, ..Settings::default() });
    world.create_sleeper("first", "a", "m");
    world.create("old", "a", "old");
    world.run();
    let provider = world.provider_of("old").unwrap();
    world.instance_or_engine(&provider, "old").running_requests = 3;
    world.delete("old");
    world.create("r", "a", "m");
    world.run();
    let old = world.instance_or_engine(&provider, "old");
    assert_eq!((old.activity, old.running_requests, old.aborted), (EngineActivity::Asleep, 0, false));
    assert!(world.requesters["r"].is_ready);
}

/// A sleeper on the same accelerators is woken, one that shares one of them is not. Each engine sees those of its requester.
// spec: DP-4, DP-94
#[test]
fn sleeper_on_the_same_accelerators_is_woken() {
    let mut world = world();
    let sleeper = world.create_sleeper("first", "b,d", "m");
    let visible = |world: &World, provider: &str| {
        let pod = world.pod(provider).unwrap();
        pod["spec"]["containers"][0]["env"][0].clone()
    };
    let variable = |value: &str| serde_json::json!({"name": "CUDA_VISIBLE_DEVICES", "value": value});
    assert_eq!(visible(&world, &sleeper), variable("1,3"));
    world.create("shares-one", "a,b", "m");
    world.run();
    let other = world.provider_of("shares-one").unwrap();
    assert_ne!(other, sleeper);
    assert_eq!(visible(&world, &other), variable("0,1"));
    world.delete("shares-one");
    world.run();
    world.create("same", "d,b", "m");
    world.run();
    assert_eq!(world.provider_of("same"), Some(sleeper));
}
