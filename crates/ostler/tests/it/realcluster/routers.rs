//! Routers: the operator grants them a subset of its permissions, and their objects are valid for the upstream schemas.

use kube::api::ListParams;
use serde_json::{Value, json};

use super::gangs::role;
use super::test_cluster::{
    DEPLOYMENTS, Objects, PODS, ROLES, SERVICES, SETS, TestCluster, eventually, object_named, wait_for_empty_diff,
};

const NAMESPACE: &str = "routers";
const NAME: &str = "chat";
const POOLS: (&str, &str) = ("inferencepools.inference.networking.k8s.io", "v1");
const BACKEND_POOLS: (&str, &str) = ("backendpools.inference.networking.x-k8s.io", "v1alpha1");
const USE_CASE_SETS: (&str, &str) = ("llmusecasesets.inference.networking.x-k8s.io", "v1alpha1");
const USE_CASES: (&str, &str) = ("llmusecases.inference.networking.x-k8s.io", "v1alpha1");
const ROUTES: (&str, &str) = ("httproutes.gateway.networking.k8s.io", "v1");
const RBAC_ROLES: (&str, &str) = ("roles.rbac.authorization.k8s.io", "v1");
pub(super) const BINDINGS: (&str, &str) = ("rolebindings.rbac.authorization.k8s.io", "v1");
const CONFIG_MAPS: (&str, &str) = ("configmaps", "v1");
const SERVICE_ACCOUNTS: (&str, &str) = ("serviceaccounts", "v1");

fn service(roles: &[Value]) -> Value {
    json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": {"roles": roles}})
}

fn engines() -> Vec<Value> {
    vec![role("prefill", "prefiller", 1, 1, 1), role("decode", "decoder", 1, 1, 1)]
}

pub(super) fn router(strategy: &str) -> Value {
    let rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}], "timeouts": {"request": "0s"}});
    json!({"name": "entry", "componentType": "router", "strategy": strategy, "httproute": {
        "parentRefs": [{"name": "gateway", "namespace": "infra"}], "hostnames": ["chat.example.com"], "rules": [rule]}})
}

async fn replace_roles(test_cluster: &TestCluster, roles: &[Value]) {
    test_cluster.patch(ROLES, NAMESPACE, NAME, &json!({"spec": {"roles": roles}})).await;
}

fn uids(objects: &Objects) -> Vec<Value> {
    objects.values().map(|object| object["metadata"]["uid"].clone()).collect()
}

// spec: TOP-76
// spec: TOP-86
// spec: TOP-89
// spec: TOP-90
pub(super) async fn router_lifecycle(test_cluster: &TestCluster) {
    test_cluster.namespace(NAMESPACE).await;
    test_cluster.apply(&service(&[engines(), vec![router("pd-disaggregation")]].concat())).await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Active", "True"), "").await;
    test_cluster
        .wait_for_condition(
            ROLES,
            NAMESPACE,
            NAME,
            ("RouterReady", "False"),
            "does not serve InferencePool and HTTPRoute",
        )
        .await;
    let mut definitions = test_cluster.cluster.gateway_definitions().unwrap();
    if definitions.len() < 5 {
        eprintln!("         no source of the Gateway API and its inference extension: using built-in definitions");
        definitions = vec![
            api::integrations::inference_pool_crd(),
            api::integrations::gateway_class_crd(),
            api::integrations::gateway_crd(),
            api::integrations::http_route_crd(),
            api::integrations::reference_grant_crd(),
        ];
    }
    test_cluster.cluster.apply_definitions(&definitions).await.unwrap();
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    let pool = test_cluster.get(POOLS, NAMESPACE, "chat-pool").await;
    assert_eq!(pool["spec"]["endpointPickerRef"]["port"]["number"], 9002);
    let route = test_cluster.get(ROUTES, NAMESPACE, "chat-httproute").await;
    let rule = &route["spec"]["rules"][0];
    assert_eq!(
        (&rule["matches"][0]["path"]["value"], &rule["backendRefs"][0]["name"]),
        (&json!("/v1"), &json!("chat-pool"))
    );
    check_picker_permissions(test_cluster).await;
    wait_for_empty_diff(test_cluster, NAMESPACE).await;

    let sets = test_cluster.wait_for("two sets", SETS, NAMESPACE, |objects| objects.len() == 2).await;
    let template = test_cluster.get(DEPLOYMENTS, NAMESPACE, "chat-epp").await["spec"]["template"].clone();
    replace_roles(test_cluster, &[engines(), vec![router("queue-size")]].concat()).await;
    test_cluster
        .wait_for("the updated picker", DEPLOYMENTS, NAMESPACE, |objects| {
            let now = &object_named(objects, "chat-epp")["spec"]["template"];
            now.is_object() && *now != template
        })
        .await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    let updated_sets = test_cluster.wait_for("two sets", SETS, NAMESPACE, |objects| objects.len() == 2).await;
    let generations = |objects: &Objects| -> Vec<Value> {
        objects.values().map(|set| set["metadata"]["generation"].clone()).collect()
    };
    assert_eq!((uids(&sets), generations(&sets)), (uids(&updated_sets), generations(&updated_sets)));

    replace_roles(test_cluster, &engines()).await;
    test_cluster.wait_for_deletion(NAMESPACE, &[DEPLOYMENTS, POOLS, ROUTES, RBAC_ROLES, BINDINGS]).await;
    let is_deleted = |name: &'static str| move |objects: &Objects| !objects.contains_key(name);
    test_cluster.wait_for("the deletion of the ConfigMap", CONFIG_MAPS, NAMESPACE, is_deleted("chat-epp-config")).await;
    test_cluster
        .wait_for("the deletion of the ServiceAccount", SERVICE_ACCOUNTS, NAMESPACE, is_deleted("chat-epp"))
        .await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, NAME, ("Ready", "True"), "").await;
    test_cluster.delete(ROLES, NAMESPACE, NAME).await;
    test_cluster.wait_for_deletion(NAMESPACE, &[ROLES, SETS, PODS, SERVICES]).await;
}

/// The picker can list the Pods and use cases of its namespace and its own pool, and nothing else.
async fn check_picker_permissions(test_cluster: &TestCluster) {
    let picker = test_cluster.cluster.service_account(NAMESPACE, "chat-epp").await.unwrap();
    let list = async |(resource, version): (&str, &str), namespace: &str, fields: &str| {
        let api = realcluster::dynamic_api(&picker.client, resource, version, namespace);
        match api.list(&ListParams::default().fields(fields)).await {
            Ok(objects) => objects.items.len().to_string(),
            Err(kube::Error::Api(status)) => status.code.to_string(),
            Err(error) => error.to_string(),
        }
    };
    // The authorizer observes a Role after it is stored, and a Pod may still be terminating.
    for (kind, fields, expected) in [
        (POOLS, "metadata.name=chat-pool", "1"),
        (PODS, "", "3"),
        (BACKEND_POOLS, "metadata.name=chat-pool", "0"),
        (USE_CASE_SETS, "", "0"),
        (USE_CASES, "", "0"),
    ] {
        let description = format!("{expected} of {kind:?}");
        eventually(&description, async || (list(kind, NAMESPACE, fields).await == expected).then_some(())).await;
    }
    for (kind, namespace) in [
        (POOLS, NAMESPACE),
        (BACKEND_POOLS, NAMESPACE),
        (USE_CASES, "default"),
        (PODS, "default"),
        (("secrets", "v1"), NAMESPACE),
        (CONFIG_MAPS, NAMESPACE),
    ] {
        assert_eq!(list(kind, namespace, "").await, "403", "{kind:?} in {namespace}");
    }
}
