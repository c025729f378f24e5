//! Routers: their rights are given by an operator that has no more itself, and their objects pass the schemas of upstream.

use kube::api::ListParams;
use serde_json::{Value, json};

use super::gangs::role;
use super::world::{DEPLOYMENTS, Objects, PODS, ROLES, SERVICES, SETS, World, eventually, named};

const NAMESPACE: &str = "routers";
const NAME: &str = "chat";
const POOLS: (&str, &str) = ("inferencepools.inference.networking.k8s.io", "v1");
const ROUTES: (&str, &str) = ("httproutes.gateway.networking.k8s.io", "v1");
const RIGHTS: (&str, &str) = ("roles.rbac.authorization.k8s.io", "v1");
const BINDINGS: (&str, &str) = ("rolebindings.rbac.authorization.k8s.io", "v1");
const CONFIGS: (&str, &str) = ("configmaps", "v1");
const ACCOUNTS: (&str, &str) = ("serviceaccounts", "v1");

fn service(roles: &[Value]) -> Value {
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": {"roles": roles}})
}

fn engines() -> Vec<Value> {
    vec![role("prefill", "prefiller", 1, 1, 1), role("decode", "decoder", 1, 1, 1)]
}

fn router(strategy: &str) -> Value {
    let rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}], "timeouts": {"request": "0s"}});
    json!({"name": "entry", "componentType": "router", "strategy": strategy, "httproute": {
        "parentRefs": [{"name": "gateway", "namespace": "infra"}], "hostnames": ["chat.example.com"], "rules": [rule]}})
}

async fn replace(world: &World, roles: &[Value]) {
    world.patch(ROLES, NAMESPACE, NAME, &json!({"spec": {"roles": roles}})).await;
}

fn uids(found: &Objects) -> Vec<Value> {
    found.values().map(|object| object["metadata"]["uid"].clone()).collect()
}

// spec: TOP-76
// spec: TOP-86
// spec: TOP-89
// spec: TOP-90
pub(super) async fn a_router_comes_up_and_goes(world: &World) {
    world.namespace(NAMESPACE).await;
    world.apply(&service(&[engines(), vec![router("pd-disaggregation")]].concat())).await;
    world.condition(ROLES, NAMESPACE, NAME, ("Active", "True"), "").await;
    world
        .condition(ROLES, NAMESPACE, NAME, ("RouterReady", "False"), "does not serve InferencePool and HTTPRoute")
        .await;
    let mut definitions = world.cluster.gateway_definitions().unwrap();
    if definitions.len() < 2 {
        eprintln!("         no source of the Gateway API and its extension: definitions are our own");
        definitions = vec![api::neighbours::inference_pool_crd(), api::neighbours::http_route_crd()];
    }
    world.cluster.define(&definitions).await.unwrap();
    world.condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    let pool = world.get(POOLS, NAMESPACE, "chat-pool").await;
    assert_eq!(pool["spec"]["endpointPickerRef"]["port"]["number"], 9002);
    let route = world.get(ROUTES, NAMESPACE, "chat-httproute").await;
    let rule = &route["spec"]["rules"][0];
    assert_eq!(
        (&rule["matches"][0]["path"]["value"], &rule["backendRefs"][0]["name"]),
        (&json!("/v1"), &json!("chat-pool"))
    );
    what_the_picker_may_do(world).await;

    let sets = world.until("two sets", SETS, NAMESPACE, |found| found.len() == 2).await;
    let template = world.get(DEPLOYMENTS, NAMESPACE, "chat-epp").await["spec"]["template"].clone();
    replace(world, &[engines(), vec![router("queue-size")]].concat()).await;
    world
        .until("another picker", DEPLOYMENTS, NAMESPACE, |found| {
            let now = &named(found, "chat-epp")["spec"]["template"];
            now.is_object() && *now != template
        })
        .await;
    world.condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    let after = world.until("two sets", SETS, NAMESPACE, |found| found.len() == 2).await;
    let generations =
        |found: &Objects| -> Vec<Value> { found.values().map(|set| set["metadata"]["generation"].clone()).collect() };
    assert_eq!((uids(&sets), generations(&sets)), (uids(&after), generations(&after)));

    replace(world, &engines()).await;
    world.nothing_left(NAMESPACE, &[DEPLOYMENTS, POOLS, ROUTES, RIGHTS, BINDINGS]).await;
    let gone = |name: &'static str| move |found: &Objects| !found.contains_key(name);
    world.until("no configuration", CONFIGS, NAMESPACE, gone("chat-epp-config")).await;
    world.until("no account", ACCOUNTS, NAMESPACE, gone("chat-epp")).await;
    world.condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    world.delete(ROLES, NAMESPACE, NAME).await;
    world.nothing_left(NAMESPACE, &[ROLES, SETS, PODS, SERVICES]).await;
}

/// It sees the Pods of its namespace and its own pool, and nothing else.
async fn what_the_picker_may_do(world: &World) {
    let picker = world.cluster.account(NAMESPACE, "chat-epp").await.unwrap();
    let list = async |(resource, version): (&str, &str), namespace: &str, fields: &str| {
        let api = realcluster::resource(&picker.client, resource, version, namespace);
        match api.list(&ListParams::default().fields(fields)).await {
            Ok(found) => found.items.len().to_string(),
            Err(kube::Error::Api(status)) => status.code.to_string(),
            Err(error) => error.to_string(),
        }
    };
    // The API server learns of a role after it has stored it, and a Pod may be going yet.
    for (kind, fields, expected) in [(POOLS, "metadata.name=chat-pool", "1"), (PODS, "", "3")] {
        let what = format!("{expected} of {kind:?}");
        eventually(&what, async || (list(kind, NAMESPACE, fields).await == expected).then_some(())).await;
    }
    for (kind, namespace) in
        [(POOLS, NAMESPACE), (PODS, "default"), (("secrets", "v1"), NAMESPACE), (CONFIGS, NAMESPACE)]
    {
        assert_eq!(list(kind, namespace, "").await, "403", "{kind:?} in {namespace}");
    }
}
