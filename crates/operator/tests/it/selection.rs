//! Which runtime and which class, in a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use embedded::ports::Clock;
use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{CATALOGUE, SERVICES, World, bare, five_lines, with_clock};
use crate::fleet::{self, NAMESPACED_RUNTIMES, RUNTIMES, class_of, furnish};

async fn decided(world: &World, service: Value) -> Arc<Value> {
    let name = service["metadata"]["name"].as_str().unwrap().to_owned();
    world.server.create(SERVICES, service).unwrap();
    world.condition(SERVICES, &name, "RuntimeResolved", "True").await
}

fn runtime_of(service: &Value) -> (&Value, &Value) {
    let runtime = &service["status"]["decision"]["runtime"];
    (&runtime["name"], &runtime["scope"])
}

/// Story 1: nothing but a model, with and without the runtime's name.
// spec: ACC-98
// spec: RT-51
#[rstest]
#[case::automatic(None)]
#[case::named(Some("any"))]
#[tokio::test(start_paused = true)]
async fn a_model_is_enough(#[case] runtime: Option<&str>) {
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    let world = World::on(server, operator::Options::default());
    let mut service = five_lines("llama-7b", "small");
    if let Some(name) = runtime {
        service["spec"]["runtime"] = json!({"name": name});
    }
    let service = decided(&world, service).await;
    assert_eq!((runtime_of(&service).0, class_of(&service)), (&json!("any"), &json!("big")));
    let deployment = world.server.get("deployments.apps", "default", "llama-7b-engine").unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "example.com/any:1");
    let accelerator = &service["status"]["components"]["engine"]["selectedAccelerator"];
    assert_eq!(accelerator["resourceRequests"], json!({"nvidia.com/gpu": "1"}));
}

/// Between the rendered objects and what stands in the cluster nobody changes a container or its place.
// spec: ACC-97
#[tokio::test(start_paused = true)]
async fn what_is_planned_is_what_runs() {
    let world = World::start(false).await;
    let mut service = five_lines("chat", "llama-3-2-3b-instruct");
    service["spec"]["engine"] = json!({
        "runner": {"args": ["--mem-fraction-static=0.5", "{% raw %}"], "env": [{"name": "MINE", "value": "$(MODEL_PATH)"}]},
        "nodeSelector": {"nvidia.com/gpu.count": "8"},
    });
    decided(&world, service.clone()).await;
    let live = world.server.get("deployments.apps", "default", "chat-engine").unwrap();

    let read = |text: &str| api::manifest::read("plan", text).unwrap();
    let mut supply: Vec<_> = CATALOGUE.iter().flat_map(|(_, text)| read(text)).collect();
    for node in world.server.list("nodes") {
        supply.extend(read(&node.to_string()));
    }
    let plan = plan::plan(&plan::Snapshot::from_documents(&read(&service.to_string()), &supply).unwrap());
    let planned = plan.services[0].objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    for field in [
        "containers/0/command",
        "containers/0/args",
        "containers/0/env",
        "containers/0/resources",
        "nodeSelector",
        "affinity",
    ] {
        let pointer = format!("/spec/template/spec/{field}");
        assert_eq!(live.pointer(&pointer), planned.pointer(&pointer), "{field}");
    }
    assert!(planned.to_string().contains("{% raw %}"), "{planned}");
}

// spec: RT-46
// spec: RT-47
#[tokio::test(start_paused = true)]
async fn a_named_runtime_is_of_the_namespace_before_the_cluster_and_never_of_another() {
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    server
        .create("namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
        .unwrap();
    server.create(NAMESPACED_RUNTIMES, fleet::namespaced("any", "other")).unwrap();
    let world = World::on(server, operator::Options::default());
    let named = |name: &str| {
        let mut service = five_lines(name, "small");
        service["spec"]["runtime"] = json!({"name": "any"});
        service
    };
    assert_eq!(runtime_of(decided(&world, named("one")).await.as_ref()), (&json!("any"), &json!("Cluster")));
    world.server.create(NAMESPACED_RUNTIMES, fleet::namespaced("any", "default")).unwrap();
    assert_eq!(runtime_of(decided(&world, named("two")).await.as_ref()), (&json!("any"), &json!("Namespace")));
}

/// A clock that a test sets.
struct Set(AtomicI64);

impl Clock for Set {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

/// Creation times are those that the API server writes; neither names nor the order of lists agree with them.
// spec: RT-75
#[tokio::test(start_paused = true)]
async fn of_equal_runtimes_the_newest_is_taken() {
    let clock = Arc::new(Set(AtomicI64::new(1_700_000_000)));
    let server = with_clock(clock.clone(), api::crds());
    furnish(&server, &[("big", "80Gi", "5")]);
    server.delete(RUNTIMES, "", "any", None).unwrap();
    for (name, at) in [("c", 100), ("b", 200), ("a", 50)] {
        clock.0.store(1_700_000_000 + at, Ordering::Relaxed);
        server.create(RUNTIMES, fleet::runtime(name)).unwrap();
    }
    let world = World::on(server, operator::Options::default());
    assert_eq!(runtime_of(decided(&world, five_lines("one", "small")).await.as_ref()).0, "b");
    // Made again, an old name is new.
    clock.0.store(1_700_000_300, Ordering::Relaxed);
    world.server.delete(RUNTIMES, "", "c", None).unwrap();
    world.server.create(RUNTIMES, fleet::runtime("c")).unwrap();
    world
        .until("the newest", |server| {
            let service = server.get(SERVICES, "default", "one")?;
            (runtime_of(&service).0 == "c").then_some(())
        })
        .await;
}

/// Each layer names another class; taking the upper one away reveals the next.
// spec: ACC-67
#[tokio::test(start_paused = true)]
async fn annotation_over_service_over_runtime() {
    let server = bare();
    furnish(&server, &[("a", "80Gi", "1"), ("b", "80Gi", "2"), ("c", "80Gi", "3")]);
    let mut runtime = (*server.get(RUNTIMES, "", "any").unwrap()).clone();
    runtime["spec"]["acceleratorRequirements"]["preferenceOrder"] = json!([{"class": "c", "score": 90}]);
    server.update(RUNTIMES, runtime).unwrap();
    let world = World::on(server, operator::Options::default());
    let mut service = fleet::service("chat", "small");
    service["metadata"]["annotations"] = json!({"ome.io/accelerator-class": "a"});
    service["spec"]["acceleratorSelector"]["preferredClasses"] = json!(["b"]);
    assert_eq!(class_of(decided(&world, service).await.as_ref()), "a");
    let on = |class: &'static str| {
        world.until(class, move |server| {
            server.get(SERVICES, "default", "chat").filter(|found| class_of(found) == class)
        })
    };
    world.edit(SERVICES, "chat", |service| service["metadata"]["annotations"] = json!({}));
    on("b").await;
    world.edit(SERVICES, "chat", |service| service["spec"]["acceleratorSelector"] = json!({"strategy": "cost"}));
    on("c").await;
}
