//! What people are told: events of a normal start, and of what cannot be read.

use embedded::Server;
use serde_json::{Value, json};

use crate::cluster::{SERVICES, World, bare, with_definitions};
use crate::fleet::{self, RUNTIMES, furnish};

/// `Type Reason` of the events about an object, in the order they came.
fn events(server: &Server, about: &str) -> Vec<String> {
    let mut found: Vec<_> =
        server.list("events").into_iter().filter(|event| event["involvedObject"]["name"] == about).collect();
    // Several may tell of one instant.
    found.sort_by_key(|event| event["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap());
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    found.iter().map(|event| format!("{} {}", text(event, "type"), text(event, "reason"))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_normal_start_is_told_as_news() {
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    let world = World::on(server, operator::Options::default());
    world.server.create(SERVICES, fleet::service("chat", "small")).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    world.ready("chat-engine");
    let told = world.until("news of being ready", |server| {
        Some(events(server, "chat")).filter(|told| told.iter().any(|event| event.ends_with(" Ready")))
    });
    assert_eq!(told.await, ["Normal Selected", "Normal Starting", "Normal Ready"]);
}

/// Definitions as a cluster may have them from before: anything goes.
fn lenient() -> Vec<Value> {
    let mut definitions = api::crds();
    for definition in &mut definitions {
        if definition["spec"]["names"]["kind"] == "ClusterServingRuntime" {
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
    }
    definitions
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_told_on_it_and_where_it_is_named() {
    let server = with_definitions(lenient());
    furnish(&server, &[("big", "80Gi", "5")]);
    let mut broken = fleet::runtime("broken");
    broken["spec"]["supportedModelFormats"] = json!("safetensors");
    server.create(RUNTIMES, broken).unwrap();
    let world = World::on(server, operator::Options::default());
    world
        .until("the warning", |server| events(server, "broken").contains(&"Warning LeftOut".to_owned()).then_some(()))
        .await;
    // A service that names it hears why it cannot have it; others go on, with a warning on record.
    let mut naming = fleet::service("naming", "small");
    naming["spec"]["runtime"] = json!({"name": "broken"});
    world.server.create(SERVICES, naming).unwrap();
    world.server.create(SERVICES, fleet::service("other", "small")).unwrap();
    let service = world.condition(SERVICES, "naming", "RuntimeResolved", "False").await;
    let resolved = cluster::conditions::find(&service["status"]["conditions"], "RuntimeResolved").unwrap();
    assert_eq!(resolved["reason"], "RuntimeUnreadable");
    assert!(resolved["message"].as_str().unwrap().contains("spec.supportedModelFormats"), "{resolved}");
    let other = world.condition(SERVICES, "other", "RuntimeResolved", "True").await;
    assert_eq!(other["status"]["decision"]["warnings"][0]["code"], "InvalidRuntime");
    // Mended, it takes part.
    let mut mended = (*world.server.get(RUNTIMES, "", "broken").unwrap()).clone();
    mended["spec"] = fleet::runtime("broken")["spec"].clone();
    world.server.update(RUNTIMES, mended).unwrap();
    world.condition(SERVICES, "naming", "RuntimeResolved", "True").await;
    world
        .until("the news", |server| events(server, "broken").contains(&"Normal Readable".to_owned()).then_some(()))
        .await;
}

/// The operator alone, before anything of ours is installed.
#[tokio::test(start_paused = true)]
async fn definitions_may_come_later() {
    let world = World::on(with_definitions(Vec::new()), operator::Options::default());
    for definition in api::crds() {
        world.server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    }
    furnish(&world.server, &[("big", "80Gi", "5")]);
    world.server.create(SERVICES, fleet::service("chat", "small")).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
}
