//! Routers of role-based services: creation, configuration, status and deletion.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use embedded::Server;
use rstest::rstest;
use serde_json::{Value, json};

use crate::simulated_cluster::{CRDS, SimulatedCluster, condition, ready_service, role, service_with_roles};
use crate::test_cluster::{FUSIONINFER_SERVICES, Fault, OperatorRequest, TestCluster};

const ROUTER_OBJECTS: [(&str, &str); 8] = [
    ("serviceaccounts", "chat-epp"),
    ("roles.rbac.authorization.k8s.io", "chat-epp"),
    ("rolebindings.rbac.authorization.k8s.io", "chat-epp"),
    ("configmaps", "chat-epp-config"),
    ("deployments.apps", "chat-epp"),
    ("services", "chat-epp"),
    (INFERENCE_POOLS, "chat-pool"),
    (HTTP_ROUTES, "chat-httproute"),
];
const INFERENCE_POOLS: &str = "inferencepools.inference.networking.k8s.io";
const HTTP_ROUTES: &str = "httproutes.gateway.networking.k8s.io";

/// Returns a service with prefill and decode roles, and a router with a route.
fn service_with_router() -> Value {
    let route = json!({"parentRefs": [{"name": "gateway"}]});
    let router =
        json!({"name": "entry", "componentType": "router", "strategy": "pd-disaggregation", "httproute": route});
    service_with_roles("chat", vec![role("prefill", "prefiller", 1, 2, 8), role("decode", "decoder", 2, 1, 8), router])
}

async fn cluster() -> SimulatedCluster {
    let cluster = SimulatedCluster::with_gpus(32);
    cluster.server.create(FUSIONINFER_SERVICES, service_with_router()).unwrap();
    cluster.wait_until_ready("chat").await;
    cluster
}

fn existing_resources(server: &Server) -> Vec<&'static str> {
    ROUTER_OBJECTS
        .into_iter()
        .filter(|(resource, name)| server.get(resource, "default", name).is_some())
        .map(|(resource, _)| resource)
        .collect()
}

fn get(cluster: &SimulatedCluster, resource: &str, name: &str) -> Arc<Value> {
    cluster.server.get(resource, "default", name).unwrap_or_else(|| panic!("no {resource} {name}"))
}

/// Returns the UIDs of the engine Pods and of the picker Pods.
fn pods(server: &Server) -> (Vec<String>, Vec<String>) {
    let uids_of = |router: bool| {
        let is_selected = |pod: &Arc<Value>| {
            (pod["metadata"]["labels"]["fusioninfer.io/component-type"] == "router") == router
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let pods = server.list("pods").into_iter().filter(is_selected);
        pods.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
    };
    (uids_of(false), uids_of(true))
}

// spec: TOP-15
// spec: TOP-86
#[tokio::test(start_paused = true)]
async fn creates_and_counts_a_router() {
    let cluster = cluster().await;
    assert_eq!(existing_resources(&cluster.server), ROUTER_OBJECTS.map(|(resource, _)| resource));
    let uid = cluster.service("chat")["metadata"]["uid"].clone();
    for (resource, name) in ROUTER_OBJECTS {
        let object = get(&cluster, resource, name);
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], uid, "{resource}");
        assert_eq!(object["metadata"]["labels"]["fusioninfer.io/service"], "chat", "{resource}");
    }
    let status = cluster.service("chat")["status"].clone();
    let entry = &status["components"]["entry"];
    assert_eq!((&entry["readyReplicas"], &entry["phase"]), (&json!(1), &json!("Running")));
    assert_eq!(condition(&cluster.server, "chat", "RouterReady").unwrap()["status"], "True");
    cluster.server.delete(FUSIONINFER_SERVICES, "default", "chat", None).unwrap();
    cluster.wait_for("deletion of all objects", &|server| existing_resources(server).is_empty().then_some(())).await;
}

// spec: TOP-90
#[rstest]
#[case::strategy("strategy", "queue-size")]
#[case::custom_configuration("endpointPickerConfig", "kind: EndpointPickerConfig\n")]
#[tokio::test(start_paused = true)]
async fn changed_configuration_restarts_only_the_picker(#[case] field: &str, #[case] value: &str) {
    let cluster = cluster().await;
    let (engines, pickers) = pods(&cluster.server);
    let config = get(&cluster, "configmaps", "chat-epp-config")["data"].clone();
    cluster
        .test_cluster
        .update_object(FUSIONINFER_SERVICES, "chat", |service| service["spec"]["roles"][2][field] = json!(value));
    let has_new_picker = |server: &Server| {
        let current_pickers = pods(server).1;
        (current_pickers.len() == 1 && current_pickers != pickers).then_some(())
    };
    cluster.wait_for("another picker", &has_new_picker).await;
    cluster.wait_until_ready("chat").await;
    assert_eq!(pods(&cluster.server).0, engines, "no engine is restarted");
    assert_ne!(get(&cluster, "configmaps", "chat-epp-config")["data"], config);
    // Revert the configuration.
    cluster
        .test_cluster
        .update_object(FUSIONINFER_SERVICES, "chat", |service| service["spec"] = service_with_router()["spec"].clone());
    cluster
        .wait_for("the previous configuration", &|server: &Server| {
            (server.get("configmaps", "default", "chat-epp-config")?["data"] == config).then_some(())
        })
        .await;
    cluster.wait_until_ready("chat").await;
    assert_eq!(pods(&cluster.server).0, engines);
}

/// Writes the status of the route as a Gateway controller does.
fn set_accepted_condition(cluster: &SimulatedCluster, status: &str, reason: &str) {
    let mut route = get(cluster, HTTP_ROUTES, "chat-httproute").as_ref().clone();
    let accepted = json!({"type": "Accepted", "status": status, "reason": reason, "message": "as it is",
        "observedGeneration": route["metadata"]["generation"], "lastTransitionTime": "2026-01-01T00:00:00Z"});
    route["status"] = json!({"parents": [{"parentRef": {"name": "gateway"}, "controllerName": "a.example/b", "conditions": [accepted]}]});
    cluster.server.update_status(HTTP_ROUTES, route).unwrap();
}

// spec: TOP-88
#[tokio::test(start_paused = true)]
async fn reports_the_route_status_of_gateways() {
    let cluster = cluster().await;
    let has_message = |message: &'static str| {
        move |server: &Server| (condition(server, "chat", "RouterReady")?["message"] == message).then_some(())
    };
    // No controller serves the Gateway, and readiness does not wait for one.
    cluster
        .wait_for(
            "the missing status",
            &has_message(
                "Router is ready; no Gateway controller has reported status for HTTPRoute default/chat-httproute",
            ),
        )
        .await;
    set_accepted_condition(&cluster, "False", "NotAllowedByListeners");
    let rejected =
        "HTTPRoute default/chat-httproute was not accepted by Gateway gateway: NotAllowedByListeners: as it is";
    cluster.wait_for("the rejection", &has_message(rejected)).await;
    assert_eq!(cluster.wait_for_condition("chat", "Ready", "RouteNotAccepted").await["message"], rejected);
    assert_eq!(
        condition(&cluster.server, "chat", "Active").unwrap()["status"],
        "True",
        "engines keep serving requests"
    );
    set_accepted_condition(&cluster, "True", "Accepted");
    cluster.wait_for("the acceptance", &has_message("Router is ready; Gateway gateway accepted its route")).await;
    cluster.wait_until_ready("chat").await;
}

/// The operator determines the image of its pickers from its own Pod, with its shipped permissions.
#[tokio::test(start_paused = true)]
async fn pickers_run_the_image_of_the_operator() {
    let cluster = SimulatedCluster::with_gpus(8);
    let spec = json!({"containers": [{"name": "mesh", "image": "mesh:1"}, {"name": "x", "image": "registry.example/ostler:9", "args": ["operator"]}]});
    let pod = json!({"metadata": {"namespace": "default", "name": "ostler-operator-0"}, "spec": spec});
    cluster.server.create("pods", pod).unwrap();
    let client = || kube::Client::new(embedded::router(&cluster.server), "default");
    assert_eq!(
        operator::own_image(client(), "default", "ostler-operator-0").await.as_deref(),
        Some("registry.example/ostler:9")
    );
    assert_eq!(operator::own_image(client(), "default", "another").await, None);
}

// spec: TOP-76
#[tokio::test(start_paused = true)]
async fn removed_router_leaves_no_objects() {
    let cluster = cluster().await;
    let engines = pods(&cluster.server).0;
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
        service["spec"]["roles"][2].as_object_mut().unwrap().remove("httproute");
    });
    cluster
        .wait_for("no route", &|server| server.get(HTTP_ROUTES, "default", "chat-httproute").is_none().then_some(()))
        .await;
    assert_eq!(existing_resources(&cluster.server).len(), ROUTER_OBJECTS.len() - 1);
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
        service["spec"]["roles"].as_array_mut().unwrap().truncate(2);
    });
    cluster.wait_for("no router", &|server| existing_resources(server).is_empty().then_some(())).await;
    let service = cluster.wait_until_ready("chat").await;
    assert!(service["status"]["components"].get("entry").is_none());
    assert!(condition(&cluster.server, "chat", "RouterReady").is_none());
    cluster.wait_for("no picker", &|server| pods(server).1.is_empty().then_some(())).await;
    assert_eq!(pods(&cluster.server).0, engines);
}

// spec: TOP-71
#[tokio::test(start_paused = true)]
async fn router_apis_may_be_installed_later() {
    let integrations = vec![api::integrations::leader_worker_set_crd(), api::integrations::pod_group_crd()];
    let cluster = SimulatedCluster::with_crds(32, [api::crds(), integrations].concat());
    cluster.server.create(FUSIONINFER_SERVICES, service_with_router()).unwrap();
    let condition = cluster.wait_for_condition("chat", "RouterReady", "KindMissing").await;
    assert_eq!(
        condition["message"],
        "The cluster does not serve InferencePool and HTTPRoute; install the Gateway API Inference Extension \
         (inference.networking.k8s.io) and the Gateway API (gateway.networking.k8s.io) to run this service"
    );
    cluster.wait_for_condition("chat", "Active", "MinimumReady").await;
    assert_eq!(existing_resources(&cluster.server).len(), ROUTER_OBJECTS.len() - 2, "all other objects are created");
    cluster.server.create(CRDS, api::integrations::inference_pool_crd()).unwrap();
    cluster.wait_for("the pool", &|server| server.get(INFERENCE_POOLS, "default", "chat-pool")).await;
    let condition = cluster.wait_for_condition("chat", "RouterReady", "KindMissing").await;
    assert!(condition["message"].as_str().unwrap().contains("serve HTTPRoute;"), "{condition}");
    cluster.server.create(CRDS, api::integrations::http_route_crd()).unwrap();
    cluster.wait_until_ready("chat").await;
    assert_eq!(existing_resources(&cluster.server).len(), ROUTER_OBJECTS.len());
}

/// A kind that the operator may not list is reported as such: its API is installed. The service continues once the
/// permission is granted.
#[tokio::test(start_paused = true)]
async fn forbidden_kind_is_not_reported_as_missing() {
    let cluster = TestCluster::empty();
    for definition in api::integrations::crds() {
        if definition["spec"]["names"]["kind"] != "InferencePool" {
            cluster.server.create(CRDS, definition).unwrap();
        }
    }
    cluster.server.create(FUSIONINFER_SERVICES, service_with_router()).unwrap();
    let is_forbidden = Arc::new(AtomicBool::new(true));
    let forbidden = Arc::clone(&is_forbidden);
    let faults = move |request: &OperatorRequest| {
        let is_pool = request.uri().path().ends_with("/inferencepools");
        if is_pool && forbidden.load(Ordering::Relaxed) { Fault::Status(403) } else { Fault::None }
    };
    let _operator = cluster.start_operator_with_faults(operator::Options::default(), Arc::new(faults));
    let wait_for_reason = async |reason: &str| {
        cluster
            .wait_for(reason, |server| {
                condition(server, "chat", "RouterReady").filter(|found| found["reason"] == reason)
            })
            .await
    };
    wait_for_reason("KindMissing").await;
    cluster.server.create(CRDS, api::integrations::inference_pool_crd()).unwrap();
    let router_ready = wait_for_reason("ClusterNotRead").await;
    assert_eq!(router_ready["message"], "The operator failed to list InferencePool: requests are rejected with 403");
    is_forbidden.store(false, Ordering::Relaxed);
    cluster.wait_for("the pool", |server| server.get(INFERENCE_POOLS, "default", "chat-pool")).await;
}

/// Until the first list of a kind is complete, nothing is reported as missing.
#[tokio::test(start_paused = true)]
async fn forbidden_kind_is_not_reported_as_missing_at_start() {
    let cluster = TestCluster::empty();
    for definition in api::integrations::crds() {
        cluster.server.create(CRDS, definition).unwrap();
    }
    cluster.server.create(FUSIONINFER_SERVICES, service_with_router()).unwrap();
    let forbid_pools = |request: &OperatorRequest| match request.uri().path().ends_with("/inferencepools") {
        true => Fault::Status(403),
        false => Fault::None,
    };
    let _operator = cluster.start_operator_with_faults(operator::Options::default(), Arc::new(forbid_pools));
    cluster.wait_for("the condition", |server| condition(server, "chat", "RouterReady")).await;
    cluster.wait_until_idle().await;
    assert_eq!(condition(&cluster.server, "chat", "RouterReady").unwrap()["reason"], "ClusterNotRead");
    let events = cluster.server.list("events");
    assert!(events.iter().all(|event| event["reason"] != "KindMissing"), "{events:#?}");
}

/// Objects of other owners: kinds that are watched with a label selector, and one that is watched without.
// spec: TOP-76
#[rstest]
#[case::config("configmaps", json!({"metadata": {"name": "chat-epp-config"}, "data": {"mine": "x"}}))]
#[case::account("serviceaccounts", json!({"metadata": {"name": "chat-epp"}}))]
#[case::role("roles.rbac.authorization.k8s.io", json!({"metadata": {"name": "chat-epp"}, "rules": []}))]
#[case::pool(INFERENCE_POOLS, json!({"metadata": {"name": "chat-pool"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "targetPorts": [{"number": 1}]}}))]
#[tokio::test(start_paused = true)]
async fn foreign_object_is_not_modified(#[case] resource: &str, #[case] mut foreign: Value) {
    let cluster = SimulatedCluster::with_gpus(32);
    foreign["metadata"]["namespace"] = json!("default");
    let name = foreign["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.server.create(resource, foreign).unwrap();
    let object_before = get(&cluster, resource, &name);
    cluster.server.create(FUSIONINFER_SERVICES, service_with_router()).unwrap();
    let condition = cluster.wait_for_condition("chat", "RouterReady", "ObjectNotOurs").await;
    assert!(condition["message"].as_str().unwrap().contains(&name), "{condition}");
    cluster.wait_for_condition("chat", "Active", "MinimumReady").await;
    assert_eq!(get(&cluster, resource, &name), object_before);
    cluster.server.delete(resource, "default", &name, None).unwrap();
    cluster.wait_until_ready("chat").await;
    assert_ne!(get(&cluster, resource, &name)["metadata"]["uid"], object_before["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn reverts_foreign_edits() {
    let cluster = cluster().await;
    let fields: BTreeMap<&str, &str> =
        [("roles.rbac.authorization.k8s.io", "rules"), ("configmaps", "data"), (INFERENCE_POOLS, "spec")].into();
    for (resource, field) in fields {
        let name = ROUTER_OBJECTS.iter().find(|(kind, _)| *kind == resource).unwrap().1;
        let object_before = get(&cluster, resource, name);
        let mut edited_object = (*object_before).clone();
        match field {
            "rules" => edited_object["rules"][0]["verbs"] = json!(["*"]),
            "data" => edited_object["data"]["config.yaml"] = json!("x"),
            _ => edited_object["spec"]["targetPorts"] = json!([{"number": 1}]),
        }
        cluster.server.update(resource, edited_object).unwrap();
        let restored =
            |server: &Server| (server.get(resource, "default", name)?[field] == object_before[field]).then_some(());
        cluster.wait_for(&format!("the previous {resource}"), &restored).await;
    }
}

/// A reconcile without changes does not even read unwatched objects.
#[tokio::test(start_paused = true)]
async fn unchanged_router_sends_no_request() {
    let cluster = cluster().await;
    cluster.test_cluster.wait_until_idle().await;
    let requests_before = cluster.test_cluster.requests();
    let mut deployment = (*get(&cluster, "deployments.apps", "chat-epp")).clone();
    deployment["metadata"]["labels"]["example.com/touched"] = json!("yes");
    cluster.server.update("deployments.apps", deployment).unwrap();
    cluster.test_cluster.wait_until_idle().await;
    assert!(ready_service(&cluster.server, "chat").is_some());
    assert_eq!(cluster.test_cluster.requests(), requests_before);
}
