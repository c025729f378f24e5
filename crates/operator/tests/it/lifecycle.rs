//! What becomes of what a role-based service made: rollouts, scaling, pruning, and what others do behind its back.

use std::collections::BTreeMap;

use embedded::Server;
use serde_json::{Value, json};

use crate::cluster::ROLES;
use crate::machine::{DEFINITIONS, GROUPS, Machine, SETS, condition, ready, role, roles, story_4};

const REVISIONS: &str = "controllerrevisions.apps";

fn image(object: &Value) -> &str {
    object["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

/// Image of each LeaderWorkerSet, by name.
fn images(server: &Server) -> Vec<String> {
    let told = |set: &std::sync::Arc<Value>| format!("{} {}", set["metadata"]["name"].as_str().unwrap(), image(set));
    server.list(SETS).iter().map(told).collect()
}

fn set_image(machine: &Machine, name: &str, image: &str) {
    machine.world.edit(ROLES, name, |service| {
        for role in service["spec"]["roles"].as_array_mut().unwrap() {
            role["template"]["spec"]["containers"][0]["image"] = json!(image);
        }
    });
}

/// At most one LeaderWorkerSet is not ready.
fn one_at_a_time(server: &Server) {
    let unready = server.list(SETS).into_iter().filter(|set| set["status"]["readyReplicas"] != 1).count();
    assert!(unready <= 1, "{:#?}", images(server));
}

/// Three replicas of one Pod each, which says when it is ready.
async fn three_workers() -> Machine {
    let machine = Machine::with_gpus(32);
    let mut worker = role("w", "worker", 3, 1, 8);
    worker["template"]["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/health", "port": 8000}, "initialDelaySeconds": 5});
    machine.server.create(ROLES, roles("chat", vec![worker])).unwrap();
    machine.ready("chat").await;
    machine
}

// spec: TOP-74
// spec: TOP-75
#[tokio::test(start_paused = true)]
async fn a_new_template_goes_from_replica_to_replica() {
    let machine = three_workers().await;
    set_image(&machine, "chat", "engine:2");
    let service = machine.until_with("the rollout", &|server| ready(server, "chat"), &one_at_a_time).await;
    assert_eq!(images(&machine.server), ["chat-w-0 engine:2", "chat-w-1 engine:2", "chat-w-2 engine:2"]);
    assert!(service["status"]["rollouts"].is_null());
    assert_eq!(machine.names(REVISIONS).len(), 2);
}

// spec: TOP-75
// spec: TOP-83
#[tokio::test(start_paused = true)]
async fn a_rollout_stops_at_the_first_bad_replica_and_can_be_undone() {
    let machine = three_workers().await;
    let before = machine.service("chat")["spec"].clone();
    set_image(&machine, "chat", "bad");
    let probe = |server: &Server| {
        let failed = condition(server, "chat", "Failed")?;
        (failed["status"] == "True").then_some(failed)
    };
    let failed = machine.until_with("the failure", &probe, &one_at_a_time).await;
    assert_eq!(failed["reason"], "CrashLoop");
    assert_eq!(
        images(&machine.server),
        ["chat-w-0 bad", "chat-w-1 vllm/vllm-openai:v0.11.0", "chat-w-2 vllm/vllm-openai:v0.11.0"]
    );
    let service = machine.service("chat");
    assert_eq!(service["status"]["rollouts"]["w"], json!({"replicas": 3, "updatedReplicas": 1, "readyBefore": 3}));
    assert_eq!(service["status"]["components"]["w"]["phase"], "Failed");
    assert_eq!(condition(&machine.server, "chat", "Active").unwrap()["status"], "True", "two of three answer");

    let revisions = machine.server.list(REVISIONS);
    let first = revisions.iter().find(|one| one["revision"] == 1).unwrap();
    assert_eq!(operator::revisions::restored(&service["spec"], first), before);
    machine.world.edit(ROLES, "chat", |service| service["spec"] = before.clone());
    let service = machine.until_with("the way back", &|server| ready(server, "chat"), &one_at_a_time).await;
    assert_eq!(service["status"]["components"]["w"]["phase"], "Running");
    let revisions: Vec<i64> =
        machine.server.list(REVISIONS).iter().map(|one| operator::revisions::number(one)).collect();
    assert_eq!(revisions.iter().max(), Some(&3), "the first one is the newest again: {revisions:?}");
    assert_eq!(revisions.len(), 2);
}

/// Ready as soon as it runs, it ends a moment later: the next replica is not touched meanwhile.
#[tokio::test(start_paused = true)]
async fn an_engine_without_a_probe_has_to_prove_itself() {
    let machine = Machine::with_gpus(32);
    machine.server.create(ROLES, roles("chat", vec![role("w", "worker", 3, 1, 8)])).unwrap();
    machine.ready("chat").await;
    set_image(&machine, "chat", "bad");
    let probe = |server: &Server| (condition(server, "chat", "Failed")?["status"] == "True").then_some(());
    machine.until("the failure", &probe).await;
    assert_eq!(images(&machine.server).iter().filter(|one| one.ends_with(" bad")).count(), 1);
    set_image(&machine, "chat", "engine:2");
    machine.ready("chat").await;
    assert!(images(&machine.server).iter().all(|one| one.ends_with("engine:2")));
}

#[tokio::test(start_paused = true)]
async fn a_paused_rollout_goes_on_when_it_is_resumed() {
    let machine = three_workers().await;
    let pause =
        |value: Value| machine.world.edit(ROLES, "chat", |service| service["metadata"]["annotations"] = value.clone());
    pause(json!({"fusioninfer.io/rollout-paused": "true"}));
    set_image(&machine, "chat", "engine:2");
    machine.condition("chat", "Ready", "RolloutPaused").await;
    assert!(images(&machine.server).iter().all(|one| one.ends_with("v0.11.0")));
    pause(json!({}));
    machine.ready("chat").await;
    assert!(images(&machine.server).iter().all(|one| one.ends_with("engine:2")));
}

/// The waiting replica keeps nobody waiting, and its room is nobody's loss.
#[tokio::test(start_paused = true)]
async fn a_replica_without_room_does_not_stop_a_rollout() {
    let machine = Machine::with_gpus(16);
    machine.server.create(ROLES, roles("chat", vec![role("w", "worker", 3, 1, 8)])).unwrap();
    machine.condition("chat", "Ready", "Unschedulable").await;
    set_image(&machine, "chat", "engine:2");
    let done = |server: &Server| {
        let service = server.get(ROLES, "default", "chat")?;
        let all = images(server).iter().all(|one| one.ends_with("engine:2"));
        (all && service["status"]["components"]["w"]["readyReplicas"] == 2).then_some(())
    };
    machine.until("every replica to be updated", &done).await;
}

fn generations(server: &Server) -> BTreeMap<String, i64> {
    let told = |set: std::sync::Arc<Value>| {
        (set["metadata"]["name"].as_str().unwrap().to_owned(), set["metadata"]["generation"].as_i64().unwrap())
    };
    server.list(SETS).into_iter().map(told).collect()
}

fn scale(machine: &Machine, role: usize, replicas: i64) {
    machine
        .world
        .edit(ROLES, "deepseek-r1-disagg", |service| service["spec"]["roles"][role]["replicas"] = json!(replicas));
}

fn has_sets(server: &Server, count: usize) -> Option<()> {
    (server.list(SETS).len() == count).then_some(())
}

// spec: TOP-59
// spec: TOP-72
// spec: TOP-73
#[tokio::test(start_paused = true)]
async fn the_group_grows_before_its_replicas_and_shrinks_before_they_go() {
    let machine = Machine::with_gpus(112);
    let mut service = story_4();
    service["spec"]["schedulingStrategy"] = json!({"gangPolicy": "All"});
    machine.server.create(ROLES, service).unwrap();
    let group = |server: &Server| server.get(GROUPS, "default", "deepseek-r1-disagg");
    let tasks =
        |server: &Server| group(server).map_or(0, |group| group["spec"]["minTaskMember"].as_object().unwrap().len());
    // Never a set that the group does not know, never a group that asks for a set which is gone.
    let in_order = |server: &Server| assert!(server.list(SETS).len() <= tasks(server));
    machine.until_with("readiness", &|server| ready(server, "deepseek-r1-disagg"), &in_order).await;
    let before = generations(&machine.server);
    scale(&machine, 1, 3);
    machine
        .until_with(
            "a third decode",
            &|server| ready(server, "deepseek-r1-disagg").filter(|_| tasks(server) == 4),
            &in_order,
        )
        .await;
    let grown = group(&machine.server).unwrap();
    assert_eq!((&grown["spec"]["minMember"], &grown["spec"]["minTaskMember"]["decode-2"]), (&json!(14), &json!(4)));
    assert_eq!(grown["status"]["phase"], "Running", "what the scheduler writes stays");
    let after = generations(&machine.server);
    assert!(before.iter().all(|(name, generation)| after[name] == *generation), "nothing that runs was touched");

    let shrunk_first = |server: &Server| {
        let sets = server.list(SETS).len();
        assert!(sets == 4 || tasks(server) == 2, "{sets} sets, {} tasks", tasks(server));
    };
    scale(&machine, 1, 1);
    machine.until_with("one decode", &|server| has_sets(server, 2), &shrunk_first).await;
    assert_eq!(group(&machine.server).unwrap()["spec"]["minTaskMember"], json!({"prefill-0": 2, "decode-0": 4}));
}

// spec: TOP-76
#[tokio::test(start_paused = true)]
async fn what_is_wanted_no_more_goes_and_what_is_others_stays() {
    let machine = Machine::with_gpus(80);
    let foreign = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "deepseek-r1-disagg-prefill-7", "namespace": "default", "labels":
            {"fusioninfer.io/service": "deepseek-r1-disagg", "fusioninfer.io/role-name": "prefill"}},
        "spec": {"replicas": 0, "leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": []}}}}});
    machine.server.create(SETS, foreign).unwrap();
    machine.server.create(ROLES, story_4()).unwrap();
    machine.ready("deepseek-r1-disagg").await;
    // Without a decoder, and on one node: no gang is left.
    machine.world.edit(ROLES, "deepseek-r1-disagg", |service| {
        service["spec"]["roles"] = json!([role("prefill", "prefiller", 1, 1, 8)]);
    });
    machine.until("no group", &|server| server.list(GROUPS).is_empty().then_some(())).await;
    machine.ready("deepseek-r1-disagg").await;
    assert_eq!(machine.names(SETS), ["deepseek-r1-disagg-prefill-0", "deepseek-r1-disagg-prefill-7"]);
    let components = machine.service("deepseek-r1-disagg")["status"]["components"].clone();
    assert_eq!(components.as_object().unwrap().keys().collect::<Vec<_>>(), ["prefill"]);

    machine.server.delete(ROLES, "default", "deepseek-r1-disagg", None).unwrap();
    machine.until("no Pods", &|server| server.list("pods").is_empty().then_some(())).await;
    let kinds = [
        SETS,
        REVISIONS,
        "services",
        "backendpools.inference.networking.x-k8s.io",
        "llmusecasesets.inference.networking.x-k8s.io",
    ];
    let left: Vec<String> = kinds.iter().flat_map(|kind| machine.names(kind)).collect();
    assert_eq!(left, ["deepseek-r1-disagg-prefill-7"; 2], "with the Service that it has of its own");
}

// spec: TOP-76
#[tokio::test(start_paused = true)]
async fn a_foreign_group_of_the_name_is_not_touched_and_nothing_joins_it() {
    let machine = Machine::with_gpus(80);
    let foreign = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "deepseek-r1-disagg", "namespace": "default"}, "spec": {"minMember": 1}});
    let theirs = machine.server.create(GROUPS, foreign).unwrap();
    machine.server.create(ROLES, story_4()).unwrap();
    let told = machine.condition("deepseek-r1-disagg", "Initialized", "ObjectNotOurs").await;
    assert!(
        told["message"].as_str().unwrap().starts_with("PodGroup default/deepseek-r1-disagg belongs to somebody else"),
        "{told}"
    );
    assert_eq!(machine.names(SETS), [""; 0]);
    assert_eq!(machine.server.get(GROUPS, "default", "deepseek-r1-disagg").unwrap()["spec"], theirs["spec"]);
    // Once it is gone, the service goes on by itself.
    machine.server.delete(GROUPS, "default", "deepseek-r1-disagg", None).unwrap();
    machine.ready("deepseek-r1-disagg").await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_behind_our_back_is_put_back_and_fields_of_others_stay() {
    let machine = three_workers().await;
    let mut edited = (*machine.server.get(SETS, "default", "chat-w-1").unwrap()).clone();
    edited["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] = json!("other:1");
    edited["metadata"]["labels"]["example.com/team"] = json!("search");
    machine.server.update(SETS, edited).unwrap();
    machine.until("the image", &|server| images(server).iter().all(|one| one.ends_with("v0.11.0")).then_some(())).await;
    machine.ready("chat").await;
    let set = machine.server.get(SETS, "default", "chat-w-1").unwrap();
    assert_eq!(set["metadata"]["labels"]["example.com/team"], "search");
    machine.server.delete(SETS, "default", "chat-w-1", None).unwrap();
    machine.until("a new one", &|server| has_sets(server, 3)).await;
    machine.ready("chat").await;
}

// spec: TOP-77
#[tokio::test(start_paused = true)]
async fn a_lost_pod_is_the_sets_affair() {
    let machine = Machine::with_gpus(80);
    machine.server.create(ROLES, story_4()).unwrap();
    machine.ready("deepseek-r1-disagg").await;
    let before = (
        generations(&machine.server),
        machine.server.get(GROUPS, "default", "deepseek-r1-disagg").unwrap()["spec"].clone(),
    );
    let worker = "deepseek-r1-disagg-decode-0-0-1";
    let uid = machine.server.get("pods", "default", worker).unwrap()["metadata"]["uid"].clone();
    machine.server.delete("pods", "default", worker, None).unwrap();
    let back = |server: &Server| {
        let pod = server.get("pods", "default", worker)?;
        (pod["metadata"]["uid"] != uid).then_some(())
    };
    machine.until("another Pod", &back).await;
    machine.ready("deepseek-r1-disagg").await;
    let after = (
        generations(&machine.server),
        machine.server.get(GROUPS, "default", "deepseek-r1-disagg").unwrap()["spec"].clone(),
    );
    assert_eq!(before, after);
}

// spec: TOP-71
#[tokio::test(start_paused = true)]
async fn neighbours_come_and_go() {
    let machine = Machine::of(80, [api::crds(), vec![api::neighbours::leader_worker_set_crd()]].concat());
    machine.server.create(ROLES, story_4()).unwrap();
    machine.server.create(ROLES, roles("alone", vec![role("w", "worker", 1, 1, 8)])).unwrap();
    // What needs no gang needs no Volcano.
    machine.ready("alone").await;
    let told = machine.condition("deepseek-r1-disagg", "Initialized", "KindMissing").await;
    assert_eq!(
        told["message"],
        "the cluster does not serve PodGroup; install Volcano (scheduling.volcano.sh) to run this service"
    );
    assert_eq!(machine.names(SETS), ["alone-w-0"], "no Pod waits for a group that cannot be");
    machine.server.delete(ROLES, "default", "alone", None).unwrap();
    machine.until("room", &|server| server.list("pods").is_empty().then_some(())).await;
    machine.server.create(DEFINITIONS, api::neighbours::pod_group_crd()).unwrap();
    machine.ready("deepseek-r1-disagg").await;
    machine.server.delete(DEFINITIONS, "", "leaderworkersets.leaderworkerset.x-k8s.io", None).unwrap();
    let told = machine.condition("deepseek-r1-disagg", "Ready", "KindMissing").await;
    assert!(told["message"].as_str().unwrap().contains("LeaderWorkerSet (leaderworkerset.x-k8s.io)"), "{told}");
    machine.server.create(DEFINITIONS, api::neighbours::leader_worker_set_crd()).unwrap();
    machine.ready("deepseek-r1-disagg").await;
}

/// Whoever installs one is not told of the next only then.
// spec: TOP-71
#[tokio::test(start_paused = true)]
async fn every_missing_neighbour_is_named_at_once() {
    let machine = Machine::of(80, api::crds());
    machine.server.create(ROLES, story_4()).unwrap();
    let told = machine.condition("deepseek-r1-disagg", "Initialized", "KindMissing").await;
    assert_eq!(
        told["message"],
        "the cluster does not serve PodGroup and LeaderWorkerSet; install Volcano (scheduling.volcano.sh) and \
         LeaderWorkerSet (leaderworkerset.x-k8s.io) to run this service"
    );
}

/// Two of three have lost their place for good, one of them with the new image: the last that answers is not taken down,
/// and the condition says what it would take.
#[tokio::test(start_paused = true)]
async fn a_rollout_that_lost_its_room_says_what_it_waits_for() {
    let mut machine = three_workers().await;
    set_image(&machine, "chat", "engine:2");
    let one_done =
        |server: &Server| (images(server).iter().filter(|one| one.ends_with("engine:2")).count() == 1).then_some(());
    machine.until("the first replica", &one_done).await;
    let left = machine.server.get("pods", "default", "chat-w-2-0").unwrap()["spec"]["nodeName"].clone();
    for node in machine.names("nodes").into_iter().filter(|name| left != **name) {
        machine.server.delete("nodes", "", &node, None).unwrap();
    }
    let floor = |server: &Server| {
        let ready = condition(server, "chat", "Ready")?;
        ready["message"].as_str()?.contains("no other is taken down before 3 are ready (1 now)").then_some(ready)
    };
    let told = machine.until("the reason", &floor).await;
    assert_eq!(told["reason"], "Unschedulable", "{told}");
    assert_eq!(condition(&machine.server, "chat", "Active").unwrap()["status"], "True");
    machine.grow_again(24);
    machine.ready("chat").await;
    assert!(images(&machine.server).iter().all(|one| one.ends_with("engine:2")));
}

// spec: TOP-74
// spec: TOP-84
#[tokio::test(start_paused = true)]
async fn without_an_edit_nothing_is_written() {
    let machine = three_workers().await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let before = machine.world.requests().0;
    tokio::time::sleep(std::time::Duration::from_secs(3000)).await;
    assert_eq!(machine.world.requests().0, before);
}
