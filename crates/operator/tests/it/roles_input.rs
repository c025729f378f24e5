//! Role-based services that are wrong: what is refused when they are written, and what is said of those that are there.

use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{ROLES, World};
use crate::machine::{Machine, SETS, condition, role, roles};

fn worker(name: &str) -> Value {
    role(name, "worker", 1, 1, 1)
}

fn without(field: &str) -> Value {
    let mut second = worker("b");
    second.as_object_mut().unwrap().remove(field);
    roles("chat", vec![worker("a"), second])
}

fn router(name: &str) -> Value {
    json!({"name": name, "componentType": "router"})
}

fn counted(field: &str, count: i64) -> Value {
    let mut role = worker("a");
    role[field] = if field == "multinode" { json!({"nodeCount": count}) } else { json!(count) };
    roles("chat", vec![role])
}

#[rstest]
// spec: TOP-3
#[case::no_roles(json!({"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
    "metadata": {"name": "chat", "namespace": "default"}, "spec": {}}), "spec.roles: Required value")]
#[case::no_name(without("name"), "spec.roles[1].name: Required value")]
#[case::no_type(without("componentType"), "spec.roles[1].componentType: Required value")]
// spec: TOP-4
#[case::no_such_type(roles("chat", vec![role("a", "cook", 1, 1, 1)]), "spec.roles[0].componentType: Unsupported value: \"cook\"")]
// spec: TOP-6
#[case::fewer_than_none(counted("replicas", -1), "spec.roles[0].replicas: Invalid value: -1")]
// spec: TOP-7
#[case::on_no_node(counted("multinode", 0), "spec.roles[0].multinode.nodeCount: Invalid value: 0")]
// spec: TOP-13
#[case::two_of_one_name(roles("chat", vec![worker("a"), worker("a")]), "spec.roles[1]: Duplicate value")]
#[case::two_routers(roles("chat", vec![worker("a"), router("b"), router("c")]), "at most one role may be a router")]
#[case::too_long(roles("a-service-whose-name-leaves-no-room-for-roles", vec![worker("inference")]),
    "invalid: spec.roles: Invalid value: the composed name {service}-{role}-{replica} must not be longer than 50 characters")]
#[case::no_dns_label(roles("7b", vec![worker("a")]), "must start with a letter")]
// spec: TOP-9
#[case::no_template(without("template"), "spec.roles[1]")]
// spec: TOP-39
#[case::reserved_label(
    reserved("labels", "fusioninfer.io/service"),
    "template.metadata.labels[fusioninfer.io/service]: "
)]
#[case::reserved_annotation(
    reserved("annotations", "leaderworkerset.sigs.k8s.io/size"),
    "template.metadata.annotations[leaderworkerset.sigs.k8s.io/size]: "
)]
#[tokio::test(start_paused = true)]
async fn refused_before_anything_is_made(#[case] service: Value, #[case] expect: &str) {
    let world = World::stocked();
    let status = world.server.create(ROLES, service.clone()).expect_err(expect);
    assert_eq!(status.code, 422, "{}", status.message);
    assert!(status.message.contains(expect), "{}", status.message);
    assert_eq!(world.server.list(ROLES).len(), 0);
}

fn reserved(field: &str, key: &str) -> Value {
    spoilt(|template| template["metadata"] = json!({field: {key: "x"}}))
}

fn spoilt(change: impl Fn(&mut Value)) -> Value {
    let mut service = roles("chat", vec![worker("a")]);
    change(&mut service["spec"]["roles"][0]["template"]);
    service
}

/// A template is free-form: what only laying it out finds is a condition, and what ran before goes on.
#[rstest]
// spec: TOP-9
#[case::no_container(spoilt(|template| template["spec"] = json!({"containers": []})), "InvalidTemplate", "role a, template.spec.containers")]
// spec: TOP-39
#[case::reserved(spoilt(|template| template["metadata"] = json!({"labels": {"fusioninfer.io/service": "x"}})), "ReservedMetadata",
    "role a, template.metadata.labels[fusioninfer.io/service]: the prefix is reserved")]
#[case::reserved_by_sets(spoilt(|template| template["metadata"] = json!({"annotations": {"leaderworkerset.sigs.k8s.io/size": "9"}})),
    "ReservedMetadata", "role a, template.metadata.annotations[leaderworkerset.sigs.k8s.io/size]")]
#[tokio::test(start_paused = true)]
async fn failed_with_role_and_field(#[case] service: Value, #[case] reason: &str, #[case] message: &str) {
    let machine = Machine::with_gpus(8);
    machine.server.create(ROLES, service.clone()).unwrap();
    let failed = machine.condition("chat", "Failed", reason).await;
    assert_eq!(failed["status"], "True");
    assert!(failed["message"].as_str().unwrap().starts_with(message), "{failed}");
    assert_eq!(machine.service("chat")["status"]["components"]["a"]["phase"], "Failed");
    assert_eq!(machine.names(SETS), [""; 0]);

    machine.world.edit(ROLES, "chat", |live| live["spec"] = roles("chat", vec![worker("a")])["spec"].clone());
    machine.ready("chat").await;
    machine.world.edit(ROLES, "chat", |live| live["spec"] = service["spec"].clone());
    machine.condition("chat", "Failed", reason).await;
    assert_eq!(machine.names(SETS), ["chat-a-0"]);
    assert_eq!(machine.placed(), ["a-0 1"]);
}

/// Both compose `a-b-c-0`; the second waits until the first has gone, and hears who has the name.
#[tokio::test(start_paused = true)]
async fn two_services_of_one_name() {
    let machine = Machine::with_gpus(8);
    machine.server.create(ROLES, roles("a", vec![worker("b-c")])).unwrap();
    machine.ready("a").await;
    machine.server.create(ROLES, roles("a-b", vec![worker("c")])).unwrap();
    let told = machine.condition("a-b", "Ready", "ObjectNotOurs").await;
    let words = "LeaderWorkerSet default/a-b-c-0 is made for InferenceService a already";
    assert!(told["message"].as_str().unwrap().starts_with(words), "{told}");
    assert_eq!(condition(&machine.server, "a", "Ready").unwrap()["status"], "True");
    machine.server.delete(ROLES, "default", "a", None).unwrap();
    machine.ready("a-b").await;
}
