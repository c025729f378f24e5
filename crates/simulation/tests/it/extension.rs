//! Models, invariants and processes of other crates.

use std::sync::Arc;
use std::time::Duration;

use embedded::Change;
use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use rstest::rstest;
use serde_json::{Value, json};
use simulation::{
    AnyModel, Fault, Faults, Injection, Invariant, Model, ProcessContext, RequestClass, Seed, Simulation, World,
};

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

/// Creates a ConfigMap with the current time every three seconds, forever.
async fn count(ProcessContext { client, clock }: ProcessContext) -> Result<(), String> {
    let config_maps: Api<ConfigMap> = Api::namespaced(client, "default");
    loop {
        let name = format!("{PREFIX}{}", cluster::Clock::now(&clock).as_second());
        let config_map = ConfigMap {
            metadata: kube::api::ObjectMeta { name: Some(name), ..Default::default() },
            ..Default::default()
        };
        // Without an answer, the next one follows after the deadline of the client.
        config_maps.create(&PostParams::default(), &config_map).await.ok();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

/// Breaks the connection of the process.
struct Cable;

impl Model for Cable {
    type Action = ();

    fn name(&self) -> &'static str {
        "cable"
    }

    fn draw(&self, _world: &World, _random: &mut fastrand::Rng) -> Vec<()> {
        vec![()]
    }

    fn act(&mut self, world: &mut World, (): ()) -> Option<String> {
        world.faults("counter")?.arm(RequestClass::Write, Fault::LostResponse, 1);
        Some("lose a response".to_owned())
    }

    fn settle(&mut self, world: &mut World) {
        world.faults("counter").into_iter().for_each(Faults::clear);
    }
}

/// The process crashes, starts again and creates the third ConfigMap. One response is lost, which the journal shows.
#[test]
fn process_runs_beside_the_control_plane() {
    let simulation = Simulation::new(Seed(0))
        .add_process("counter", Arc::new(|context| count(context).boxed()))
        .add_models(|| vec![AnyModel::new(Cable)])
        .add_invariants(|| vec![Box::new(AtMostTwo)]);
    let injection = |at_ms, model: &str, action| Injection { at_ms, model: model.to_owned(), action };
    let schedule = [
        injection(1_000, "cable", json!(null)),
        injection(4_000, "machines", json!({"crash": {"process": "counter", "polls": 1}})),
        injection(20_000, "machines", json!({"start": {"process": "counter"}})),
    ];
    let report = simulation.replay(&schedule).unwrap();
    assert_eq!(report.injections.len(), schedule.len(), "{}", report.journal);
    assert_eq!(report.violation.unwrap().to_string(), "at most two ConfigMaps: 3 ConfigMaps exist");
    let journal = report.journal.to_string();
    assert!(journal.contains("counter: POST /api/v1/namespaces/default/configmaps: 201"), "{journal}");
    assert!(journal.contains("response lost after the API server processed the request"), "{journal}");
}

/// A process that ends is a defect.
#[test]
fn process_that_ends_breaks_an_invariant() {
    let ends = |_: ProcessContext| async { Err("no cable".to_owned()) }.boxed();
    let simulation = Simulation::new(Seed(0)).add_process("counter", Arc::new(ends));
    let violation = simulation.replay(&[]).unwrap().violation.unwrap();
    assert_eq!(violation.to_string(), "no task fails or hangs: counter failed: no cable");
}
