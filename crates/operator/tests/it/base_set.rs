//! The base set of classes in the operator's namespace.

use serde_json::{Value, json};

use crate::accelerators::{CLASSES, by_hand, gpu, knowing, names};
use crate::cluster::World;

const SEED: &str = include_str!("../../../decide/src/inventory/base_set_seed.yaml");

fn config_map(text: &str) -> Value {
    json!({"metadata": {"namespace": "ome-system", "name": "accelerator-classes-base"}, "data": {"accelerator-classes.yaml": text}})
}

fn start(text: &str) -> World {
    let world = World::empty();
    world.server.create("namespaces", json!({"metadata": {"name": "ome-system"}})).unwrap();
    world.server.create("configmaps", config_map(text)).unwrap();
    world.operate(knowing());
    world
}

fn rewrite(world: &World, text: &str) {
    let mut object = (*world.server.get("configmaps", "ome-system", "accelerator-classes-base").unwrap()).clone();
    object["data"]["accelerator-classes.yaml"] = json!(text);
    world.server.update("configmaps", object).unwrap();
}

// spec: ACC-35
#[tokio::test(start_paused = true)]
async fn documents_are_applied_followed_and_removed() {
    let world = start(SEED);
    for name in ["small-gpu", "medium-gpu", "large-gpu"] {
        world.class(name, |class| class["status"]["conditions"].is_array()).await;
    }
    world.server.create("nodes", gpu("a", "NVIDIA-X900")).unwrap();
    world.class("large-gpu", |class| class["status"]["nodes"] == json!(["a"])).await;
    world.edit_class("medium-gpu", |class| class["spec"]["vendor"] = json!("nvidia"));
    rewrite(
        &world,
        &SEED.replace("memoryGB: \"80Gi\"", "memoryGB: \"94Gi\"").replace("memoryGB: \"40Gi\"", "memoryGB: \"48Gi\""),
    );
    world.class("large-gpu", |class| class["spec"]["capabilities"]["memoryGB"] == "94Gi").await;
    world.quiet().await;
    let edited = world.server.get(CLASSES, "", "medium-gpu").unwrap();
    assert_eq!(edited["spec"]["capabilities"]["memoryGB"], "40Gi", "an edit stays");
    world.server.delete("configmaps", "ome-system", "accelerator-classes-base", None).unwrap();
    world
        .until("the unedited ones gone", |server| {
            (!names(server, CLASSES).contains(&"large-gpu".to_owned())).then_some(())
        })
        .await;
    world.quiet().await;
    assert!(names(&world.server, CLASSES).contains(&"medium-gpu".to_owned()));
}

// spec: ACC-35
#[tokio::test(start_paused = true)]
async fn a_broken_document_is_told_with_its_number_and_removes_nothing() {
    let world = start(SEED);
    world.class("large-gpu", |_| true).await;
    let broken = SEED.replace("name: large-gpu", "name: [");
    rewrite(&world, &broken);
    let told = |server: &embedded::Server| {
        let events = server.list("events.events.k8s.io");
        let events = if events.is_empty() { server.list("events") } else { events };
        events.into_iter().find(|event| event["reason"] == "InvalidDocument")
    };
    let event = world.until("the event", told).await;
    let text = event["note"].as_str().or(event["message"].as_str()).unwrap();
    assert!(text.starts_with("accelerator-classes.yaml, document 3"), "{text}");
    world.quiet().await;
    assert!(names(&world.server, CLASSES).contains(&"large-gpu".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_class_of_that_name_that_a_person_made_is_left_alone() {
    let world = World::empty();
    world.server.create("namespaces", json!({"metadata": {"name": "ome-system"}})).unwrap();
    world.server.create(CLASSES, by_hand("small-gpu", json!({"a": "b"}))).unwrap();
    let before = world.server.get(CLASSES, "", "small-gpu").unwrap()["spec"].clone();
    world.server.create("configmaps", config_map(SEED)).unwrap();
    world.operate(knowing());
    world.class("large-gpu", |_| true).await;
    world.quiet().await;
    assert_eq!(world.server.get(CLASSES, "", "small-gpu").unwrap()["spec"], before);
}
