//! The scheduling table of seed 002, with operator, workload controllers, scheduler and node agent.

use embedded::Server;
use rstest::rstest;
use serde_json::{Value, json};

use crate::events::events;
use crate::simulated_cluster::{
    LEADER_WORKER_SETS, SimulatedCluster, disaggregated_service, role, scheduled_pods, service_with_roles,
};
use crate::test_cluster::FUSIONINFER_SERVICES;

const NAME: &str = "deepseek-r1-disagg";

/// Checks that each replica is scheduled completely or not at all, and that no Pod is scheduled before one replica of
/// each role fits.
fn assert_complete_replicas(server: &Server) {
    let scheduled_pods = scheduled_pods(server);
    for (replica, count) in &scheduled_pods {
        let expected = if replica.starts_with("prefill") { 2 } else { 4 };
        assert_eq!(*count, expected, "{replica} in {scheduled_pods:?}");
    }
    let has_scheduled_replica = |role: &str| scheduled_pods.keys().any(|replica| replica.starts_with(role));
    assert_eq!(has_scheduled_replica("prefill"), has_scheduled_replica("decode"), "{scheduled_pods:?}");
}

async fn wait_for_gang_reason(cluster: &SimulatedCluster, reason: &str) -> String {
    let probe = |server: &Server| {
        let condition = crate::simulated_cluster::condition(server, NAME, "GangScheduled")?;
        // A ready service omits the message.
        (condition["reason"] == reason).then(|| condition["message"].as_str().unwrap_or_default().to_owned())
    };
    cluster
        .wait_for_with_invariant(
            &format!("{reason} at {:?}", cluster.scheduled_pods()),
            &probe,
            &assert_complete_replicas,
        )
        .await
}

// spec: TOP-15
// spec: TOP-85
#[rstest]
// spec: TOP-60
#[case::all_replicas(80, "FullCapacity", &["decode-0 4", "decode-1 4", "prefill-0 2"])]
// spec: TOP-61
#[case::one_decode_and_two_free_nodes(64, "PartialCapacity", &["decode-0 4", "prefill-0 2"])]
// spec: TOP-62
#[case::one_replica_of_each_role(48, "PartialCapacity", &["decode-0 4", "prefill-0 2"])]
// spec: TOP-63
#[case::no_decode_fits(32, "Blocked", &[])]
// spec: TOP-64
#[case::only_prefill_fits(16, "Blocked", &[])]
#[tokio::test(start_paused = true)]
async fn schedules_only_complete_replicas(#[case] gpus: usize, #[case] reason: &str, #[case] expect: &[&str]) {
    let cluster = SimulatedCluster::with_gpus(gpus);
    cluster.server.create(FUSIONINFER_SERVICES, disaggregated_service()).unwrap();
    wait_for_gang_reason(&cluster, reason).await;
    assert_eq!(cluster.scheduled_pods(), expect);
}

// spec: TOP-66
// spec: TOP-67
// spec: TOP-69
#[tokio::test(start_paused = true)]
async fn schedules_more_replicas_as_gpus_are_added() {
    let mut cluster = SimulatedCluster::with_gpus(16);
    cluster.server.create(FUSIONINFER_SERVICES, disaggregated_service()).unwrap();
    let blocked_message = wait_for_gang_reason(&cluster, "Blocked").await;
    assert!(
        blocked_message
            .starts_with("No Pod runs until one replica of each role can be scheduled; prefill-0 is not scheduled: "),
        "{blocked_message}"
    );
    cluster.scale_nodes_to(32);
    wait_for_gang_reason(&cluster, "Blocked").await;
    cluster.scale_nodes_to(48);
    let partial_message = wait_for_gang_reason(&cluster, "PartialCapacity").await;
    assert!(
        partial_message.starts_with("Scheduled replicas: prefill 1 of 1, decode 1 of 2; decode-1 is not scheduled: "),
        "{partial_message}"
    );
    let active_condition = cluster.wait_for_condition(NAME, "Active", "MinimumReady").await;
    assert_eq!(active_condition["message"], "Ready replicas: prefill 1 of 1, decode 1 of 2");
    let server = cluster.server.clone();
    let scheduled_uids = || {
        let bound_pods = server.list("pods").into_iter().filter(|pod| pod["spec"]["nodeName"].is_string());
        bound_pods.map(|pod| pod["metadata"]["uid"].to_string()).collect::<Vec<_>>()
    };
    let uids_before = scheduled_uids();
    cluster.scale_nodes_to(64);
    wait_for_gang_reason(&cluster, "PartialCapacity").await;
    assert_eq!(scheduled_uids(), uids_before);
    cluster.scale_nodes_to(80);
    wait_for_gang_reason(&cluster, "FullCapacity").await;
    cluster.wait_until_ready(NAME).await;
    let uids_after = scheduled_uids();
    assert!(uids_before.iter().all(|uid| uids_after.contains(uid)) && uids_after.len() == 10);
}

/// The scheduler rejects the first Pods of a gang until the last one exists: only rejections that last are a problem. Here, they
/// end when nodes are added.
#[rstest]
#[case::rejections_end(80, "FullCapacity", &[])]
#[case::rejections_last(16, "Blocked", &["Blocked", "Unschedulable"])]
#[tokio::test(start_paused = true)]
async fn only_rejections_that_last_emit_warnings(
    #[case] gpus_after_two_seconds: usize,
    #[case] reason: &str,
    #[case] expected: &[&str],
) {
    let mut cluster = SimulatedCluster::with_gpus(16);
    cluster.server.create(FUSIONINFER_SERVICES, disaggregated_service()).unwrap();
    let message = wait_for_gang_reason(&cluster, "Starting").await;
    assert!(message.starts_with("Waiting for the scheduler to schedule the Pods"), "{message}");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    cluster.scale_nodes_to(gpus_after_two_seconds);
    wait_for_gang_reason(&cluster, reason).await;
    cluster.test_cluster.wait_until_idle().await;
    let events = events(&cluster.server, NAME);
    let warnings = events.iter().filter_map(|event| event.strip_prefix("Warning "));
    // The service has no router, which is not about scheduling.
    let mut warnings: Vec<&str> = warnings.filter(|reason| *reason != "RouterMissing").collect();
    warnings.sort_unstable();
    assert_eq!(warnings, expected);
}

// spec: TOP-66
// spec: TOP-67
#[tokio::test(start_paused = true)]
async fn gang_policy_all_starts_when_all_replicas_fit() {
    let mut cluster = SimulatedCluster::with_gpus(64);
    let mut service = disaggregated_service();
    service["spec"]["schedulingStrategy"] = json!({"gangPolicy": "All"});
    cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
    wait_for_gang_reason(&cluster, "Blocked").await;
    assert_eq!(cluster.scheduled_pods(), [""; 0]);
    cluster.scale_nodes_to(80);
    wait_for_gang_reason(&cluster, "FullCapacity").await;
    assert_eq!(cluster.scheduled_pods(), ["decode-0 4", "decode-1 4", "prefill-0 2"]);
}

/// Story 2 as printed: six groups of one Pod with one GPU each.
// spec: TOP-21
#[tokio::test(start_paused = true)]
async fn disaggregated_service_has_one_group_per_replica() {
    let cluster = SimulatedCluster::with_story_2().await;
    let replicas = ["decode-0", "decode-1", "decode-2", "decode-3", "prefill-0", "prefill-1"];
    let names = replicas.map(|replica| format!("qwen-inference-service-{replica}"));
    assert_eq!(cluster.object_names(LEADER_WORKER_SETS), names);
    assert_eq!(cluster.scheduled_pods(), replicas.map(|replica| format!("{replica} 1")));
    for set in cluster.server.list(LEADER_WORKER_SETS) {
        assert_eq!((&set["spec"]["replicas"], &set["spec"]["leaderWorkerTemplate"]["size"]), (&json!(1), &json!(1)));
    }
    let gpus = |pod: &Value| pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].clone();
    assert_eq!(cluster.server.list("pods").iter().map(|pod| gpus(pod)).collect::<Vec<_>>(), vec![json!("1"); 6]);
}

// spec: TOP-26
// spec: TOP-41
// spec: TOP-42
// spec: TOP-68
#[rstest]
#[case::one_replica(32)]
#[case::three_more_nodes(56)]
#[case::one_gpu_in_use(64)]
#[tokio::test(start_paused = true)]
async fn schedules_one_complete_replica_if_two_do_not_fit(#[case] gpus: usize) {
    let mut cluster = SimulatedCluster::with_gpus(gpus);
    let other = json!({"metadata": {"name": "other", "namespace": "default"}, "spec": {"nodeName": "n07", "containers":
        [{"name": "other", "image": "other:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}});
    let is_gpu_in_use = gpus == 64;
    if is_gpu_in_use {
        cluster.server.create("pods", other).unwrap();
    }
    cluster
        .server
        .create(FUSIONINFER_SERVICES, service_with_roles("deepseek-r1", vec![role("inference", "worker", 2, 4, 8)]))
        .unwrap();
    // The second replica is reported as waiting after the scheduler has processed it.
    let has_waiting_replica = |server: &Server| {
        let condition = crate::simulated_cluster::condition(server, "deepseek-r1", "GangScheduled")?;
        condition["message"]
            .as_str()?
            .starts_with("Scheduled replicas: inference 1 of 2; inference-1 is not scheduled: ")
            .then_some(condition)
    };
    let condition = cluster.wait_for("the second replica to wait", &has_waiting_replica).await;
    assert_eq!(condition["reason"], "PartialCapacity");
    let scheduled: Vec<String> =
        cluster.scheduled_pods().into_iter().filter(|replica| replica.starts_with("inference")).collect();
    assert_eq!(scheduled, ["inference-0 4"]);
    if is_gpu_in_use {
        cluster.server.delete("pods", "default", "other", None).unwrap();
    }
    cluster.scale_nodes_to(64);
    cluster.wait_until_ready("deepseek-r1").await;
    let first_replica_pods = ["", "-1", "-2", "-3"].map(|worker| format!("deepseek-r1-inference-0-0{worker}"));
    let second_replica_pods = ["", "-1", "-2", "-3"].map(|worker| format!("deepseek-r1-inference-1-0{worker}"));
    assert_eq!(cluster.object_names("pods"), [first_replica_pods, second_replica_pods].concat());
    let mut nodes: Vec<String> =
        cluster.server.list("pods").iter().map(|pod| pod["spec"]["nodeName"].to_string()).collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 8, "each Pod has a node of its own");
}

/// Accepts the services of the four user stories (seed 002) unchanged: worker, prefill and decode, multiple nodes, and
/// both.
// spec: TOP-1
#[test]
fn accepts_all_stories_unchanged() {
    let server = crate::test_cluster::server_with_ostler_crds();
    let stories = [
        service_with_roles("qwen-inference", vec![role("inference", "worker", 1, 1, 1)]),
        service_with_roles(
            "qwen-inference-service",
            vec![role("prefill", "prefiller", 2, 1, 1), role("decode", "decoder", 4, 1, 1)],
        ),
        service_with_roles("deepseek-r1-inference", vec![role("inference", "worker", 2, 4, 8)]),
        disaggregated_service(),
    ];
    for story in stories {
        let stored = server.create(FUSIONINFER_SERVICES, story.clone()).unwrap();
        assert_eq!(stored["spec"], story["spec"]);
        let mut with_status = (*stored).clone();
        (with_status["status"]["observedGeneration"], with_status["spec"]["roles"]) = (json!(1), json!([]));
        let with_status = server.update_status(FUSIONINFER_SERVICES, with_status).unwrap();
        assert_eq!((&with_status["spec"], &with_status["status"]["observedGeneration"]), (&story["spec"], &json!(1)));
    }
}

// spec: TOP-20
#[tokio::test(start_paused = true)]
async fn single_pod_on_one_gpu() {
    let cluster = SimulatedCluster::with_gpus(8);
    let mut service = service_with_roles("qwen-inference", vec![role("inference", "worker", 1, 1, 1)]);
    service["spec"]["roles"][0].as_object_mut().unwrap().remove("multinode");
    cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
    cluster.wait_until_ready("qwen-inference").await;
    assert_eq!(cluster.object_names("pods"), ["qwen-inference-inference-0-0"]);
    assert!(crate::simulated_cluster::condition(&cluster.server, "qwen-inference", "GangScheduled").is_none());
}
