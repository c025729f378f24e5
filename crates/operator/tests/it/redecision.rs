//! What a change of runtimes, classes, models and nodes does to services that wait and to those that serve.

use serde_json::{Value, json};

use crate::cluster::{SERVICES, World, bare};
use crate::fleet::{self, CLASSES, RUNTIMES, add_class, class_of, furnish};

const DEPLOYMENTS: &str = "deployments.apps";

/// A service `chat` that serves on the class `big`.
async fn serving_on_big() -> World {
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    let world = World::on(server, operator::Options::default());
    world.server.create(SERVICES, fleet::service("chat", "small")).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    world.ready("chat-engine");
    let service = world.condition(SERVICES, "chat", "Ready", "True").await;
    assert_eq!(class_of(&service), "big");
    world
}

fn selector(server: &embedded::Server) -> Option<Value> {
    let deployment = server.get(DEPLOYMENTS, "default", "chat-engine")?;
    Some(deployment["spec"]["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.product"].clone())
}

// spec: RT-4
// spec: RT-9
// spec: RT-67
#[tokio::test(start_paused = true)]
async fn a_waiting_service_goes_on_as_soon_as_a_runtime_fits() {
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    let mut off = fleet::runtime("any");
    off["spec"]["disabled"] = json!(true);
    server.delete(RUNTIMES, "", "any", None).unwrap();
    server.create(RUNTIMES, off).unwrap();
    let world = World::on(server, operator::Options::default());
    world.server.create(SERVICES, fleet::service("chat", "small")).unwrap();
    let service = world.condition(SERVICES, "chat", "RuntimeResolved", "False").await;
    assert_eq!(service["status"]["decision"]["candidates"][0]["rejected"]["code"], "Disabled");
    // Editing the runtime is enough, and so is a new one.
    let mut enabled = (*world.server.get(RUNTIMES, "", "any").unwrap()).clone();
    enabled["spec"]["disabled"] = json!(false);
    world.server.update(RUNTIMES, enabled).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
}

// spec: ACC-73
// spec: ACC-79
// spec: ACC-124
#[tokio::test(start_paused = true)]
async fn a_waiting_service_goes_on_as_soon_as_a_class_fits() {
    let server = bare();
    furnish(&server, &[("t4", "16Gi", "0.5")]);
    server.create("clusterbasemodels.ome.io", fleet::model("large", "70B")).unwrap();
    let world = World::on(server, operator::Options::default());
    world.server.create(SERVICES, crate::cluster::five_lines("chat", "large")).unwrap();
    let service = world.condition(SERVICES, "chat", "AcceleratorResolved", "False").await;
    let verdict = &service["status"]["decision"]["candidates"][0]["accelerators"][0];
    assert_eq!((&verdict["class"], &verdict["code"]), (&json!("t4"), &json!("ModelDoesNotFit")));
    // The class alone is not enough: it has no node yet.
    world.server.create(CLASSES, fleet::class("h100", "80Gi", "5")).unwrap();
    world.server.create("nodes", fleet::node("node-h100", "h100")).unwrap();
    let service = world.condition(SERVICES, "chat", "AcceleratorResolved", "True").await;
    assert_eq!(class_of(&service), "h100");
}

#[tokio::test(start_paused = true)]
async fn a_ready_service_keeps_its_choice_until_a_person_accepts_the_better_one() {
    let world = serving_on_big().await;
    add_class(&world.server, "cheap", "80Gi", "1");
    let service = world.condition(SERVICES, "chat", "DecisionStale", "True").await;
    assert_eq!((class_of(&service), selector(&world.server)), (&json!("big"), Some(json!("big"))));
    let stale = cluster::conditions::find(&service["status"]["conditions"], "DecisionStale").unwrap();
    assert!(stale["message"].as_str().unwrap().contains("1 × cheap"), "{stale}");
    world.edit(SERVICES, "chat", |service| service["metadata"]["annotations"] = json!({"ome.io/redecide": "t1"}));
    let service = world
        .until("the accepted choice", |server| {
            server.get(SERVICES, "default", "chat").filter(|service| class_of(service) == "cheap")
        })
        .await;
    assert_eq!(service["status"]["decision"]["redecided"], "t1");
    assert!(cluster::conditions::find(&service["status"]["conditions"], "DecisionStale").is_none());
    world.until("the new place", |server| selector(server).filter(|product| product == "cheap")).await;
}

#[tokio::test(start_paused = true)]
async fn a_choice_that_becomes_impossible_is_taken_again() {
    let world = serving_on_big().await;
    add_class(&world.server, "dear", "80Gi", "9");
    world.server.delete(CLASSES, "", "big", None).unwrap();
    world.until("another place", |server| selector(server).filter(|product| product == "dear")).await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_the_runtime_rolls_through_while_the_choice_stays() {
    let world = serving_on_big().await;
    let mut runtime = (*world.server.get(RUNTIMES, "", "any").unwrap()).clone();
    runtime["spec"]["engineConfig"]["runner"]["image"] = json!("example.com/any:2");
    world.server.update(RUNTIMES, runtime).unwrap();
    world
        .until("the new image", |server| {
            let deployment = server.get(DEPLOYMENTS, "default", "chat-engine")?;
            (deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/any:2").then_some(())
        })
        .await;
    let service = world.server.get(SERVICES, "default", "chat").unwrap();
    assert_eq!((class_of(&service), selector(&world.server)), (&json!("big"), Some(json!("big"))));
}
