//! Bad input: each is an error in the status annotation, nothing is created, and an edit heals it.

use actuation::{CallErrorKind, Settings};
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::World;

const PATCH: &str = "dual-pods.llm-d.ai/server-patch";

fn annotate(pod: &mut Value, key: &str, value: &str) {
    pod["metadata"]["annotations"][key] = json!(value);
}

// spec: DP-9, DP-16, DP-31, DP-35
#[rstest]
#[case::bad_yaml(|pod: &mut Value| annotate(pod, PATCH, "a: ["), "failed to construct the nominal server-providing Pod: failed to convert server patch yaml to json: ")]
#[case::admin_port(|pod: &mut Value| annotate(pod, "dual-pods.llm-d.ai/admin-port", "x"), "the annotation \"dual-pods.llm-d.ai/admin-port\" is invalid: ")]
#[case::mode(|pod: &mut Value| annotate(pod, "dual-pods.llm-d.ai/mode", "x"), "the annotation \"dual-pods.llm-d.ai/mode\" is invalid: \"x\" is neither \"direct\" nor \"launcher\"")]
#[case::configuration(|pod: &mut Value| annotate(pod, "dual-pods.llm-d.ai/inference-server-config", "x"), "the annotation \"dual-pods.llm-d.ai/inference-server-config\" is not supported")]
#[case::invalid_pod(|pod: &mut Value| {
    let patch = pod["metadata"]["annotations"][PATCH].as_str().unwrap().replace("vllm:1", "");
    annotate(pod, PATCH, &patch);
}, "failed to create server-providing Pod: Pod \"")]
fn bad_input_is_reported_and_healed(#[case] edit: fn(&mut Value), #[case] expected: &str) {
    let mut world = World::new(Settings::default());
    world.create_with("r", "a", "m", edit);
    world.run();
    let errors = world.errors("r");
    assert!(errors.len() == 1 && errors[0].starts_with(expected), "{errors:?}");
    assert!(world.providers().is_empty());
    world.create("good", "b", "m");
    let good = world.pod("good").unwrap()["metadata"]["annotations"][PATCH].clone();
    world.edit("r", |pod| pod["metadata"]["annotations"] = json!({ PATCH: good }));
    world.run();
    assert!(world.errors("r").is_empty() && world.requesters["r"].is_ready);
}

// spec: DP-52
#[test]
fn unreachable_requester_is_reported() {
    let mut world = World::new(Settings::default());
    world.create("r", "a", "m");
    world.requesters.get_mut("r").unwrap().failing = Some(CallErrorKind::NotDelivered);
    world.run();
    assert_eq!(world.errors("r"), ["GET \"http://10.0.0.1:8081/v1/dual-pods/accelerators\" fails: connection refused"]);
    world.requesters.get_mut("r").unwrap().failing = None;
    world.run();
    assert!(world.errors("r").is_empty() && world.requesters["r"].is_ready);
    let journal = world.take_journal();
    let queries = journal
        .iter()
        .rev()
        .take_while(|entry| !entry.starts_with("STATUS"))
        .filter(|entry| entry.ends_with("/accelerators"));
    assert_eq!(queries.count(), 0, "known accelerators are not queried");
}

#[test]
fn requester_without_accelerators_is_reported() {
    let mut world = World::new(Settings::default());
    world.create("r", "a", "m");
    world.requesters.get_mut("r").unwrap().accelerators.clear();
    world.run();
    assert_eq!(world.errors("r"), ["the assigned set of GPUs is empty"]);
    assert!(world.providers().is_empty());
}

/// The set that created the requester would adopt the provider.
// spec: DP-37
#[test]
fn provider_that_the_set_would_adopt_is_not_created() {
    let mut world = World::new(Settings::default());
    let container = json!({"name": "c", "image": "x"});
    let template = json!({"metadata": {"labels": {"app": "r"}}, "spec": {"containers": [container]}});
    let set = json!({"metadata": {"name": "set", "namespace": "default"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "r"}}, "template": template}});
    let set = world.server.create("replicasets.apps", set).unwrap();
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": set["metadata"]["uid"], "controller": true}]);
    world.create_with("r", "a", "m", |pod| {
        pod["metadata"]["labels"] = json!({"app": "r"});
        pod["metadata"]["ownerReferences"] = owner.clone();
    });
    world.run();
    let [error] = <[String; 1]>::try_from(world.errors("r")).unwrap();
    assert!(
        error.starts_with("the selector of ReplicaSet set matches the labels of the server-providing Pod: app=r"),
        "{error}"
    );
    assert!(world.providers().is_empty());
}

/// Pods that are neither requester nor provider are never touched.
// spec: DP-1, DP-73
#[test]
fn other_pods_are_not_touched() {
    let mut world = World::new(Settings::default());
    world.create_with("plain", "a", "m", |pod| pod["metadata"]["annotations"] = json!({"a": "b"}));
    world.create_sleeper("r", "b", "m");
    let sleeper = world.providers()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let plain = world.pod("plain").unwrap();
    world.take_journal();
    world.delete(&sleeper);
    world.run();
    assert_eq!(world.pod("plain").unwrap(), plain);
    assert!(world.take_journal().is_empty(), "the deletion of a sleeper is uneventful");
}
