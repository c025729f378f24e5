//! The budget of sleeping engines.

use std::collections::BTreeMap;

use actuation::Settings;
use rstest::rstest;

use crate::world::World;

fn world(sleeper_limit: usize) -> World {
    World::new(Settings { sleeper_limit, ..Settings::default() })
}

/// Starts an engine and puts it to sleep.
fn sleep(world: &mut World, name: &str, accelerators: &str) {
    world.create_sleeper(name, accelerators, name);
    assert!(world.pod(name).is_none(), "{name} is not gone");
}

/// Returns the requesters whose providers exist.
fn owners(world: &World) -> Vec<String> {
    let names = world.providers();
    names
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().split("-dual-").next().unwrap().to_owned())
        .collect()
}

/// The example of the specification: the limit is 2, three engines sleep, and a fourth one is created.
// spec: DP-83, DP-85, DP-86, DP-88, DP-96
#[test]
fn oldest_sleeper_makes_room() {
    let mut world = world(2);
    for name in ["a", "b", "c"] {
        sleep(&mut world, name, "a");
    }
    assert_eq!(owners(&world), ["a", "b", "c"], "three sleepers are legal while no engine is awake");
    world.take_journal();
    world.create("d", "a", "d");
    world.run();
    assert_eq!(owners(&world), ["b", "c", "d"]);
    assert!(world.requesters["d"].is_ready);
    insta::assert_snapshot!(world.take_journal().join("\n"), @"
    GET d/v1/dual-pods/accelerators
    PATCH d claim
    DELETE a-dual Victim
    GET d/v1/dual-pods/accelerator-memory-usage
    CREATE d-dual
    GET d-dual/is_sleeping
    GET d-dual/health
    PATCH d-dual publish
    POST d/v1/become-ready
    PATCH d link
    ");
}

/// A sleeper that was used again is the last victim, also for a controller that started later.
// spec: DP-50, DP-86
#[test]
fn reused_sleeper_is_not_the_oldest() {
    let mut world = world(2);
    for name in ["a", "b", "c"] {
        sleep(&mut world, name, "a");
    }
    world.create("again", "a", "a");
    world.run();
    assert_eq!(owners(&world), ["a", "b", "c"], "waking deletes no provider");
    world.delete("again");
    world.run();
    world.restart();
    sleep(&mut world, "d", "a");
    assert_eq!(owners(&world), ["a", "c", "d"]);
}

/// Sleepers by name and accelerators; the remaining ones after an engine on `a` and `b` is created with limit 1.
// spec: DP-89, DP-97, DP-98, DP-99
#[rstest]
#[case::free(&[("x", "a")], &["new", "x"])]
#[case::one_over(&[("x", "a"), ("y", "a"), ("z", "b")], &["new", "y", "z"])]
#[case::one_spans_both(&[("x", "a,b"), ("y", "a"), ("z", "b")], &["new", "y", "z"])]
#[case::both_over(&[("x", "a"), ("y", "b"), ("z", "a"), ("w", "b")], &["new", "w", "z"])]
#[case::others_are_not_counted(&[("x", "c"), ("y", "c")], &["new", "x", "y"])]
fn each_accelerator_is_checked(#[case] sleepers: &[(&str, &str)], #[case] expected: &[&str]) {
    let mut world = world(1);
    for (name, accelerators) in sleepers {
        sleep(&mut world, name, accelerators);
    }
    world.create("new", "a,b", "new");
    world.run();
    assert_eq!(owners(&world), expected);
    assert!(world.requesters["new"].is_ready);
}

/// The scheduler misses memory for the provider: sleepers are deleted, oldest first, until it fits.
// spec: DP-10, DP-87
#[test]
fn host_memory_is_freed() {
    let mut world = world(3);
    sleep(&mut world, "x", "a");
    sleep(&mut world, "y", "b");
    world.create("new", "c", "new");
    world.engines_start = false;
    world.tick();
    world.run_controller();
    let provider = world.provider_of("new").unwrap();
    world.reject(&provider, "0/1 nodes are available: 1 Insufficient memory.");
    world.run_controller();
    let message = format!(
        "the server-providing Pod \"{provider}\" is unschedulable: 0/1 nodes are available: 1 Insufficient memory."
    );
    assert_eq!(world.errors("new"), [message]);
    world.engines_start = true;
    world.run();
    assert_eq!(owners(&world), ["new", "y"]);
    assert!(world.errors("new").is_empty() && world.requesters["new"].is_ready);
}

/// Memory of other processes: the engine is not created, and the status of the requester reports why until the memory is free.
// spec: DP-87
#[test]
fn foreign_memory_is_reported() {
    let mut world = world(1);
    world.create("r", "a", "m");
    let memory = |mib| Some(BTreeMap::from([("GPU-a".to_owned(), mib)]));
    world.requesters.get_mut("r").unwrap().memory = memory(9000);
    world.run();
    assert_eq!(
        world.errors("r"),
        ["accelerator GPU-a is currently using 9000 MiB of memory, limit for sleeping total is 4096 MiB"]
    );
    assert!(world.providers().is_empty());
    world.requesters.get_mut("r").unwrap().memory = memory(100);
    world.run();
    assert!(world.errors("r").is_empty() && world.requesters["r"].is_ready);
}

/// A requester that cannot measure memory does not prevent a start.
#[test]
fn memory_that_cannot_be_read_is_no_obstacle() {
    let mut world = world(1);
    world.create("r", "a", "m");
    world.requesters.get_mut("r").unwrap().memory = None;
    world.run();
    assert!(world.requesters["r"].is_ready);
}

#[test]
fn sleeper_expires() {
    let ttl = std::time::Duration::from_secs(60);
    let mut world = World::new(Settings { sleeper_ttl: Some(ttl), ..Settings::default() });
    world.create("r", "a", "m");
    world.run();
    world.delete("r");
    world.run_controller();
    world.tick();
    world.run_controller();
    assert_eq!(world.providers().len(), 1);
    world.advance(ttl);
    world.run();
    assert!(world.pods().is_empty());
}
