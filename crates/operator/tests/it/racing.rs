//! Services that want the same accelerators, and what a decision that is already taken costs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use operator::{Metrics, Options};
use serde_json::{Value, json};

use crate::cluster::{SERVICES, World, bare};
use crate::fleet::{self, RUNTIMES, class_of, furnish};

/// A service that takes all eight accelerators of one node.
fn whole_node(name: &str) -> Value {
    let mut service = fleet::service(name, "small");
    service["spec"]["engine"] = json!({"runner": {"resources": {"limits": {"nvidia.com/gpu": "8"}}}});
    service
}

/// The warning that the service waits for others.
fn waits(service: &Value) -> Option<String> {
    let warnings = service["status"]["decision"]["warnings"].as_array()?;
    let found = warnings.iter().find(|warning| warning["code"] == "NoFreeCapacity")?;
    found["message"].as_str().map(str::to_owned)
}

/// `name class`, and `waits` where it does, of every decided service.
fn standing(server: &embedded::Server) -> Vec<String> {
    let decided = server.list(SERVICES).into_iter().filter(|service| class_of(service).is_string());
    let told = |service: Arc<Value>| {
        let (name, class) = (service["metadata"]["name"].as_str().unwrap(), class_of(&service).as_str().unwrap());
        format!("{name} {class}{}", if waits(&service).is_some() { " waits" } else { "" })
    };
    decided.map(told).collect()
}

async fn stands(world: &World, expect: &[&str]) {
    world.until(&format!("{expect:?}"), |server| (standing(server) == expect).then_some(())).await;
}

/// Two nodes of eight and three services that want eight each: the first has the cheap one, the second what is left,
/// the third waits for the cheap one and says for whom. Nobody's Pods run, so only what is promised tells them apart.
#[tokio::test(start_paused = true)]
async fn services_that_race_for_the_last_accelerators_get_a_stable_answer() {
    let server = bare();
    furnish(&server, &[("cheap", "80Gi", "1"), ("dear", "80Gi", "5")]);
    for name in ["one", "three", "two"] {
        server.create(SERVICES, whole_node(name)).unwrap();
    }
    let world = World::on(server, Options::default());
    let settled = ["one cheap", "three dear", "two cheap waits"];
    stands(&world, &settled).await;
    let told = waits(&world.server.get(SERVICES, "default", "two").unwrap()).unwrap();
    assert_eq!(told, "engine needs 8 × cheap, 0 of 8 are free where it may run; it waits (8 promised to default/one)");
    world.quiet().await;
    // However often they are asked again, nobody moves and nothing is written.
    let before = world.writes.load(Ordering::Relaxed);
    for round in 0..5 {
        let mut runtime = (*world.server.get(RUNTIMES, "", "any").unwrap()).clone();
        runtime["metadata"]["annotations"] = json!({"example.com/round": round.to_string()});
        world.server.update(RUNTIMES, runtime).unwrap();
        world.quiet().await;
    }
    assert_eq!(world.writes.load(Ordering::Relaxed), before);
    assert_eq!(standing(&world.server), settled);
    // What one lets go goes to those that wait, and the answers settle again.
    world.server.delete(SERVICES, "default", "one", None).unwrap();
    stands(&world, &["three cheap", "two dear"]).await;
}

/// A service that serves keeps its place against one that comes later, although none of its Pods is counted.
#[tokio::test(start_paused = true)]
async fn what_serves_is_not_given_to_the_next() {
    let server = bare();
    furnish(&server, &[("cheap", "80Gi", "1"), ("dear", "80Gi", "5")]);
    let world = World::on(server, Options::default());
    world.server.create(SERVICES, whole_node("first")).unwrap();
    world.condition(SERVICES, "first", "RuntimeResolved", "True").await;
    world.ready("first-engine");
    world.condition(SERVICES, "first", "Ready", "True").await;
    world.server.create(SERVICES, whole_node("second")).unwrap();
    stands(&world, &["first cheap", "second dear"]).await;
    let first = world.server.get(SERVICES, "default", "first").unwrap();
    assert!(cluster::conditions::find(&first["status"]["conditions"], "DecisionStale").is_none());
}

/// A Pod of the service's Deployment in the given state.
fn pod(world: &World, name: &str, node: Option<&str>) {
    let deployment = world.server.get("deployments.apps", "default", "chat-engine").unwrap();
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec});
    world.server.create("pods", pod).unwrap();
}

async fn told(world: &World, pod: &str, status: Value, word: &str) {
    let mut object = (*world.server.get("pods", "default", pod).unwrap()).clone();
    object["status"] = status;
    world.server.update_status("pods", object).unwrap();
    world
        .until(word, |server| {
            let service = server.get(SERVICES, "default", "chat")?;
            let ready = cluster::conditions::find(&service["status"]["conditions"], "Ready")?;
            ready["message"].as_str().filter(|message| message.contains(word)).map(drop)
        })
        .await;
}

fn decisions(metrics: &Metrics) -> u64 {
    let text = metrics.render();
    let lines = text.lines().filter(|line| line.starts_with("ostler_accelerator_selection_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

// spec: ACC-46
#[tokio::test(start_paused = true)]
async fn a_pod_that_stirs_is_told_without_another_decision() {
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    let metrics = Arc::new(Metrics::default());
    let world = World::on(server, Options { metrics: Arc::clone(&metrics), ..Options::default() });
    world.server.create(SERVICES, fleet::service("chat", "small")).unwrap();
    world.condition(SERVICES, "chat", "RuntimeResolved", "True").await;
    pod(&world, "waiting", None);
    let unschedulable = |message: &str| json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]});
    told(&world, "waiting", unschedulable("no place yet"), "no place yet").await;
    let before = decisions(&metrics);
    assert!(before > 0);
    for message in ["still none", "none at all"] {
        told(&world, "waiting", unschedulable(message), message).await;
    }
    assert_eq!(decisions(&metrics), before);
    // One that takes a place on a node changes what is free.
    pod(&world, "placed", Some("node-big"));
    let failing = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]});
    told(&world, "placed", failing, "no such image").await;
    assert!(decisions(&metrics) > before);
}
