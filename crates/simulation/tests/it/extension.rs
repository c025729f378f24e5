//! Models and invariants of other crates.

use embedded::Change;
use rstest::rstest;
use serde_json::{Value, json};
use simulation::{AnyModel, Injection, Invariant, Model, Seed, Simulation, World};

const RESOURCE: &str = "configmaps";
const PREFIX: &str = "written-";

/// Creates ConfigMaps.
struct Writer;

/// At most two of these ConfigMaps exist.
struct AtMostTwo;

impl Model for Writer {
    type Action = u64;

    fn name(&self) -> &'static str {
        "writer"
    }

    fn draw(&self, _world: &World, random: &mut fastrand::Rng) -> Vec<u64> {
        vec![random.u64(..)]
    }

    fn act(&mut self, world: &mut World, number: u64) -> Option<String> {
        let name = format!("{PREFIX}{number}");
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

fn simulation() -> Simulation {
    Simulation::new(Seed(0)).with_models(|| vec![AnyModel::new(Writer)]).with_invariants(|| vec![Box::new(AtMostTwo)])
}

#[test]
fn smallest_failing_schedule_is_found() {
    let injection =
        |second: u64| Injection { at_ms: second * 1_000, model: "writer".to_owned(), action: json!(second) };
    let schedule: Vec<Injection> = (5..11).map(injection).collect();
    let violation = simulation().replay(&schedule).unwrap().violation.unwrap();
    assert_eq!(violation.to_string(), "at most two ConfigMaps: 3 ConfigMaps exist");
    let smallest = simulation().shrink(&schedule, &violation).injections;
    assert_eq!(smallest.len(), 3);
    let report = simulation().replay(&smallest).unwrap();
    assert_eq!(report.violation, Some(violation));
    assert_eq!(report.journal.to_string().matches("writer: create written-").count(), 3, "{}", report.journal);
}

#[rstest]
#[case::model("reader", json!(1), "the model \"reader\" is unknown")]
#[case::action("writer", json!("one"), "invalid type: string \"one\", expected u64")]
fn unknown_actions_are_rejected(#[case] model: &str, #[case] action: Value, #[case] error: &str) {
    let injection = Injection { at_ms: 0, model: model.to_owned(), action };
    assert_eq!(simulation().replay(&[injection]).unwrap_err().to_string(), error);
}
