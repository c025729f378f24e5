//! The controller stops after any action of a trace; the next one reaches the same end from what the API server stores.

use actuation::{Action, Mode, Settings};
use rstest::rstest;

use crate::models::EngineActivity;
use crate::world::World;

type Event = fn(&mut World);

/// Prepares a world and returns the event whose trace is interrupted.
fn cold(_: &mut World) -> Event {
    |world| world.create("r", "a", "m")
}

fn hot(world: &mut World) -> Event {
    world.create_sleeper("first", "a", "m");
    |world| world.create("r", "a", "m")
}

fn victim(world: &mut World) -> Event {
    for name in ["x", "y"] {
        world.create_sleeper(name, "a", name);
    }
    |world| world.create("r", "a", "m")
}

/// Starts the engine of requester `r` and returns the event.
fn serving(world: &mut World, event: Event) -> Event {
    world.create("r", "a", "m");
    world.run();
    event
}

fn unbind(world: &mut World) -> Event {
    serving(world, |world| {
        let provider = world.provider_of("r").unwrap();
        world.engine(&provider).running_requests = 3;
        world.delete("r");
    })
}

fn swap(world: &mut World) -> Event {
    world.create("old", "a", "old");
    world.run();
    |world| {
        world.delete("old");
        world.create("r", "a", "m");
    }
}

fn provider_lost(world: &mut World) -> Event {
    serving(world, |world| {
        let provider = world.provider_of("r").unwrap();
        world.delete(&provider);
    })
}

fn engine_died(world: &mut World) -> Event {
    serving(world, |world| {
        let provider = world.provider_of("r").unwrap();
        world.engine(&provider).activity = EngineActivity::Dead;
    })
}

fn both_deleted(world: &mut World) -> Event {
    serving(world, |world| {
        let provider = world.provider_of("r").unwrap();
        world.delete("r");
        world.delete(&provider);
    })
}

fn both_deleted_provider_first(world: &mut World) -> Event {
    serving(world, |world| {
        let provider = world.provider_of("r").unwrap();
        world.delete(&provider);
        world.delete("r");
    })
}

/// What remains at the end: the Pods without the hashes of their names, and what the requesters and engines do.
fn summary(world: &World) -> Vec<String> {
    let mut pods: Vec<String> = world
        .pods()
        .iter()
        .map(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap().split("-dual-").next().unwrap();
            let engine = world.engine_of(pod).map(|engine| engine.activity);
            let finalizers = &pod["metadata"]["finalizers"];
            let instances = world.launcher_of(pod).map(|launcher| launcher.instances.len());
            format!("{name} {engine:?} {instances:?} {finalizers} {}", pod["metadata"]["labels"])
        })
        .map(|line| line.split("-dual-").next().unwrap().to_owned())
        .collect();
    pods.sort();
    pods.extend(world.requesters.iter().map(|(name, model)| format!("{name} ready={}", model.is_ready)));
    pods
}

// spec: DP-47, DP-48, DP-50, DP-59, DP-74, DP-75, DP-76, DP-77, DP-78
#[rstest]
#[case::cold(cold)]
#[case::hot(hot)]
#[case::victim(victim)]
#[case::unbind(unbind)]
#[case::swap(swap)]
#[case::provider_lost(provider_lost)]
#[case::engine_died(engine_died)]
#[case::both_deleted(both_deleted)]
#[case::both_deleted_provider_first(both_deleted_provider_first)]
fn every_crash_converges(#[case] prepare: fn(&mut World) -> Event, #[values(Mode::Direct, Mode::Launcher)] mode: Mode) {
    let settings = Settings { mode, health_interval: None, ..Settings::default() };
    let mut world = World::new(settings.clone());
    let event = prepare(&mut world);
    world.take_journal();
    event(&mut world);
    world.run();
    let actions = world.take_journal().len();
    let expected = summary(&world);
    assert!(actions > 2, "the trace has {actions} actions");
    for actions_left in 0..actions {
        let mut world = World::new(settings.clone());
        let event = prepare(&mut world);
        event(&mut world);
        world.actions_left = actions_left;
        world.run();
        world.restart();
        world.run();
        assert_eq!(summary(&world), expected, "crash after {actions_left} of {actions} actions");
    }
}

/// A write that a former leader decided on reaches the API server after the next term has taken place: it has no effect.
// spec: DP-51
#[rstest]
#[case::cold(cold)]
#[case::hot(hot)]
#[case::victim(victim)]
#[case::unbind(unbind)]
#[case::swap(swap)]
fn late_write_of_a_former_leader_fails(
    #[case] prepare: fn(&mut World) -> Event,
    #[values(Mode::Direct, Mode::Launcher)] mode: Mode,
) {
    let settings = Settings { mode, health_interval: None, ..Settings::default() };
    let mut late_writes = 0;
    for actions in 0.. {
        let mut world = World::new(settings.clone());
        let event = prepare(&mut world);
        event(&mut world);
        world.actions_left = actions;
        world.run();
        if world.actions_left > 0 {
            break;
        }
        let Some(Action::Write(write)) = world.decide().and_then(|decision| decision.action) else { continue };
        world.restart();
        world.run();
        let pods = world.pods();
        assert!(world.write_late(&write).is_err(), "{write:?} after {actions} actions");
        assert_eq!(world.pods(), pods);
        late_writes += 1;
    }
    assert!(late_writes > 2, "{late_writes} writes");
}
