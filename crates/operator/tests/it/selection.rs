//! Selection of runtime and class in a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use embedded::ports::Clock;
use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use crate::supply::{self, NAMESPACED_RUNTIMES, RUNTIMES, create_supply, selected_class};
use crate::test_cluster::{
    CATALOG, OME_SERVICES, TestCluster, minimal_service, server_with_clock, server_with_ostler_crds,
};

async fn create_and_wait_for_decision(test_cluster: &TestCluster, service: Value) -> Arc<Value> {
    let name = service["metadata"]["name"].as_str().unwrap().to_owned();
    test_cluster.server.create(OME_SERVICES, service).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, &name, "RuntimeResolved", "True").await
}

fn selected_runtime(service: &Value) -> (&Value, &Value) {
    let runtime = &service["status"]["decision"]["runtime"];
    (&runtime["name"], &runtime["scope"])
}

/// A service that specifies only a model, with and without a runtime name (seed 000, Story 1).
// spec: ACC-98
// spec: RT-51
#[rstest]
#[case::automatic(None)]
#[case::named(Some("any"))]
#[tokio::test(start_paused = true)]
async fn model_name_is_sufficient(#[case] runtime: Option<&str>) {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    let mut service = minimal_service("llama-7b", "small");
    if let Some(name) = runtime {
        service["spec"]["runtime"] = json!({"name": name});
    }
    let service = create_and_wait_for_decision(&test_cluster, service).await;
    assert_eq!((selected_runtime(&service).0, selected_class(&service)), (&json!("any"), &json!("big")));
    let deployment = test_cluster.server.get("deployments.apps", "default", "llama-7b-engine").unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "example.com/any:1");
    let accelerator = &service["status"]["components"]["engine"]["selectedAccelerator"];
    assert_eq!(accelerator["resourceRequests"], json!({"nvidia.com/gpu": "1"}));
}

/// Containers and placement of the live objects equal the planned ones.
// spec: ACC-97
#[tokio::test(start_paused = true)]
async fn live_objects_equal_planned_objects() {
    let test_cluster = TestCluster::start(false).await;
    let mut service = minimal_service("chat", "llama-3-2-3b-instruct");
    service["spec"]["engine"] = json!({
        "runner": {"args": ["--mem-fraction-static=0.5", "{% raw %}"], "env": [{"name": "MINE", "value": "$(MODEL_PATH)"}]},
        "nodeSelector": {"nvidia.com/gpu.count": "8"},
    });
    create_and_wait_for_decision(&test_cluster, service.clone()).await;
    let live = test_cluster.server.get("deployments.apps", "default", "chat-engine").unwrap();

    let parse = |text: &str| api::parse_manifest("plan", text).unwrap();
    let mut supply: Vec<_> = CATALOG.iter().flat_map(|(_, text)| parse(text)).collect();
    for node in test_cluster.server.list("nodes") {
        supply.extend(parse(&node.to_string()));
    }
    let plan = plan::plan(&plan::Snapshot::from_documents(&parse(&service.to_string()), &supply).unwrap());
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
async fn named_runtime_prefers_its_own_namespace() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    server
        .create("namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
        .unwrap();
    server.create(NAMESPACED_RUNTIMES, supply::namespaced_runtime("any", "other")).unwrap();
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    let service_with_runtime = |name: &str| {
        let mut service = minimal_service(name, "small");
        service["spec"]["runtime"] = json!({"name": "any"});
        service
    };
    assert_eq!(
        selected_runtime(create_and_wait_for_decision(&test_cluster, service_with_runtime("one")).await.as_ref()),
        (&json!("any"), &Value::Null)
    );
    test_cluster.server.create(NAMESPACED_RUNTIMES, supply::namespaced_runtime("any", "default")).unwrap();
    assert_eq!(
        selected_runtime(create_and_wait_for_decision(&test_cluster, service_with_runtime("two")).await.as_ref()),
        (&json!("any"), &json!("Namespace"))
    );
}

/// A clock that the test sets.
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

/// Creation timestamps come from the API server; neither names nor list order determine the result.
// spec: RT-75
#[tokio::test(start_paused = true)]
async fn selects_the_newest_of_equal_runtimes() {
    let clock = Arc::new(ManualClock(AtomicI64::new(1_700_000_000)));
    let server = server_with_clock(clock.clone(), api::crds());
    create_supply(&server, &[("big", "80Gi", "5")]);
    server.delete(RUNTIMES, "", "any", None).unwrap();
    for (name, offset) in [("c", 100), ("b", 200), ("a", 50)] {
        clock.0.store(1_700_000_000 + offset, Ordering::Relaxed);
        server.create(RUNTIMES, supply::runtime(name)).unwrap();
    }
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    assert_eq!(
        selected_runtime(create_and_wait_for_decision(&test_cluster, minimal_service("one", "small")).await.as_ref()).0,
        "b"
    );
    // A recreated runtime has a new creation timestamp.
    clock.0.store(1_700_000_300, Ordering::Relaxed);
    test_cluster.server.delete(RUNTIMES, "", "c", None).unwrap();
    test_cluster.server.create(RUNTIMES, supply::runtime("c")).unwrap();
    test_cluster
        .wait_for("selection of the newest runtime", |server| {
            let service = server.get(OME_SERVICES, "default", "one")?;
            (selected_runtime(&service).0 == "c").then_some(())
        })
        .await;
}

/// Each layer names a different class; if a layer is removed, the next one applies.
// spec: ACC-67
#[tokio::test(start_paused = true)]
async fn annotation_precedes_service_and_service_precedes_runtime() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("a", "80Gi", "1"), ("b", "80Gi", "2"), ("c", "80Gi", "3")]);
    let mut runtime = (*server.get(RUNTIMES, "", "any").unwrap()).clone();
    runtime["spec"]["acceleratorRequirements"]["preferenceOrder"] = json!([{"class": "c", "score": 90}]);
    server.update(RUNTIMES, runtime).unwrap();
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    let mut service = supply::service("chat", "small");
    service["metadata"]["annotations"] = json!({"ome.io/accelerator-class": "a"});
    service["spec"]["acceleratorSelector"]["preferredClasses"] = json!(["b"]);
    assert_eq!(selected_class(create_and_wait_for_decision(&test_cluster, service).await.as_ref()), "a");
    let wait_for_class = |class: &'static str| {
        test_cluster.wait_for(class, move |server| {
            server.get(OME_SERVICES, "default", "chat").filter(|service| selected_class(service) == class)
        })
    };
    test_cluster.update_object(OME_SERVICES, "chat", |service| service["metadata"]["annotations"] = json!({}));
    wait_for_class("b").await;
    test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["spec"]["acceleratorSelector"] = json!({"strategy": "cost"});
    });
    wait_for_class("c").await;
}
