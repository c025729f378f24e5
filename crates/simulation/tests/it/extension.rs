//! Models and invariants of other crates.

use std::time::Duration;

use embedded::Change;
use serde_json::json;
use simulation::{Injection, Invariant, Model, Seed, Simulation, World};

const RESOURCE: &str = "configmaps";
const PREFIX: &str = "written-";

/// Creates ConfigMaps.
struct Writer;

/// At most two of these ConfigMaps exist.
struct AtMostTwo;

impl Model for Writer {
    fn name(&self) -> &'static str {
        "writer"
    }

    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let name = format!("{PREFIX}{}", random.u64(..));
        world.server().create(RESOURCE, json!({"metadata": {"name": name, "namespace": "default"}})).ok()?;
        Some(format!("create {name}"))
    }
}

impl Invariant for AtMostTwo {
    fn name(&self) -> &'static str {
        "at most two ConfigMaps"
    }

    fn after_change(&mut self, world: &World, _change: &Change) -> Result<(), String> {
        let objects = world.server().list(RESOURCE);
        let names = objects.iter().filter_map(|object| object["metadata"]["name"].as_str());
        let count = names.filter(|name| name.starts_with(PREFIX)).count();
        if count <= 2 { Ok(()) } else { Err(format!("{count} ConfigMaps exist")) }
    }
}

#[test]
fn smallest_failing_schedule_is_found() {
    let simulation =
        Simulation::new(Seed(0)).with_models(|| vec![Box::new(Writer)]).with_invariants(|| vec![Box::new(AtMostTwo)]);
    let injection = |second| Injection { at: Duration::from_secs(second), model: 0, seed: Seed(second) };
    let schedule: Vec<Injection> = (5..11).map(injection).collect();
    let violation = simulation.run(&schedule).unwrap().violation.unwrap();
    assert_eq!(violation.to_string(), "at most two ConfigMaps: 3 ConfigMaps exist");
    let smallest = simulation.shrink(&schedule, &violation);
    assert_eq!(smallest.len(), 3);
    let report = simulation.run(&smallest).unwrap();
    assert_eq!(report.violation, Some(violation));
    assert_eq!(report.journal.to_string().matches("writer: create written-").count(), 3, "{}", report.journal);
}
