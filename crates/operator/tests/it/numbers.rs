//! Numbers that users write into objects without a schema, or that a schema of another program permits.

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use crate::simulated_cluster::disaggregated_service;

use crate::test_cluster::{
    CATALOG, FUSIONINFER_SERVICES, OME_SERVICES, TestCluster, minimal_service, node, server_with_crds,
};

const LEADER_WORKER_SETS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

/// Returns the definitions, those of services and LeaderWorkerSets without a schema.
fn definitions() -> Vec<Value> {
    let mut definitions = api::crds();
    definitions.extend(api::integrations::crds());
    let is_relaxed = |definition: &&mut Value| {
        let kind = definition["spec"]["names"]["kind"].as_str();
        matches!(kind, Some("InferenceService" | "LeaderWorkerSet"))
    };
    for definition in definitions.iter_mut().filter(is_relaxed) {
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    definitions
}

/// Returns the engine of a service whose replicas are groups of two Pods.
fn engine() -> Value {
    let runner = json!({"name": "ome-container", "image": "example.com/engine:1"});
    json!({"minReplicas": 1, "maxReplicas": 1, "leader": {"runner": runner}, "worker": {"size": 1, "runner": runner}})
}

/// Replaces all numbers within `value`.
fn replace_numbers(value: &mut Value, number: &Value) {
    match value {
        Value::Number(_) => *value = number.clone(),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_numbers(item, number)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace_numbers(field, number)),
        _ => {}
    }
}

/// Replaces the numbers of the statuses and the replica counts of all workloads, as far as the API server accepts them.
fn edit_workloads(server: &embedded::Server, number: &Value) {
    for resource in ["deployments.apps", LEADER_WORKER_SETS] {
        for object in server.list(resource) {
            let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
            let mut edited = Value::clone(&object);
            edited["status"] = counts.into_iter().map(|name| (name.to_owned(), number.clone())).collect();
            edited["status"]["updatedReplicas"] =
                if number.as_i64() < Some(0) { json!(i64::MAX) } else { json!(i64::MIN) };
            server.update_status(resource, edited).ok();
            let mut edited = Value::clone(&object);
            edited["metadata"]["resourceVersion"] = Value::Null;
            edited["spec"]["replicas"] = number.clone();
            server.update(resource, edited).ok();
        }
    }
}

/// Replaces the numbers in the statuses of the services, which the operator reads as its records.
fn edit_services(server: &embedded::Server, number: &Value) {
    for resource in [OME_SERVICES, FUSIONINFER_SERVICES] {
        for object in server.list(resource) {
            let mut edited = Value::clone(&object);
            replace_numbers(&mut edited["status"], number);
            server.update_status(resource, edited).unwrap();
        }
    }
}

#[rstest]
#[case(json!(i64::MAX))]
#[case(json!(i64::MIN))]
#[case(json!(u64::MAX))]
#[case(json!(i32::MAX))]
#[case(json!(i32::MIN))]
#[case(json!(-1))]
#[case(json!(0))]
#[case(json!(1e300))]
#[tokio::test(start_paused = true)]
async fn no_number_causes_a_panic(#[case] number: Value) {
    let test_cluster = TestCluster::without_operator(server_with_crds(definitions()));
    test_cluster.server.create("nodes", node()).unwrap();
    CATALOG.iter().for_each(|(resource, text)| test_cluster.create_all(resource, text));
    let options = operator::Options::default();
    let metrics = Arc::clone(&options.metrics);
    test_cluster.start_operator(options);

    // The workloads of valid services.
    let mut groups = minimal_service("groups", crate::MODEL);
    groups["spec"]["engine"] = engine();
    let services = [
        (OME_SERVICES, minimal_service("chat", crate::MODEL)),
        (OME_SERVICES, groups),
        (FUSIONINFER_SERVICES, disaggregated_service()),
    ];
    for (resource, service) in &services {
        test_cluster.server.create(resource, service.clone()).unwrap();
    }
    test_cluster.wait_until_idle().await;
    assert_eq!(test_cluster.server.list(LEADER_WORKER_SETS).len(), 4);
    edit_workloads(&test_cluster.server, &number);
    test_cluster.wait_until_idle().await;
    edit_services(&test_cluster.server, &number);
    test_cluster.wait_until_idle().await;

    // The same services with other numbers.
    for (resource, service) in services {
        let mut edited = service;
        edited["metadata"]["name"] = json!(format!("{}-edited", edited["metadata"]["name"].as_str().unwrap()));
        replace_numbers(&mut edited["spec"], &number);
        test_cluster.server.create(resource, edited).unwrap();
    }
    test_cluster.wait_until_idle().await;
    let metrics = metrics.render();
    let panics: Vec<&str> = metrics.lines().filter(|line| line.starts_with("ostler_panics_total")).collect();
    assert!(panics.iter().all(|line| line.ends_with(" 0")), "{panics:#?}");
}
