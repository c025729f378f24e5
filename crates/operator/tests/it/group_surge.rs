//! Changes of the LeaderWorkerSet of an `ome.io` service: an additional group serves while the others are recreated.

use std::collections::BTreeMap;

use embedded::Server;
use operator::kinds::OME_SERVICE;
use operator::rollout_pause_annotation;
use rstest::rstest;
use serde_json::{Value, json};

use crate::preview::{changes, listing, preview};
use crate::simulated_cluster::{LEADER_WORKER_SETS, SimulatedCluster};
use crate::test_cluster::OME_SERVICES;
use crate::workload_replacement::{assert_routed, chat, cluster_with, condition, is_ready, set_engine};

/// Returns an engine whose replicas have this number of Pods, which use a whole node each.
fn engine(image: &str, nodes: usize, replicas: usize) -> Value {
    let runner = json!({"name": "ome-container", "image": image, "ports": [{"containerPort": 8080}],
        "resources": {"limits": {"nvidia.com/gpu": "8"}}});
    let mut leader = runner.clone();
    leader["readinessProbe"] = json!({"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 5});
    json!({"leader": {"runner": leader}, "worker": {"size": nodes - 1, "runner": runner},
        "minReplicas": replicas, "maxReplicas": replicas})
}

/// Returns image and number of the Pods of each group.
fn groups(server: &Server) -> BTreeMap<String, (String, usize)> {
    let mut groups = BTreeMap::new();
    for pod in server.list("pods") {
        let index = pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"].as_str().unwrap();
        let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
        groups.entry(index.to_owned()).or_insert((image.to_owned(), 0)).1 += 1;
    }
    groups
}

/// Checks that a group serves, and that no interruption is announced.
fn assert_served(server: &Server) {
    assert_routed(server);
    assert_eq!(condition(server, "NoSurgeCapacity"), None);
}

/// Waits until the service is ready with exactly this number of groups of this size and image, and checks `invariant` after every
/// change.
async fn wait_for_groups(
    cluster: &SimulatedCluster,
    image: &str,
    (size, replicas): (usize, usize),
    invariant: &dyn Fn(&Server),
) {
    let expected: BTreeMap<String, (String, usize)> =
        (0..replicas).map(|index| (index.to_string(), (image.to_owned(), size))).collect();
    let is_updated = |server: &Server| (groups(server) == expected).then(|| is_ready(server)).flatten();
    cluster.wait_for_with_invariant(&format!("{expected:?}"), &is_updated, invariant).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(groups(&cluster.server), expected);
    assert_served(&cluster.server);
}

/// Waits until a Pod of the additional group exists.
async fn wait_for_additional_group(cluster: &SimulatedCluster) {
    let exists = |server: &Server| groups(server).contains_key("1").then_some(());
    cluster.wait_for_with_invariant("the additional group", &exists, &assert_served).await;
}

fn limits(server: &Server) -> Value {
    let set = server.get(LEADER_WORKER_SETS, "default", "chat-engine").unwrap();
    set["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"].clone()
}

/// `worker.size` 3: a leader and three workers per replica.
// spec: RT-38
#[tokio::test(start_paused = true)]
async fn worker_size_counts_workers() {
    let cluster = cluster_with(8 * 8, engine("large:1", 4, 2)).await;
    let service = cluster.server.get(OME_SERVICES, "default", "chat").unwrap();
    assert_eq!(service["spec"]["engine"]["worker"]["size"], 3);
    let set = cluster.server.get(LEADER_WORKER_SETS, "default", "chat-engine").unwrap();
    assert_eq!((&set["spec"]["replicas"], &set["spec"]["leaderWorkerTemplate"]["size"]), (&json!(2), &json!(4)));
    let label = |pod: &Value, name: &str| pod["metadata"]["labels"][name].as_str().unwrap().to_owned();
    let pods = cluster.server.list("pods");
    let members: Vec<String> = pods
        .iter()
        .map(|pod| {
            let [group, worker] =
                ["group", "worker"].map(|index| label(pod, &format!("leaderworkerset.sigs.k8s.io/{index}-index")));
            format!("{group}/{worker}")
        })
        .collect();
    assert_eq!(members, ["0/0", "0/1", "0/2", "0/3", "1/0", "1/1", "1/2", "1/3"]);
}

#[rstest]
#[case::grows(("large:1", 4), 8, "true")]
#[case::grows_outside_of_a_gang(("large:1", 4), 8, "false")]
#[case::shrinks(("large:1", 2), 6, "true")]
#[case::new_image(("large:2", 4), 8, "true")]
#[tokio::test(start_paused = true)]
async fn only_group_serves_until_an_additional_one_is_ready(
    #[case] (image, size): (&str, usize),
    #[case] nodes: usize,
    #[case] gang: &str,
) {
    let before = if image == "large:1" && size == 4 { 2 } else { 4 };
    let cluster = SimulatedCluster::with_gpus(8 * nodes);
    let mut service = chat(engine("large:1", before, 1));
    service["metadata"]["annotations"] = json!({"ome.io/gang": gang});
    cluster.server.create(OME_SERVICES, service).unwrap();
    cluster.wait_for("chat to be ready", &is_ready).await;
    set_engine(&cluster, &engine(image, size, 1));
    wait_for_groups(&cluster, image, (size, 1), &assert_served).await;
    let surge = json!({"partition": 0, "maxSurge": 1, "maxUnavailable": 0});
    assert_eq!(limits(&cluster.server), surge, "nothing changes between rollouts");
}

/// All nodes are needed for the new group, or for the additional one beside it.
#[rstest]
#[case::for_the_additional_group(4)]
#[case::for_the_new_group_beside_it(6)]
#[tokio::test(start_paused = true)]
async fn growth_without_accelerators_is_announced(#[case] nodes: usize) {
    let cluster = cluster_with(8 * nodes, engine("large:1", 2, 1)).await;
    set_engine(&cluster, &engine("large:1", 4, 1));
    let no_additional_group = |server: &Server| assert!(!groups(server).contains_key("1"), "{:?}", groups(server));
    let announced = |server: &Server| condition(server, "NoSurgeCapacity");
    let announcement = cluster.wait_for_with_invariant("the announcement", &announced, &no_additional_group).await;
    let expected = "LeaderWorkerSet default/chat-engine is updated without an additional group, for which no accelerators are \
        free: it is unavailable until an updated group is ready";
    assert_eq!((&announcement["reason"], &announcement["message"]), (&json!("NoFreeAccelerators"), &json!(expected)));
    let is_updated =
        |server: &Server| (condition(server, "NoSurgeCapacity").is_none()).then(|| is_ready(server)).flatten();
    cluster.wait_for_with_invariant("the end of the announcement", &is_updated, &no_additional_group).await;
    wait_for_groups(&cluster, "large:1", (4, 1), &no_additional_group).await;
    assert_eq!(limits(&cluster.server), json!({"partition": 0, "maxSurge": 0, "maxUnavailable": 1}));
}

/// Stopping the old group would not suffice: it serves until nodes are added.
#[tokio::test(start_paused = true)]
async fn group_serves_while_a_larger_one_does_not_fit_at_all() {
    let mut cluster = cluster_with(8 * 3, engine("large:1", 2, 1)).await;
    set_engine(&cluster, &engine("large:1", 4, 1));
    wait_for_additional_group(&cluster).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_served(&cluster.server);
    cluster.scale_nodes_to(8 * 8);
    wait_for_groups(&cluster, "large:1", (4, 1), &assert_served).await;
}

#[rstest]
#[case::additional_group(6)]
#[case::in_place(4)]
#[tokio::test(start_paused = true)]
async fn pair_of_groups_is_updated_one_at_a_time(#[case] nodes: usize) {
    let cluster = cluster_with(8 * nodes, engine("large:1", 2, 2)).await;
    set_engine(&cluster, &engine("large:2", 2, 2));
    wait_for_groups(&cluster, "large:2", (2, 2), &assert_routed).await;
    assert_eq!(limits(&cluster.server)["maxSurge"], i32::from(nodes > 4));
}

/// A broken group gives its accelerators to the group that fixes it, with and without room for an additional one.
#[rstest]
#[tokio::test(start_paused = true)]
async fn broken_group_is_replaced(#[values(1, 2)] replicas: usize, #[values(0, 2)] free_nodes: usize) {
    let cluster = SimulatedCluster::with_gpus(8 * (2 * replicas + free_nodes));
    cluster.server.create(OME_SERVICES, chat(engine("bad", 2, replicas))).unwrap();
    let has_crashed = |server: &Server| (condition(server, "Failed")?["reason"] == "CrashLoop").then_some(());
    cluster.wait_for("the crash", &has_crashed).await;
    set_engine(&cluster, &engine("large:1", 2, replicas));
    wait_for_groups(&cluster, "large:1", (2, replicas), &|_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn broken_update_is_reported_and_fixed_while_the_old_group_serves() {
    let cluster = cluster_with(8 * 4, engine("large:1", 2, 1)).await;
    set_engine(&cluster, &engine("bad", 2, 1));
    let has_crashed = |server: &Server| (condition(server, "Failed")?["reason"] == "CrashLoop").then_some(());
    cluster.wait_for_with_invariant("the crash", &has_crashed, &assert_served).await;
    set_engine(&cluster, &engine("large:2", 2, 1));
    wait_for_groups(&cluster, "large:2", (2, 1), &assert_served).await;
}

#[tokio::test(start_paused = true)]
async fn reverted_update_stops_the_additional_group() {
    let cluster = cluster_with(8 * 8, engine("large:1", 2, 1)).await;
    let old = cluster.server.get("pods", "default", "chat-engine-0").unwrap();
    set_engine(&cluster, &engine("large:1", 4, 1));
    wait_for_additional_group(&cluster).await;
    set_engine(&cluster, &engine("large:1", 2, 1));
    wait_for_groups(&cluster, "large:1", (2, 1), &assert_served).await;
    let retained = cluster.server.get("pods", "default", "chat-engine-0").unwrap();
    assert_eq!(retained["metadata"]["uid"], old["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn update_survives_restarts_of_the_operator() {
    let mut cluster = SimulatedCluster::without_operator([api::crds(), api::integrations::crds()].concat());
    cluster.scale_nodes_to(8 * 8);
    let operator = cluster.test_cluster.start_operator_until_dropped();
    cluster.server.create(OME_SERVICES, chat(engine("large:1", 2, 1))).unwrap();
    cluster.wait_for("chat to be ready", &is_ready).await;
    set_engine(&cluster, &engine("large:1", 4, 1));
    wait_for_additional_group(&cluster).await;
    drop(operator);
    cluster.test_cluster.wait_until_idle().await;
    assert_served(&cluster.server);
    let _operator = cluster.test_cluster.start_operator_until_dropped();
    wait_for_groups(&cluster, "large:1", (4, 1), &assert_served).await;
}

fn set_paused(cluster: &SimulatedCluster, paused: &str) {
    let annotation = rollout_pause_annotation("ome.io/v1beta1");
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["metadata"]["annotations"] = json!({&annotation: paused});
    });
}

async fn wait_for_pause(cluster: &SimulatedCluster) -> Value {
    let pause = |server: &Server| condition(server, "Ready").filter(|ready| ready["reason"] == "RolloutPaused");
    let pause = cluster.wait_for_with_invariant("the pause", &pause, &assert_routed).await;
    cluster.test_cluster.wait_until_idle().await;
    pause
}

/// A rollout that is paused before it starts retains the strategy too.
#[tokio::test(start_paused = true)]
async fn paused_rollout_starts_no_additional_group() {
    let cluster = cluster_with(8 * 4, engine("large:1", 2, 1)).await;
    set_paused(&cluster, "true");
    set_engine(&cluster, &engine("large:2", 2, 1));
    wait_for_pause(&cluster).await;
    assert_eq!(groups(&cluster.server), BTreeMap::from([("0".to_owned(), ("large:1".to_owned(), 2))]));
    set_paused(&cluster, "false");
    wait_for_groups(&cluster, "large:2", (2, 1), &assert_served).await;
}

/// A rollout that is paused while the additional group starts updates no other group until it is resumed, but scales.
#[rstest]
#[case::additional_group(6, "2")]
#[case::in_place(4, "1")]
#[tokio::test(start_paused = true)]
async fn pause_stops_a_rollout_that_has_begun(#[case] nodes: usize, #[case] updated: &str) {
    let mut cluster = cluster_with(8 * nodes, engine("large:1", 2, 2)).await;
    set_engine(&cluster, &engine("large:2", 2, 2));
    let is_updating = |server: &Server| groups(server).get(updated).is_some_and(|(image, _)| image == "large:2");
    cluster.wait_for("the first updated group", &|server| is_updating(server).then_some(())).await;
    set_paused(&cluster, "true");
    let pause = wait_for_pause(&cluster).await;
    let message = pause["message"].as_str().unwrap();
    assert!(message.ends_with("; the rollout is paused, run `ostler rollout resume` to resume it"), "{message}");
    let images = || groups(&cluster.server).into_iter().map(|(group, (image, _))| (group, image)).collect();
    let paused: BTreeMap<String, String> = images();
    assert_eq!(paused["0"], "large:1");
    assert_eq!(paused[updated], "large:2");
    assert_eq!(paused.get("1").map(String::as_str), Some(if updated == "1" { "large:2" } else { "large:1" }));

    cluster.scale_nodes_to(8 * 8);
    set_engine(&cluster, &engine("large:2", 2, 3));
    let is_scaled = |server: &Server| groups(server).contains_key("2").then_some(());
    cluster.wait_for_with_invariant("the third group", &is_scaled, &assert_routed).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(groups(&cluster.server)["0"].0, "large:1");
    set_paused(&cluster, "false");
    wait_for_groups(&cluster, "large:2", (2, 3), &assert_routed).await;
    assert_eq!(limits(&cluster.server)["partition"], 0);
}

/// Returns an engine with groups of two Pods that serves on the port.
fn engine_on(port: u16, replicas: usize) -> Value {
    let mut engine = engine("large:1", 2, replicas);
    let leader = &mut engine["leader"]["runner"];
    leader["ports"] = json!([{"containerPort": port}]);
    leader["readinessProbe"]["httpGet"]["port"] = json!(port);
    engine
}

/// Waits until every group serves on the port.
async fn wait_for_port(cluster: &SimulatedCluster, port: u16, replicas: usize) {
    let ports = |server: &Server| -> Vec<Value> {
        let pods = server.list("pods");
        let leaders =
            pods.iter().filter(|pod| pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0");
        leaders.map(|pod| pod["spec"]["containers"][0]["ports"][0]["containerPort"].clone()).collect()
    };
    let is_changed =
        |server: &Server| (ports(server) == vec![json!(port); replicas]).then(|| is_ready(server)).flatten();
    cluster.wait_for_with_invariant("the port", &is_changed, &assert_routed).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_routed(&cluster.server);
    assert_eq!(limits(&cluster.server)["partition"], 0);
}

/// A group serves on the port of the routes throughout.
#[rstest]
#[case::only_group(1, 4)]
#[case::pair(2, 6)]
#[case::pair_in_place(2, 4)]
#[tokio::test(start_paused = true)]
async fn changed_port_interrupts_nothing(#[case] replicas: usize, #[case] nodes: usize) {
    let cluster = cluster_with(8 * nodes, engine_on(8080, replicas)).await;
    set_engine(&cluster, &engine_on(9090, replicas));
    wait_for_port(&cluster, 9090, replicas).await;
    set_engine(&cluster, &engine_on(8080, replicas));
    wait_for_port(&cluster, 8080, replicas).await;
}

/// The old group serves until an operator has changed the routes.
#[tokio::test(start_paused = true)]
async fn changed_port_of_a_group_waits_for_the_operator() {
    let mut cluster = SimulatedCluster::without_operator([api::crds(), api::integrations::crds()].concat());
    cluster.scale_nodes_to(8 * 4);
    let operator = cluster.test_cluster.start_operator_until_dropped();
    cluster.server.create(OME_SERVICES, chat(engine_on(8080, 1))).unwrap();
    cluster.wait_for("chat to be ready", &is_ready).await;
    set_engine(&cluster, &engine_on(9090, 1));
    let exists = |server: &Server| groups(server).contains_key("1").then_some(());
    cluster.wait_for_with_invariant("the additional group", &exists, &assert_routed).await;
    drop(operator);
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(groups(&cluster.server).len(), 2);
    assert_routed(&cluster.server);
    let _operator = cluster.test_cluster.start_operator_until_dropped();
    wait_for_port(&cluster, 9090, 1).await;
}

/// The strategy that the operator chose is no difference to the plan.
#[tokio::test(start_paused = true)]
async fn preview_does_not_contain_the_strategy() {
    let cluster = cluster_with(8 * 4, engine("large:1", 2, 1)).await;
    set_engine(&cluster, &engine("large:2", 2, 1));
    wait_for_groups(&cluster, "large:2", (2, 1), &assert_served).await;
    assert_eq!(limits(&cluster.server)["maxSurge"], 1);
    let unchanged = preview(&listing(&cluster.server)).await;
    assert_eq!(changes(&unchanged[0]), Vec::<String>::new());

    let mut edited = listing(&cluster.server);
    let mut service = (*cluster.server.get(OME_SERVICES, "default", "chat").unwrap()).clone();
    service["spec"]["engine"] = engine("large:3", 2, 1);
    service["metadata"]["generation"] = json!(service["metadata"]["generation"].as_i64().unwrap() + 1);
    edited.insert(OME_SERVICE, service);
    assert_eq!(changes(&preview(&edited).await[0]), ["Updated LeaderWorkerSet chat-engine"]);
}
