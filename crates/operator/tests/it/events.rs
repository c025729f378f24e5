//! Events of a regular start, and of invalid objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use embedded::Server;
use serde_json::{Value, json};

use crate::supply::{self, RUNTIMES, create_supply};
use crate::test_cluster::{
    Fault, Faults, OME_SERVICES, OperatorRequest, TestCluster, server_with_crds, server_with_ostler_crds,
};

/// Returns type and reason of the events about an object, in order.
pub(crate) fn events(server: &Server, name: &str) -> Vec<String> {
    let mut events_of_object: Vec<_> =
        server.list("events").into_iter().filter(|event| event["involvedObject"]["name"] == name).collect();
    // Several events may have the same timestamp.
    events_of_object
        .sort_by_key(|event| event["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap());
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    events_of_object.iter().map(|event| format!("{} {}", text(event, "type"), text(event, "reason"))).collect()
}

#[tokio::test(start_paused = true)]
async fn regular_start_emits_normal_events() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    test_cluster.server.create(OME_SERVICES, supply::service("chat", "small")).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    test_cluster.mark_deployment_ready("chat-engine");
    let reported = test_cluster.wait_for("event Ready", |server| {
        Some(events(server, "chat")).filter(|reported| reported.iter().any(|event| event.ends_with(" Ready")))
    });
    assert_eq!(reported.await, ["Normal Selected", "Normal Ready"]);
}

/// Returns CRDs without a schema, as an older installation may have them.
fn crds_without_schema() -> Vec<Value> {
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
async fn reports_invalid_runtime_on_itself_and_on_services_that_name_it() {
    let server = server_with_crds(crds_without_schema());
    create_supply(&server, &[("big", "80Gi", "5")]);
    let mut invalid_runtime = supply::runtime("broken");
    invalid_runtime["spec"]["supportedModelFormats"] = json!("safetensors");
    server.create(RUNTIMES, invalid_runtime).unwrap();
    let test_cluster = TestCluster::with_server(server, operator::Options::default());
    test_cluster
        .wait_for("the Warning event", |server| {
            events(server, "broken").contains(&"Warning LeftOut".to_owned()).then_some(())
        })
        .await;
    // A service that names the invalid runtime reports it; other services continue with a warning.
    let mut dependent_service = supply::service("naming", "small");
    dependent_service["spec"]["runtime"] = json!({"name": "broken"});
    test_cluster.server.create(OME_SERVICES, dependent_service).unwrap();
    test_cluster.server.create(OME_SERVICES, supply::service("other", "small")).unwrap();
    let service = test_cluster.wait_for_condition(OME_SERVICES, "naming", "RuntimeResolved", "False").await;
    let condition = cluster::find_condition(&service["status"]["conditions"], "RuntimeResolved").unwrap();
    assert_eq!(condition["reason"], "RuntimeUnreadable");
    assert!(condition["message"].as_str().unwrap().contains("spec.supportedModelFormats"), "{condition}");
    let other_service = test_cluster.wait_for_condition(OME_SERVICES, "other", "RuntimeResolved", "True").await;
    assert_eq!(other_service["status"]["decision"]["warnings"][0]["code"], "InvalidRuntime");
    // Once valid, the runtime takes part in selection again.
    let mut corrected_runtime = (*test_cluster.server.get(RUNTIMES, "", "broken").unwrap()).clone();
    corrected_runtime["spec"] = supply::runtime("broken")["spec"].clone();
    test_cluster.server.update(RUNTIMES, corrected_runtime).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "naming", "RuntimeResolved", "True").await;
    test_cluster
        .wait_for("the Normal event", |server| {
            events(server, "broken").contains(&"Normal Readable".to_owned()).then_some(())
        })
        .await;
}

/// Starts the operator before the CRDs are installed.
#[tokio::test(start_paused = true)]
async fn crds_may_be_installed_later() {
    let test_cluster = TestCluster::with_server(server_with_crds(Vec::new()), operator::Options::default());
    for definition in api::crds() {
        test_cluster.server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    }
    create_supply(&test_cluster.server, &[("big", "80Gi", "5")]);
    test_cluster.server.create(OME_SERVICES, supply::service("chat", "small")).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
}

/// Returns faults that reject the first `failures` requests that create an event, and the number of these requests.
pub(crate) fn event_faults(failures: usize) -> (Faults, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let faults = move |request: &OperatorRequest| {
        if !request.uri().path().ends_with("/events") {
            return Fault::None;
        }
        if counter.fetch_add(1, Ordering::Relaxed) < failures { Fault::Status(503) } else { Fault::None }
    };
    (Arc::new(faults), count)
}

/// An invalid object counts as reported only once its event was created.
#[tokio::test(start_paused = true)]
async fn event_about_invalid_runtime_is_retried() {
    let server = server_with_crds(crds_without_schema());
    for name in ["broken", "defective"] {
        let mut invalid_runtime = supply::runtime(name);
        invalid_runtime["spec"]["supportedModelFormats"] = json!("safetensors");
        server.create(RUNTIMES, invalid_runtime).unwrap();
    }
    let test_cluster = TestCluster::without_operator(server);
    let (faults, count) = event_faults(3);
    let _operator = test_cluster.start_operator_with_faults(operator::Options::default(), faults);
    test_cluster
        .wait_for("the event", |server| {
            ["broken", "defective"].iter().all(|name| events(server, name) == ["Warning LeftOut"]).then_some(())
        })
        .await;
    test_cluster.wait_until_idle().await;
    // Two rejected attempts, then one that creates an event and repeats the other.
    assert_eq!(count.load(Ordering::Relaxed), 6);
}

#[tokio::test(start_paused = true)]
async fn event_of_a_service_is_retried() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let test_cluster = TestCluster::without_operator(server);
    let (faults, _) = event_faults(5);
    let _operator = test_cluster.start_operator_with_faults(operator::Options::default(), faults);
    test_cluster.server.create(OME_SERVICES, supply::service("chat", "small")).unwrap();
    test_cluster.wait_for("the event", |server| (events(server, "chat") == ["Normal Selected"]).then_some(())).await;
}

/// Returns whether a request writes the status of a service.
fn writes_service_status(request: &OperatorRequest) -> bool {
    request.uri().path().contains("/inferenceservices/") && request.uri().path().ends_with("/status")
}

/// Returns a cluster without an operator, with classes, a runtime, a model and service `chat`.
fn cluster_with_service() -> TestCluster {
    let test_cluster = TestCluster::empty();
    create_supply(&test_cluster.server, &[("big", "80Gi", "5")]);
    test_cluster.server.create(OME_SERVICES, supply::service("chat", "small")).unwrap();
    test_cluster
}

/// The status is written only after its events were created; whatever ends an operator in between, the next one creates each
/// event once.
#[tokio::test(start_paused = true)]
async fn crash_before_the_status_repeats_no_event_and_loses_none() {
    for lost in ["/events", "/status"] {
        let test_cluster = cluster_with_service();
        let lost_requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&lost_requests);
        let faults = move |request: &OperatorRequest| {
            let is_lost =
                if lost == "/status" { writes_service_status(request) } else { request.uri().path().ends_with(lost) };
            if !is_lost {
                return Fault::None;
            }
            counter.fetch_add(1, Ordering::Relaxed);
            Fault::NoResponse
        };
        let operator = test_cluster.start_operator_with_faults(operator::Options::default(), Arc::new(faults));
        // No object changes when a request is lost.
        while lost_requests.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        operator.abort();
        assert!(operator.await.unwrap_err().is_cancelled());
        let service = test_cluster.server.get(OME_SERVICES, "default", "chat").unwrap();
        assert!(service["status"]["conditions"].is_null(), "a status without its events: {lost}");
        test_cluster.start_operator(operator::Options::default());
        test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
        test_cluster.wait_until_idle().await;
        assert_eq!(events(&test_cluster.server, "chat"), ["Normal Selected"], "{lost}");
    }
}

/// An API server that rejects events, or stores none for minutes, must not block statuses.
#[tokio::test(start_paused = true)]
async fn statuses_do_not_wait_forever_for_events() {
    for (code, max_wait) in [(403, 1), (404, 1), (422, 1), (503, 200)] {
        let test_cluster = cluster_with_service();
        let faults = move |request: &OperatorRequest| match request.uri().path().ends_with("/events") {
            true => Fault::Status(code),
            false => Fault::None,
        };
        let start = tokio::time::Instant::now();
        let _operator = test_cluster.start_operator_with_faults(operator::Options::default(), Arc::new(faults));
        test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
        assert!(start.elapsed().as_secs() <= max_wait, "{code}: {:?}", start.elapsed());
    }
}

/// Transitions that repeat result in new events, although the status returns to a former one.
#[tokio::test(start_paused = true)]
async fn repeated_transitions_have_events_of_their_own() {
    let test_cluster = cluster_with_service();
    test_cluster.start_operator(operator::Options::default());
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    for _ in 0..3 {
        for (model, resolved) in [("none", "False"), ("small", "True")] {
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            test_cluster.update_object(OME_SERVICES, "chat", |service| {
                service["spec"]["model"]["name"] = json!(model);
            });
            test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", resolved).await;
            test_cluster.wait_until_idle().await;
        }
    }
    let reported = events(&test_cluster.server, "chat");
    let count = |reason: &str| reported.iter().filter(|event| event.ends_with(reason)).count();
    assert_eq!((count(" ModelNotFound"), count(" Selected")), (3, 4), "{reported:?}");
}

/// The API server rejects the status with a conflict, since the service was edited after its events were created.
#[tokio::test(start_paused = true)]
async fn edit_before_the_status_repeats_no_event() {
    let test_cluster = cluster_with_service();
    let (server, edits) = (test_cluster.server.clone(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&edits);
    let faults = move |request: &OperatorRequest| {
        if writes_service_status(request) && counter.fetch_add(1, Ordering::Relaxed) == 0 {
            let mut service = (*server.get(OME_SERVICES, "default", "chat").unwrap()).clone();
            service["spec"]["engine"]["runner"]["env"] = json!([{"name": "A", "value": "1"}]);
            server.update(OME_SERVICES, service).unwrap();
        }
        Fault::None
    };
    let _operator = test_cluster.start_operator_with_faults(operator::Options::default(), Arc::new(faults));
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    test_cluster.wait_until_idle().await;
    assert!(edits.load(Ordering::Relaxed) >= 2, "the status was written again");
    assert_eq!(events(&test_cluster.server, "chat"), ["Normal Selected"]);
}

/// The API server records the times of statuses and conditions in seconds.
#[tokio::test(start_paused = true)]
async fn equal_transitions_within_a_second_have_events_of_their_own() {
    let test_cluster = cluster_with_service();
    test_cluster.start_operator(operator::Options::default());
    test_cluster.wait_for_condition(OME_SERVICES, "chat", "RuntimeResolved", "True").await;
    test_cluster.wait_until_idle().await;
    let set_ready = |ready: i64| {
        test_cluster.mark_deployment_ready("chat-engine");
        let mut deployment = (*test_cluster.server.get("deployments.apps", "default", "chat-engine").unwrap()).clone();
        for count in ["readyReplicas", "availableReplicas"] {
            deployment["status"][count] = json!(ready);
        }
        test_cluster.server.update_status("deployments.apps", deployment).unwrap();
    };
    let start = tokio::time::Instant::now();
    for (ready, status) in [(1, "True"), (0, "False")].repeat(3) {
        set_ready(ready);
        test_cluster.wait_for_condition(OME_SERVICES, "chat", "Ready", status).await;
    }
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
    test_cluster.wait_until_idle().await;
    let reported = events(&test_cluster.server, "chat");
    assert_eq!(reported.iter().filter(|event| *event == "Normal Ready").count(), 3, "{reported:?}");
}
