//! Invalid role-based services: which are rejected, and how accepted ones are reported.

use rstest::rstest;
use serde_json::{Value, json};

use crate::simulated_cluster::{LEADER_WORKER_SETS, SimulatedCluster, role, service_with_roles};
use crate::test_cluster::{FUSIONINFER_SERVICES, TestCluster};

fn worker(name: &str) -> Value {
    role(name, "worker", 1, 1, 1)
}

fn service_with_incomplete_role(field: &str) -> Value {
    let mut incomplete_role = worker("b");
    incomplete_role.as_object_mut().unwrap().remove(field);
    service_with_roles("chat", vec![worker("a"), incomplete_role])
}

fn router(name: &str) -> Value {
    json!({"name": name, "componentType": "router"})
}

fn worker_with(field: &str, count: i64) -> Value {
    let mut role = worker("a");
    role[field] = if field == "multinode" { json!({"nodeCount": count}) } else { json!(count) };
    service_with_roles("chat", vec![role])
}

/// Returns a service with one worker and this `multinode`.
fn with_multinode(multinode: Value) -> Value {
    let mut service = worker_with("multinode", 1);
    service["spec"]["roles"][0]["multinode"] = multinode;
    service
}

#[rstest]
// spec: TOP-3
#[case::no_roles(json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
    "metadata": {"name": "chat", "namespace": "default"}, "spec": {}}), "spec.roles: Required value")]
#[case::no_name(service_with_incomplete_role("name"), "spec.roles[1].name: Required value")]
#[case::no_type(service_with_incomplete_role("componentType"), "spec.roles[1].componentType: Required value")]
// spec: TOP-4
#[case::no_such_type(service_with_roles("chat", vec![role("a", "cook", 1, 1, 1)]), "spec.roles[0].componentType: Unsupported value: \"cook\"")]
// spec: TOP-6
#[case::fewer_than_none(worker_with("replicas", -1), "spec.roles[0].replicas: Invalid value: -1")]
// spec: TOP-7
#[case::no_node_count(with_multinode(json!({})), "spec.roles[0].multinode.nodeCount: Required value")]
#[case::not_a_number(with_multinode(json!({"nodeCount": "2"})), "spec.roles[0].multinode.nodeCount: Invalid value: \"string\"")]
#[case::not_an_int32(with_multinode(json!({"nodeCount": 2_147_483_648_u32})), "spec.roles[0].multinode.nodeCount: Invalid value")]
#[case::on_no_node(worker_with("multinode", 0), "spec.roles[0].multinode.nodeCount: Invalid value: 0")]
// spec: TOP-13
#[case::two_of_one_name(service_with_roles("chat", vec![worker("a"), worker("a")]), "spec.roles[1]: Duplicate value")]
#[case::two_routers(service_with_roles("chat", vec![worker("a"), router("b"), router("c")]), "at most one role may be a router")]
#[case::too_long(service_with_roles("a-service-whose-name-leaves-no-room-for-roles", vec![worker("inference")]),
    "invalid: spec.roles: Invalid value: the composed name {service}-{role}-{replica} must have at most 50 characters")]
#[case::no_dns_label(service_with_roles("7b", vec![worker("a")]), "must start with a letter")]
// spec: TOP-9
#[case::no_template(service_with_incomplete_role("template"), "spec.roles[1]")]
// spec: TOP-39
#[case::reserved_label(
    worker_with_reserved_key("labels", "fusioninfer.io/service"),
    "template.metadata.labels[fusioninfer.io/service]: "
)]
#[case::reserved_annotation(
    worker_with_reserved_key("annotations", "leaderworkerset.sigs.k8s.io/size"),
    "template.metadata.annotations[leaderworkerset.sigs.k8s.io/size]: "
)]
#[tokio::test(start_paused = true)]
async fn rejects_invalid_roles(#[case] service: Value, #[case] expect: &str) {
    let test_cluster = TestCluster::with_catalog();
    let status = test_cluster.server.create(FUSIONINFER_SERVICES, service.clone()).expect_err(expect);
    assert_eq!(status.code, 422, "{}", status.message);
    assert!(status.message.contains(expect), "{}", status.message);
    assert_eq!(test_cluster.server.list(FUSIONINFER_SERVICES).len(), 0);
}

fn worker_with_reserved_key(field: &str, key: &str) -> Value {
    worker_with_template(|template| template["metadata"] = json!({field: {key: "x"}}))
}

fn worker_with_template(change: impl Fn(&mut Value)) -> Value {
    let mut service = service_with_roles("chat", vec![worker("a")]);
    change(&mut service["spec"]["roles"][0]["template"]);
    service
}

/// A template is free-form: errors that only planning finds are reported in a condition, and existing replicas keep
/// running.
#[rstest]
// spec: TOP-9
#[case::no_container(worker_with_template(|template| template["spec"] = json!({"containers": []})), "InvalidTemplate", "role a, template.spec.containers")]
// spec: TOP-39
#[case::worker_with_reserved_key(worker_with_template(|template| template["metadata"] = json!({"labels": {"fusioninfer.io/service": "x"}})), "ReservedMetadata",
    "role a, template.metadata.labels[fusioninfer.io/service]: the prefix of this key is reserved")]
#[case::reserved_by_sets(worker_with_template(|template| template["metadata"] = json!({"annotations": {"leaderworkerset.sigs.k8s.io/size": "9"}})),
    "ReservedMetadata", "role a, template.metadata.annotations[leaderworkerset.sigs.k8s.io/size]")]
#[tokio::test(start_paused = true)]
async fn reports_role_and_field_of_invalid_templates(
    #[case] service: Value,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let cluster = SimulatedCluster::with_gpus(8);
    cluster.server.create(FUSIONINFER_SERVICES, service.clone()).unwrap();
    let failed = cluster.wait_for_condition("chat", "Failed", reason).await;
    assert_eq!(failed["status"], "True");
    assert!(failed["message"].as_str().unwrap().starts_with(message), "{failed}");
    assert_eq!(cluster.service("chat")["status"]["components"]["a"]["phase"], "Failed");
    assert_eq!(cluster.object_names(LEADER_WORKER_SETS), [""; 0]);

    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |live| {
        live["spec"] = service_with_roles("chat", vec![worker("a")])["spec"].clone();
    });
    cluster.wait_until_ready("chat").await;
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |live| live["spec"] = service["spec"].clone());
    cluster.wait_for_condition("chat", "Failed", reason).await;
    assert_eq!(cluster.object_names(LEADER_WORKER_SETS), ["chat-a-0"]);
    assert_eq!(cluster.scheduled_pods(), ["a-0 1"]);
}

/// Both services create `a-b-c-0`; the second waits until the first is deleted, and reports the owner of the name.
#[tokio::test(start_paused = true)]
async fn second_service_with_the_same_workload_name_waits() {
    let cluster = SimulatedCluster::with_gpus(8);
    cluster.server.create(FUSIONINFER_SERVICES, service_with_roles("a", vec![worker("b-c")])).unwrap();
    cluster.wait_until_ready("a").await;
    cluster.server.create(FUSIONINFER_SERVICES, service_with_roles("a-b", vec![worker("c")])).unwrap();
    let condition = cluster.wait_for_condition("a-b", "Ready", "ObjectNotOurs").await;
    let message = "LeaderWorkerSet default/a-b-c-0 is already owned by InferenceService a";
    assert!(condition["message"].as_str().unwrap().starts_with(message), "{condition}");
    assert_eq!(crate::simulated_cluster::condition(&cluster.server, "a", "Ready").unwrap()["status"], "True");
    cluster.server.delete(FUSIONINFER_SERVICES, "default", "a", None).unwrap();
    cluster.wait_until_ready("a-b").await;
}
