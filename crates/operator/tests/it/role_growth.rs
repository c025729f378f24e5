//! Roles whose replicas change their number of nodes: an additional replica serves until an updated one is ready.

use std::sync::Arc;

use embedded::Server;
use operator::kinds::FUSIONINFER_SERVICE;
use operator::rollout_pause_annotation;
use rstest::rstest;
use serde_json::{Value, json};

use crate::preview::{changes, listing, preview};
use crate::simulated_cluster::{
    LEADER_WORKER_SETS, POD_GROUPS, SimulatedCluster, condition, ready_service, role, service_with_roles,
};
use crate::test_cluster::FUSIONINFER_SERVICES;

/// Returns a worker role of Pods with eight GPUs each, which use a whole node.
fn worker(replicas: i64, nodes: i64) -> Value {
    let mut worker = role("w", "worker", replicas, nodes, 8);
    worker["template"]["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/health", "port": 8000}, "initialDelaySeconds": 5});
    worker
}

/// Starts service `chat` on this number of nodes.
async fn cluster_with(nodes: usize, replicas: i64, nodes_per_replica: i64) -> SimulatedCluster {
    let cluster = SimulatedCluster::with_gpus(8 * nodes);
    create_chat(&cluster, replicas, nodes_per_replica).await;
    cluster
}

async fn create_chat(cluster: &SimulatedCluster, replicas: i64, nodes: i64) {
    cluster.server.create(FUSIONINFER_SERVICES, service_with_roles("chat", vec![worker(replicas, nodes)])).unwrap();
    cluster.wait_until_ready("chat").await;
}

fn set_role(cluster: &SimulatedCluster, replicas: i64, nodes: i64) {
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
        service["spec"]["roles"][0]["replicas"] = json!(replicas);
        service["spec"]["roles"][0]["multinode"]["nodeCount"] = json!(nodes);
    });
}

fn set_image(cluster: &SimulatedCluster, image: &str) {
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
        service["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"] = json!(image);
    });
}

/// Returns the leaders that serve requests.
fn serving_leaders(server: &Server) -> Vec<String> {
    let serves = |pod: &Arc<Value>| {
        pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
            && pod["metadata"]["labels"]["fusioninfer.io/service"] == "chat"
            && pod["metadata"]["deletionTimestamp"].is_null()
            && cluster::find_condition(&pod["status"]["conditions"], "Ready")
                .is_some_and(|ready| ready["status"] == "True")
    };
    let name = |pod: Arc<Value>| pod["metadata"]["name"].as_str().unwrap().to_owned();
    server.list("pods").into_iter().filter(serves).map(name).collect()
}

/// Checks that a replica serves, and that nothing else is reported.
fn assert_served(server: &Server) {
    assert!(!serving_leaders(server).is_empty(), "no replica serves: {:?}", sets(server));
    let status = server.get(FUSIONINFER_SERVICES, "default", "chat").unwrap()["status"].clone();
    let condition = |kind: &str| cluster::find_condition(&status["conditions"], kind).cloned();
    assert_eq!(condition("Active").unwrap()["status"], "True", "{status:#}");
    for kind in ["Failed", "NoSurgeCapacity"] {
        assert_eq!(condition(kind), None);
    }
}

/// Returns name and number of Pods of all LeaderWorkerSets that are not terminating.
fn sets(server: &Server) -> Vec<String> {
    let describe = |set: Arc<Value>| {
        format!("{} {}", set["metadata"]["name"].as_str().unwrap(), set["spec"]["leaderWorkerTemplate"]["size"])
    };
    let sets = server.list(LEADER_WORKER_SETS).into_iter();
    sets.filter(|set| set["metadata"]["deletionTimestamp"].is_null()).map(describe).collect()
}

/// Waits until the service is ready and only these LeaderWorkerSets exist, and checks `invariant` after every change.
async fn wait_for_sets(cluster: &SimulatedCluster, expected: &[&str], invariant: &dyn Fn(&Server)) {
    let is_updated = |server: &Server| (sets(server) == expected).then(|| ready_service(server, "chat")).flatten();
    let service = cluster.wait_for_with_invariant(&format!("{expected:?}"), &is_updated, invariant).await;
    assert!(service["status"]["rollouts"].is_null(), "{:#}", service["status"]);
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(sets(&cluster.server), expected);
    let surge = "fusioninfer.io/surge-replica";
    let is_surge = |set: &Arc<Value>| set["metadata"]["annotations"][surge].is_string();
    assert!(!cluster.server.list(LEADER_WORKER_SETS).iter().any(is_surge));
}

async fn wait_for_set(cluster: &SimulatedCluster, set: &str, invariant: &dyn Fn(&Server)) {
    let exists = |server: &Server| sets(server).contains(&set.to_owned()).then_some(());
    cluster.wait_for_with_invariant(set, &exists, invariant).await;
}

/// Waits until only the additional replica serves.
async fn wait_until_surge_serves(cluster: &SimulatedCluster) {
    let serves = |server: &Server| (serving_leaders(server) == ["chat-w-1-0"]).then_some(());
    cluster.wait_for_with_invariant("the additional replica", &serves, &assert_served).await;
}

fn ready_message(server: &Server) -> Option<String> {
    condition(server, "chat", "Ready")?["message"].as_str().map(str::to_owned)
}

#[rstest]
#[case::grows(1, 2)]
#[case::grows_in_a_gang(2, 3)]
#[case::shrinks(2, 1)]
#[tokio::test(start_paused = true)]
async fn replica_serves_until_one_of_another_size_is_ready(#[case] before: i64, #[case] after: i64) {
    let cluster = cluster_with(6, 1, before).await;
    set_role(&cluster, 1, after);
    let waits = |server: &Server| {
        ready_message(server).filter(|message| message.contains("additional") && message.contains("Pod chat-w-1-0"))
    };
    let message = cluster.wait_for_with_invariant("the additional replica", &waits, &assert_served).await;
    let expected = "Role w is updated once LeaderWorkerSet default/chat-w-1, an additional replica, is ready. \
        Rollout of role w: 0 of 1 replica is updated; Pod chat-w-1-0";
    assert!(message.starts_with(expected), "{message}");
    let component = cluster.service("chat")["status"]["components"]["w"].clone();
    assert_eq!((&component["readyReplicas"], &component["phase"]), (&json!(1), &json!("Running")));

    let serves = |server: &Server| ready_message(server).filter(|message| message.contains("serves until"));
    let message = cluster.wait_for_with_invariant("the update", &serves, &assert_served).await;
    let expected =
        "LeaderWorkerSet default/chat-w-1, an additional replica, serves until an updated replica of role w is ready. ";
    assert!(message.starts_with(expected), "{message}");
    wait_for_sets(&cluster, &[&format!("chat-w-0 {after}")], &assert_served).await;
    assert_eq!(cluster.scheduled_pods(), [format!("w-0 {after}")]);
    assert_eq!(cluster.object_names(POD_GROUPS).len(), usize::from(after > 1));
}

/// Returns service `chat` of a prefiller and a decoder, which are members of a gang. Each is (replicas, nodes).
fn pair(policy: &str, prefiller: (i64, i64), decoder: (i64, i64)) -> Value {
    let role = |kind: &str, (replicas, nodes): (i64, i64)| {
        let mut role = worker(replicas, nodes);
        (role["name"], role["componentType"]) = (json!(kind), json!(kind));
        role
    };
    let mut service = service_with_roles("chat", vec![role("prefiller", prefiller), role("decoder", decoder)]);
    service["spec"]["schedulingStrategy"] = json!({"gangPolicy": policy});
    service
}

fn pair_serves(server: &Server) -> bool {
    let serving = serving_leaders(server);
    ["chat-prefiller-", "chat-decoder-"].iter().all(|role| serving.iter().any(|leader| leader.starts_with(role)))
}

async fn cluster_with_pair(nodes: usize, service: Value) -> SimulatedCluster {
    let cluster = SimulatedCluster::with_gpus(8 * nodes);
    cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
    cluster.wait_until_ready("chat").await;
    cluster
}

/// Both roles are members of a gang: requests need a prefiller and a decoder.
#[tokio::test(start_paused = true)]
async fn decoder_of_a_pair_serves_until_a_larger_one_is_ready() {
    let cluster = cluster_with_pair(6, pair("MinimumAvailable", (1, 1), (1, 1))).await;
    let prefiller = cluster.server.get("pods", "default", "chat-prefiller-0-0").unwrap();
    let larger = pair("MinimumAvailable", (1, 1), (1, 2));
    cluster
        .test_cluster
        .update_object(FUSIONINFER_SERVICES, "chat", |service| service["spec"] = larger["spec"].clone());
    let unchanged_prefiller_serves = |server: &Server| {
        assert_served(server);
        let serving = serving_leaders(server);
        assert!(pair_serves(server) && serving.contains(&"chat-prefiller-0-0".to_owned()), "{serving:?}");
    };
    wait_for_sets(&cluster, &["chat-decoder-0 2", "chat-prefiller-0 1"], &unchanged_prefiller_serves).await;
    let prefiller_after = cluster.server.get("pods", "default", "chat-prefiller-0-0").unwrap();
    assert_eq!(prefiller_after["metadata"]["uid"], prefiller["metadata"]["uid"]);
}

/// The updated replicas of both roles start together. With fewer nodes than they and the additional ones require, both are updated
/// in place. The larger pair requires 4 nodes, and the additional replicas 4 more. If the decoders shrink one at a time, the updated
/// replicas and the other decoders require 9, and the additional replicas 3 more.
#[rstest]
#[case::of_one_replica_each("MinimumAvailable", [(1, 1), (1, 1)], [(1, 2), (1, 2)], 8, true)]
#[case::of_all_replicas("All", [(1, 1), (1, 1)], [(1, 2), (1, 2)], 8, true)]
#[case::one_node_less_of_one_replica_each("MinimumAvailable", [(1, 1), (1, 1)], [(1, 2), (1, 2)], 7, false)]
#[case::one_node_less_of_all_replicas("All", [(1, 1), (1, 1)], [(1, 2), (1, 2)], 7, false)]
#[case::fewest_nodes_of_one_replica_each("MinimumAvailable", [(1, 1), (1, 1)], [(1, 2), (1, 2)], 4, false)]
#[case::fewest_nodes_of_all_replicas("All", [(1, 1), (1, 1)], [(1, 2), (1, 2)], 4, false)]
#[case::one_role_shrinks("All", [(2, 1), (3, 2)], [(2, 2), (3, 1)], 11, false)]
#[case::one_role_shrinks_with_room("All", [(2, 1), (3, 2)], [(2, 2), (3, 1)], 12, true)]
#[tokio::test(start_paused = true)]
async fn roles_of_a_gang_are_updated_at_the_same_time(
    #[case] policy: &str,
    #[case] before: [(i64, i64); 2],
    #[case] after: [(i64, i64); 2],
    #[case] nodes: usize,
    #[case] has_room: bool,
) {
    let cluster = cluster_with_pair(nodes, pair(policy, before[0], before[1])).await;
    let larger = pair(policy, after[0], after[1]);
    cluster
        .test_cluster
        .update_object(FUSIONINFER_SERVICES, "chat", |service| service["spec"] = larger["spec"].clone());
    let serves_if_there_is_room = |server: &Server| assert!(pair_serves(server) || !has_room, "{:?}", sets(server));
    let sets_of = |name: &str, (replicas, nodes): (i64, i64)| {
        (0..replicas).map(|index| format!("chat-{name}-{index} {nodes}")).collect::<Vec<_>>()
    };
    let expected = [sets_of("decoder", after[1]), sets_of("prefiller", after[0])].concat();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    if !has_room {
        let announced = |server: &Server| condition(server, "chat", "NoSurgeCapacity");
        cluster.wait_for("the announcement", &announced).await;
    }
    wait_for_sets(&cluster, &expected, &serves_if_there_is_room).await;
}

/// The larger decoder does not fit. The new image of the prefiller waits with it, because a prefiller that stops could not start.
#[rstest]
#[case("MinimumAvailable")]
#[case("All")]
#[tokio::test(start_paused = true)]
async fn edit_of_another_role_waits_for_the_additional_replica(#[case] policy: &str) {
    let mut cluster = cluster_with_pair(2, pair(policy, (1, 1), (1, 1))).await;
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
        service["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"] = json!("engine:2");
        service["spec"]["roles"][1]["multinode"]["nodeCount"] = json!(2);
    });
    let serves = |server: &Server| assert!(pair_serves(server), "{:?}", sets(server));
    wait_for_set(&cluster, "chat-decoder-1 2", &serves).await;
    cluster.test_cluster.wait_until_idle().await;
    serves(&cluster.server);
    assert_eq!(sets(&cluster.server), ["chat-decoder-0 1", "chat-decoder-1 2", "chat-prefiller-0 1"]);
    cluster.scale_nodes_to(8 * 8);
    wait_for_sets(&cluster, &["chat-decoder-0 2", "chat-prefiller-0 1"], &|_| {}).await;
}

/// The leader of the additional decoder takes the node of the deleted prefiller, which needs it in order to serve.
#[rstest]
#[case("MinimumAvailable")]
#[case("All")]
#[tokio::test(start_paused = true)]
async fn additional_replica_stops_for_a_role_of_its_gang(#[case] policy: &str) {
    let mut cluster = cluster_with_pair(2, pair(policy, (1, 1), (1, 1))).await;
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
        service["spec"]["roles"][1]["multinode"]["nodeCount"] = json!(2);
    });
    wait_for_set(&cluster, "chat-decoder-1 2", &|_| {}).await;
    cluster.test_cluster.wait_until_idle().await;
    cluster.server.delete("pods", "default", "chat-prefiller-0-0", None).unwrap();
    cluster.test_cluster.wait_until_idle().await;
    let serves = |server: &Server| pair_serves(server).then_some(());
    cluster.wait_for("the pair to serve", &serves).await;
    cluster.scale_nodes_to(8 * 8);
    wait_for_sets(&cluster, &["chat-decoder-0 2", "chat-prefiller-0 1"], &|_| {}).await;
}

/// Three of four replicas stop in any case.
#[tokio::test(start_paused = true)]
async fn removed_replicas_make_room_for_the_additional_one() {
    let cluster = cluster_with(4, 4, 1).await;
    set_role(&cluster, 1, 2);
    wait_for_sets(&cluster, &["chat-w-0 2"], &assert_served).await;
}

#[tokio::test(start_paused = true)]
async fn gang_of_all_replicas_grows_and_scales_up_without_an_interruption() {
    let cluster = SimulatedCluster::with_gpus(8 * 6);
    let mut service = service_with_roles("chat", vec![worker(1, 1)]);
    service["spec"]["schedulingStrategy"] = json!({"gangPolicy": "All"});
    cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
    cluster.wait_until_ready("chat").await;
    set_role(&cluster, 2, 2);
    wait_for_sets(&cluster, &["chat-w-0 2", "chat-w-1 2"], &assert_served).await;
}

/// Members of a gang do not stop together if the gang does not need all of them.
#[tokio::test(start_paused = true)]
async fn replicas_that_join_a_gang_are_updated_one_at_a_time() {
    let cluster = cluster_with(8, 3, 1).await;
    set_role(&cluster, 3, 2);
    let two_replicas_serve = |server: &Server| {
        assert_served(server);
        let serving = serving_leaders(server);
        assert!(serving.len() >= 2, "{serving:?}");
    };
    wait_for_sets(&cluster, &["chat-w-0 2", "chat-w-1 2", "chat-w-2 2"], &two_replicas_serve).await;
}

/// All members start together, so the additional replica alone serves meanwhile.
#[tokio::test(start_paused = true)]
async fn gang_of_all_replicas_is_updated_while_the_additional_one_serves() {
    let cluster = SimulatedCluster::with_gpus(8 * 6);
    let mut service = service_with_roles("chat", vec![worker(2, 1)]);
    service["spec"]["schedulingStrategy"] = json!({"gangPolicy": "All"});
    cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
    cluster.wait_until_ready("chat").await;
    set_role(&cluster, 2, 2);
    wait_for_sets(&cluster, &["chat-w-0 2", "chat-w-1 2"], &assert_served).await;
}

/// Both nodes are needed, or all three: the additional replica would start, but not an updated one beside it.
#[rstest]
#[case::for_the_additional_replica(2)]
#[case::for_an_updated_one_beside_it(3)]
#[tokio::test(start_paused = true)]
async fn update_without_accelerators_is_announced(#[case] nodes: usize) {
    let cluster = cluster_with(nodes, 1, 1).await;
    set_role(&cluster, 1, 2);
    let no_additional_replica =
        |server: &Server| assert!(!sets(server).iter().any(|set| set.starts_with("chat-w-1")), "{:?}", sets(server));
    let announced = |server: &Server| condition(server, "chat", "NoSurgeCapacity");
    let announcement = cluster.wait_for_with_invariant("the announcement", &announced, &no_additional_replica).await;
    let expected = "Role w is updated without an additional replica, for which no accelerators are free: \
        it is unavailable until its updated replica is ready";
    assert_eq!((&announcement["reason"], &announcement["message"]), (&json!("NoFreeAccelerators"), &json!(expected)));
    let is_announced_until_ready = |server: &Server| {
        no_additional_replica(server);
        let is_ready = condition(server, "chat", "Ready").is_some_and(|ready| ready["status"] == "True");
        assert!(is_ready || announced(server).is_some());
    };
    wait_for_sets(&cluster, &["chat-w-0 2"], &is_announced_until_ready).await;
    assert_eq!(announced(&cluster.server), None);
}

/// Stopping the replica would not make room for the larger one.
#[tokio::test(start_paused = true)]
async fn replica_serves_while_the_nodes_are_used_by_another_service() {
    let mut cluster = cluster_with(1, 1, 1).await;
    set_role(&cluster, 1, 2);
    let waits = |server: &Server| ready_message(server).filter(|message| message.contains("nodes are available"));
    cluster.wait_for_with_invariant("the wait", &waits, &assert_served).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_served(&cluster.server);
    cluster.add_gpus(8 * 4);
    wait_for_sets(&cluster, &["chat-w-0 2"], &assert_served).await;
}

#[tokio::test(start_paused = true)]
async fn service_deleted_midway_leaves_nothing() {
    for additional_serves in [false, true] {
        let cluster = cluster_with(6, 1, 1).await;
        set_role(&cluster, 1, 2);
        wait_for_set(&cluster, "chat-w-1 2", &assert_served).await;
        if additional_serves {
            wait_until_surge_serves(&cluster).await;
        }
        cluster.server.delete(FUSIONINFER_SERVICES, "default", "chat", None).unwrap();
        let is_gone = |server: &Server| {
            let objects = [LEADER_WORKER_SETS, POD_GROUPS, "pods"].map(|resource| server.list(resource)).concat();
            objects.is_empty().then_some(())
        };
        cluster.wait_for("the deletion", &is_gone).await;
    }
}

/// The operator is away from the creation of the additional replica until it is ready, or while the other one restarts.
#[rstest]
#[case::additional_replica_starts(false)]
#[case::additional_replica_serves(true)]
#[tokio::test(start_paused = true)]
async fn operator_restarts_midway(#[case] additional_serves: bool) {
    let mut cluster = SimulatedCluster::without_operator([api::crds(), api::integrations::crds()].concat());
    cluster.scale_nodes_to(8 * 6);
    let operator = cluster.test_cluster.start_operator_until_dropped();
    create_chat(&cluster, 1, 1).await;
    set_role(&cluster, 1, 2);
    wait_for_set(&cluster, "chat-w-1 2", &assert_served).await;
    if additional_serves {
        wait_until_surge_serves(&cluster).await;
    }
    drop(operator);
    cluster.test_cluster.wait_until_idle().await;
    assert_served(&cluster.server);
    let _operator = cluster.test_cluster.start_operator_until_dropped();
    wait_for_sets(&cluster, &["chat-w-0 2"], &assert_served).await;
}

#[rstest]
#[case::additional_replica_starts(false)]
#[case::additional_replica_serves(true)]
#[tokio::test(start_paused = true)]
async fn edit_is_reverted_midway(#[case] additional_serves: bool) {
    let cluster = cluster_with(6, 1, 1).await;
    let pod = cluster.server.get("pods", "default", "chat-w-0-0").unwrap()["metadata"]["uid"].clone();
    set_role(&cluster, 1, 2);
    wait_for_set(&cluster, "chat-w-1 2", &assert_served).await;
    if additional_serves {
        wait_until_surge_serves(&cluster).await;
    }
    set_role(&cluster, 1, 1);
    wait_for_sets(&cluster, &["chat-w-0 1"], &assert_served).await;
    let pod_after = cluster.server.get("pods", "default", "chat-w-0-0").unwrap()["metadata"]["uid"].clone();
    assert_eq!(pod_after == pod, !additional_serves, "a replica that was not updated does not restart");
}

/// Scaling up makes a regular replica of the additional one, which joins the gang once the other one is ready.
#[rstest]
#[case::up_while_the_additional_replica_starts(1, false, 2)]
#[case::up_while_the_additional_replica_serves(1, true, 2)]
#[case::down_while_the_additional_replica_starts(2, false, 1)]
#[case::down_while_the_additional_replica_serves(2, true, 1)]
#[tokio::test(start_paused = true)]
async fn role_is_scaled_midway(#[case] before: i64, #[case] additional_serves: bool, #[case] after: i64) {
    let cluster = cluster_with(8, before, 1).await;
    set_role(&cluster, before, 2);
    wait_for_set(&cluster, &format!("chat-w-{before} 2"), &assert_served).await;
    if additional_serves {
        let leader = format!("chat-w-{before}-0");
        let serves = |server: &Server| serving_leaders(server).contains(&leader).then_some(());
        cluster.wait_for_with_invariant("the additional replica", &serves, &assert_served).await;
    }
    set_role(&cluster, after, 2);
    let expected: Vec<String> = (0..after).map(|index| format!("chat-w-{index} 2")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    wait_for_sets(&cluster, &expected, &assert_served).await;
}

#[rstest]
#[case::additional_replica_starts(false)]
#[case::additional_replica_serves(true)]
#[tokio::test(start_paused = true)]
async fn image_is_edited_midway(#[case] additional_serves: bool) {
    let cluster = cluster_with(6, 1, 1).await;
    set_role(&cluster, 1, 2);
    wait_for_set(&cluster, "chat-w-1 2", &assert_served).await;
    if additional_serves {
        wait_until_surge_serves(&cluster).await;
    }
    set_image(&cluster, "engine:2");
    wait_for_sets(&cluster, &["chat-w-0 2"], &assert_served).await;
    let images = cluster.server.list("pods").into_iter().map(|pod| pod["spec"]["containers"][0]["image"].clone());
    assert_eq!(images.collect::<Vec<_>>(), ["engine:2"; 2]);
}

/// The larger replica fails: the other one serves, and reverting the edit ends the rollout.
#[tokio::test(start_paused = true)]
async fn replica_serves_while_the_larger_one_crashes() {
    let cluster = cluster_with(6, 1, 1).await;
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
        service["spec"]["roles"][0]["multinode"]["nodeCount"] = json!(2);
        service["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"] = json!("bad");
    });
    let serves = |server: &Server| assert!(!serving_leaders(server).is_empty());
    let has_failed = |server: &Server| condition(server, "chat", "Failed").filter(|failed| failed["status"] == "True");
    let failed = cluster.wait_for_with_invariant("the failure", &has_failed, &serves).await;
    assert_eq!(failed["reason"], "CrashLoop");
    assert_eq!(sets(&cluster.server), ["chat-w-0 1", "chat-w-1 2"]);
    set_image(&cluster, "vllm/vllm-openai:v0.11.0");
    wait_for_sets(&cluster, &["chat-w-0 2"], &serves).await;
}

/// The preview shows the objects after the rollout, before and while the additional replica exists.
#[tokio::test(start_paused = true)]
async fn preview_contains_no_additional_replica() {
    let cluster = cluster_with(6, 1, 1).await;
    let mut edited = listing(&cluster.server);
    let mut service = (*cluster.service("chat")).clone();
    service["spec"]["roles"][0]["multinode"]["nodeCount"] = json!(2);
    service["metadata"]["generation"] = json!(2);
    edited.insert(FUSIONINFER_SERVICE, service);
    let before = preview(&edited).await;
    assert_eq!(changes(&before[0]), ["Created PodGroup chat", "Updated LeaderWorkerSet chat-w-0"]);
    set_role(&cluster, 1, 2);
    wait_for_set(&cluster, "chat-w-1 2", &assert_served).await;
    let meanwhile = preview(&listing(&cluster.server)).await;
    let expected = ["Created PodGroup chat", "Updated LeaderWorkerSet chat-w-0", "Deleted LeaderWorkerSet chat-w-1"];
    assert_eq!(changes(&meanwhile[0]), expected);
    let restarts = |preview: &operator::ServicePreview| {
        preview.restarts.iter().map(|restart| restart.key.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (restarts(&before[0]), restarts(&meanwhile[0])),
        (vec!["chat-w-0".to_owned()], vec!["chat-w-0".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn paused_rollout_starts_no_additional_replica() {
    let cluster = cluster_with(6, 1, 1).await;
    let annotation = rollout_pause_annotation("fusioninfer.io/v1alpha1");
    let set_paused = |value: Value| {
        cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
            service["metadata"]["annotations"][&annotation] = value.clone();
        });
    };
    set_paused(json!("true"));
    set_role(&cluster, 1, 2);
    let is_paused =
        |server: &Server| condition(server, "chat", "Ready").filter(|ready| ready["reason"] == "RolloutPaused");
    cluster.wait_for_with_invariant("the pause", &is_paused, &assert_served).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(sets(&cluster.server), ["chat-w-0 1"]);
    set_paused(json!("false"));
    wait_for_sets(&cluster, &["chat-w-0 2"], &assert_served).await;
}
