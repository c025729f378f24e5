//! Routers of role-based services: made, restarted, told of, and taken away.

use std::collections::BTreeMap;
use std::sync::Arc;

use embedded::Server;
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::ROLES;
use crate::machine::{DEFINITIONS, Machine, condition, ready, role, roles};

const KINDS: [(&str, &str); 8] = [
    ("serviceaccounts", "chat-epp"),
    ("roles.rbac.authorization.k8s.io", "chat-epp"),
    ("rolebindings.rbac.authorization.k8s.io", "chat-epp"),
    ("configmaps", "chat-epp-config"),
    ("deployments.apps", "chat-epp"),
    ("services", "chat-epp"),
    (POOLS, "chat-pool"),
    (ROUTES, "chat-httproute"),
];
const POOLS: &str = "inferencepools.inference.networking.k8s.io";
const ROUTES: &str = "httproutes.gateway.networking.k8s.io";

/// A pair, and a router with a route.
fn pair_with_router() -> Value {
    let route = json!({"parentRefs": [{"name": "gateway"}]});
    let router =
        json!({"name": "entry", "componentType": "router", "strategy": "pd-disaggregation", "httproute": route});
    roles("chat", vec![role("prefill", "prefiller", 1, 2, 8), role("decode", "decoder", 2, 1, 8), router])
}

async fn machine() -> Machine {
    let machine = Machine::with_gpus(32);
    machine.server.create(ROLES, pair_with_router()).unwrap();
    machine.ready("chat").await;
    machine
}

fn there(server: &Server) -> Vec<&'static str> {
    KINDS
        .into_iter()
        .filter(|(resource, name)| server.get(resource, "default", name).is_some())
        .map(|(resource, _)| resource)
        .collect()
}

fn get(machine: &Machine, resource: &str, name: &str) -> Arc<Value> {
    machine.server.get(resource, "default", name).unwrap_or_else(|| panic!("no {resource} {name}"))
}

/// UIDs of the Pods that run engines, and of those that run the picker.
fn pods(server: &Server) -> (Vec<String>, Vec<String>) {
    let of = |router: bool| {
        let is_it = |pod: &Arc<Value>| {
            (pod["metadata"]["labels"]["fusioninfer.io/component-type"] == "router") == router
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let pods = server.list("pods").into_iter().filter(is_it);
        pods.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
    };
    (of(false), of(true))
}

// spec: TOP-15
// spec: TOP-86
#[tokio::test(start_paused = true)]
async fn a_router_is_made_and_counted() {
    let machine = machine().await;
    assert_eq!(there(&machine.server), KINDS.map(|(resource, _)| resource));
    let uid = machine.service("chat")["metadata"]["uid"].clone();
    for (resource, name) in KINDS {
        let object = get(&machine, resource, name);
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], uid, "{resource}");
        assert_eq!(object["metadata"]["labels"]["fusioninfer.io/service"], "chat", "{resource}");
    }
    let status = machine.service("chat")["status"].clone();
    let entry = &status["components"]["entry"];
    assert_eq!((&entry["readyReplicas"], &entry["phase"]), (&json!(1), &json!("Running")));
    assert_eq!(condition(&machine.server, "chat", "RouterReady").unwrap()["status"], "True");
    machine.server.delete(ROLES, "default", "chat", None).unwrap();
    machine.until("nothing left", &|server| there(server).is_empty().then_some(())).await;
}

// spec: TOP-90
#[rstest]
#[case::strategy("strategy", "queue-size")]
#[case::own("endpointPickerConfig", "kind: EndpointPickerConfig\n")]
#[tokio::test(start_paused = true)]
async fn another_configuration_restarts_the_picker_only(#[case] field: &str, #[case] value: &str) {
    let machine = machine().await;
    let (engines, pickers) = pods(&machine.server);
    let config = get(&machine, "configmaps", "chat-epp-config")["data"].clone();
    machine.world.edit(ROLES, "chat", |service| service["spec"]["roles"][2][field] = json!(value));
    let restarted = |server: &Server| {
        let now = pods(server).1;
        (now.len() == 1 && now != pickers).then_some(())
    };
    machine.until("another picker", &restarted).await;
    machine.ready("chat").await;
    assert_eq!(pods(&machine.server).0, engines, "no engine is restarted");
    assert_ne!(get(&machine, "configmaps", "chat-epp-config")["data"], config);
    // And back.
    machine.world.edit(ROLES, "chat", |service| service["spec"] = pair_with_router()["spec"].clone());
    machine
        .until("the configuration that was", &|server: &Server| {
            (server.get("configmaps", "default", "chat-epp-config")?["data"] == config).then_some(())
        })
        .await;
    machine.ready("chat").await;
    assert_eq!(pods(&machine.server).0, engines);
}

/// What a controller of Gateways writes into the status of a route.
fn answered(machine: &Machine, status: &str, reason: &str) {
    let mut route = get(machine, ROUTES, "chat-httproute").as_ref().clone();
    let accepted = json!({"type": "Accepted", "status": status, "reason": reason, "message": "as it is",
        "observedGeneration": route["metadata"]["generation"], "lastTransitionTime": "2026-01-01T00:00:00Z"});
    route["status"] = json!({"parents": [{"parentRef": {"name": "gateway"}, "controllerName": "a.example/b", "conditions": [accepted]}]});
    machine.server.update_status(ROUTES, route).unwrap();
}

// spec: TOP-88
#[tokio::test(start_paused = true)]
async fn what_a_gateway_says_of_the_route_is_told() {
    let machine = machine().await;
    let told = |message: &'static str| {
        move |server: &Server| (condition(server, "chat", "RouterReady")?["message"] == message).then_some(())
    };
    // Nobody serves the Gateway, and nobody is waited for.
    machine
        .until(
            "silence",
            &told("the router is ready; no Gateway has said anything of HTTPRoute default/chat-httproute"),
        )
        .await;
    answered(&machine, "False", "NotAllowedByListeners");
    let refused = "HTTPRoute default/chat-httproute is not taken by Gateway gateway: NotAllowedByListeners: as it is";
    machine.until("the refusal", &told(refused)).await;
    assert_eq!(machine.condition("chat", "Ready", "RouteNotAccepted").await["message"], refused);
    assert_eq!(condition(&machine.server, "chat", "Active").unwrap()["status"], "True", "engines answer as before");
    answered(&machine, "True", "Accepted");
    machine.until("the acceptance", &told("the router is ready; Gateway gateway leads to it")).await;
    machine.ready("chat").await;
}

/// The operator takes the image of its pickers from its own Pod, with the rights that it has.
#[tokio::test(start_paused = true)]
async fn pickers_run_the_operators_own_image() {
    let machine = Machine::with_gpus(8);
    let spec = json!({"containers": [{"name": "mesh", "image": "mesh:1"}, {"name": "x", "image": "registry.example/ostler:9", "args": ["operator"]}]});
    let pod = json!({"metadata": {"namespace": "default", "name": "ostler-operator-0"}, "spec": spec});
    machine.server.create("pods", pod).unwrap();
    let client = || kube::Client::new(machine.server.router(), "default");
    assert_eq!(
        operator::own_image(client(), "default", "ostler-operator-0").await.as_deref(),
        Some("registry.example/ostler:9")
    );
    assert_eq!(operator::own_image(client(), "default", "another").await, None);
}

// spec: TOP-76
#[tokio::test(start_paused = true)]
async fn a_router_that_is_removed_leaves_nothing() {
    let machine = machine().await;
    let engines = pods(&machine.server).0;
    machine.world.edit(ROLES, "chat", |service| {
        service["spec"]["roles"][2].as_object_mut().unwrap().remove("httproute");
    });
    machine.until("no route", &|server| server.get(ROUTES, "default", "chat-httproute").is_none().then_some(())).await;
    assert_eq!(there(&machine.server).len(), KINDS.len() - 1);
    machine.world.edit(ROLES, "chat", |service| {
        service["spec"]["roles"].as_array_mut().unwrap().truncate(2);
    });
    machine.until("no router", &|server| there(server).is_empty().then_some(())).await;
    let service = machine.ready("chat").await;
    assert!(service["status"]["components"].get("entry").is_none());
    assert!(condition(&machine.server, "chat", "RouterReady").is_none());
    machine.until("no picker", &|server| pods(server).1.is_empty().then_some(())).await;
    assert_eq!(pods(&machine.server).0, engines);
}

// spec: TOP-71
#[tokio::test(start_paused = true)]
async fn what_a_router_needs_may_come_later() {
    let neighbours = vec![api::neighbours::leader_worker_set_crd(), api::neighbours::pod_group_crd()];
    let machine = Machine::of(32, [api::crds(), neighbours].concat());
    machine.server.create(ROLES, pair_with_router()).unwrap();
    let told = machine.condition("chat", "RouterReady", "KindMissing").await;
    assert_eq!(
        told["message"],
        "the cluster does not serve InferencePool and HTTPRoute; install the Gateway API Inference Extension \
         (inference.networking.k8s.io) and the Gateway API (gateway.networking.k8s.io) to run this service"
    );
    machine.condition("chat", "Active", "MinimumReady").await;
    assert_eq!(there(&machine.server).len(), KINDS.len() - 2, "everything else goes on");
    machine.server.create(DEFINITIONS, api::neighbours::inference_pool_crd()).unwrap();
    machine.until("the pool", &|server| server.get(POOLS, "default", "chat-pool")).await;
    let told = machine.condition("chat", "RouterReady", "KindMissing").await;
    assert!(told["message"].as_str().unwrap().contains("serve HTTPRoute;"), "{told}");
    machine.server.create(DEFINITIONS, api::neighbours::http_route_crd()).unwrap();
    machine.ready("chat").await;
    assert_eq!(there(&machine.server).len(), KINDS.len());
}

/// Kinds of which only our own objects are watched, and one of which all are.
// spec: TOP-76
#[rstest]
#[case::config("configmaps", json!({"metadata": {"name": "chat-epp-config"}, "data": {"mine": "x"}}))]
#[case::account("serviceaccounts", json!({"metadata": {"name": "chat-epp"}}))]
#[case::role("roles.rbac.authorization.k8s.io", json!({"metadata": {"name": "chat-epp"}, "rules": []}))]
#[case::pool(POOLS, json!({"metadata": {"name": "chat-pool"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "targetPorts": [{"number": 1}]}}))]
#[tokio::test(start_paused = true)]
async fn an_object_of_somebody_else_is_not_touched(#[case] resource: &str, #[case] mut foreign: Value) {
    let machine = Machine::with_gpus(32);
    foreign["metadata"]["namespace"] = json!("default");
    let name = foreign["metadata"]["name"].as_str().unwrap().to_owned();
    machine.server.create(resource, foreign).unwrap();
    let before = get(&machine, resource, &name);
    machine.server.create(ROLES, pair_with_router()).unwrap();
    let told = machine.condition("chat", "RouterReady", "ObjectNotOurs").await;
    assert!(told["message"].as_str().unwrap().contains(&name), "{told}");
    machine.condition("chat", "Active", "MinimumReady").await;
    assert_eq!(get(&machine, resource, &name), before);
    machine.server.delete(resource, "default", &name, None).unwrap();
    machine.ready("chat").await;
    assert_ne!(get(&machine, resource, &name)["metadata"]["uid"], before["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn what_others_change_is_put_back() {
    let machine = machine().await;
    let fields: BTreeMap<&str, &str> =
        [("roles.rbac.authorization.k8s.io", "rules"), ("configmaps", "data"), (POOLS, "spec")].into();
    for (resource, field) in fields {
        let name = KINDS.iter().find(|(kind, _)| *kind == resource).unwrap().1;
        let before = get(&machine, resource, name);
        let mut edited = (*before).clone();
        match field {
            "rules" => edited["rules"][0]["verbs"] = json!(["*"]),
            "data" => edited["data"]["config.yaml"] = json!("x"),
            _ => edited["spec"]["targetPorts"] = json!([{"number": 1}]),
        }
        machine.server.update(resource, edited).unwrap();
        let restored = |server: &Server| (server.get(resource, "default", name)?[field] == before[field]).then_some(());
        machine.until(&format!("{resource} as it was"), &restored).await;
    }
}

/// Not even a look at what is not watched.
#[tokio::test(start_paused = true)]
async fn a_router_that_stands_asks_for_nothing() {
    let machine = machine().await;
    machine.world.quiet().await;
    let before = machine.world.requests();
    let mut deployment = (*get(&machine, "deployments.apps", "chat-epp")).clone();
    deployment["metadata"]["labels"]["example.com/touched"] = json!("yes");
    machine.server.update("deployments.apps", deployment).unwrap();
    machine.world.quiet().await;
    assert!(ready(&machine.server, "chat").is_some());
    assert_eq!(machine.world.requests(), before);
}
