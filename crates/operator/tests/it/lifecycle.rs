//! Lifecycle of role-based services: rollouts, scaling, pruning, and changes by others.

use std::collections::BTreeMap;

use embedded::Server;
use rstest::rstest;
use serde_json::{Value, json};

use crate::simulated_cluster::{
    CRDS, LEADER_WORKER_SETS, POD_GROUPS, SimulatedCluster, condition, disaggregated_service, ready_service, role,
    service_with_roles,
};
use crate::test_cluster::FUSIONINFER_SERVICES;

const REVISIONS: &str = "controllerrevisions.apps";

fn image(object: &Value) -> &str {
    object["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

/// Returns name and image of all LeaderWorkerSets.
fn images(server: &Server) -> Vec<String> {
    let name_and_image =
        |set: &std::sync::Arc<Value>| format!("{} {}", set["metadata"]["name"].as_str().unwrap(), image(set));
    server.list(LEADER_WORKER_SETS).iter().map(name_and_image).collect()
}

fn set_image(cluster: &SimulatedCluster, name: &str, image: &str) {
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, name, |service| {
        for role in service["spec"]["roles"].as_array_mut().unwrap() {
            role["template"]["spec"]["containers"][0]["image"] = json!(image);
        }
    });
}

/// Checks that at most one LeaderWorkerSet is not ready.
fn assert_at_most_one_unready(server: &Server) {
    let unready = server.list(LEADER_WORKER_SETS).into_iter().filter(|set| set["status"]["readyReplicas"] != 1).count();
    assert!(unready <= 1, "{:#?}", images(server));
}

/// Starts three replicas of one Pod each, with a readiness probe.
async fn cluster_with_three_workers() -> SimulatedCluster {
    let cluster = SimulatedCluster::with_gpus(32);
    let mut worker = role("w", "worker", 3, 1, 8);
    worker["template"]["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/health", "port": 8000}, "initialDelaySeconds": 5});
    cluster.server.create(FUSIONINFER_SERVICES, service_with_roles("chat", vec![worker])).unwrap();
    cluster.wait_until_ready("chat").await;
    cluster
}

// spec: TOP-74
// spec: TOP-75
#[tokio::test(start_paused = true)]
async fn updates_one_replica_at_a_time() {
    let cluster = cluster_with_three_workers().await;
    set_image(&cluster, "chat", "engine:2");
    let service = cluster
        .wait_for_with_invariant("the rollout", &|server| ready_service(server, "chat"), &assert_at_most_one_unready)
        .await;
    assert_eq!(images(&cluster.server), ["chat-w-0 engine:2", "chat-w-1 engine:2", "chat-w-2 engine:2"]);
    assert!(service["status"]["rollouts"].is_null());
    assert_eq!(cluster.object_names(REVISIONS).len(), 2);
}

/// Checks that no node runs a part of a replica with the image `image`: each Pod of it uses a whole node.
fn assert_no_partial_replica(server: &Server, image: &str) {
    let is_new = |pod: &std::sync::Arc<Value>| {
        pod["spec"]["containers"][0]["image"] == image && pod["metadata"]["deletionTimestamp"].is_null()
    };
    let mut replicas: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for pod in server.list("pods").into_iter().filter(is_new) {
        let replica = pod["metadata"]["labels"]["fusioninfer.io/replica-index"].as_str().unwrap().to_owned();
        replicas.entry(replica).or_default().push(pod["spec"]["nodeName"].is_string());
    }
    for (replica, scheduled) in replicas {
        let count = scheduled.iter().filter(|scheduled| **scheduled).count();
        assert!([0, 4].contains(&count), "replica {replica}: {count} of {} Pods are scheduled", scheduled.len());
    }
}

/// The gang leaves no node free: a replica can only be replaced in place, and the other one serves meanwhile.
#[tokio::test(start_paused = true)]
async fn gang_on_a_full_cluster_is_updated_one_replica_at_a_time() {
    let cluster = SimulatedCluster::with_gpus(64);
    let mut worker = role("w", "worker", 2, 4, 8);
    worker["template"]["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/health", "port": 8000}, "initialDelaySeconds": 5});
    cluster.server.create(FUSIONINFER_SERVICES, service_with_roles("chat", vec![worker])).unwrap();
    cluster.wait_until_ready("chat").await;
    set_image(&cluster, "chat", "engine:2");
    let one_replica_at_a_time = |server: &Server| {
        assert_at_most_one_unready(server);
        assert_no_partial_replica(server, "engine:2");
        let status = server.get(FUSIONINFER_SERVICES, "default", "chat").unwrap()["status"].clone();
        let condition = |kind| cluster::find_condition(&status["conditions"], kind);
        assert_eq!(condition("Active").unwrap()["status"], "True", "{status:#}");
        assert_eq!(condition("Failed"), None, "stopped Pods have not crashed");
    };
    cluster
        .wait_for_with_invariant("the rollout", &|server| ready_service(server, "chat"), &one_replica_at_a_time)
        .await;
    assert_eq!(images(&cluster.server), ["chat-w-0 engine:2", "chat-w-1 engine:2"]);
    assert_eq!(cluster.scheduled_pods(), ["w-0 4", "w-1 4"]);
}

// spec: TOP-75
// spec: TOP-83
#[tokio::test(start_paused = true)]
async fn rollout_stops_at_the_first_failing_replica_and_can_be_undone() {
    let cluster = cluster_with_three_workers().await;
    let spec_before = cluster.service("chat")["spec"].clone();
    set_image(&cluster, "chat", "bad");
    let probe = |server: &Server| {
        let failed = condition(server, "chat", "Failed")?;
        (failed["status"] == "True").then_some(failed)
    };
    let failed = cluster.wait_for_with_invariant("the failure", &probe, &assert_at_most_one_unready).await;
    assert_eq!(failed["reason"], "CrashLoop");
    assert_eq!(
        images(&cluster.server),
        ["chat-w-0 bad", "chat-w-1 vllm/vllm-openai:v0.11.0", "chat-w-2 vllm/vllm-openai:v0.11.0"]
    );
    let service = cluster.service("chat");
    assert_eq!(service["status"]["rollouts"]["w"], json!({"replicas": 3, "updatedReplicas": 1, "readyBefore": 3}));
    assert_eq!(service["status"]["components"]["w"]["phase"], "Failed");
    assert_eq!(
        condition(&cluster.server, "chat", "Active").unwrap()["status"],
        "True",
        "two of three replicas serve requests"
    );

    let revisions = cluster.server.list(REVISIONS);
    let first_revision = revisions.iter().find(|revision| revision["revision"] == 1).unwrap();
    assert_eq!(operator::restore_revision(&service["spec"], first_revision), spec_before);
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| service["spec"] = spec_before.clone());
    let service = cluster
        .wait_for_with_invariant("the undo", &|server| ready_service(server, "chat"), &assert_at_most_one_unready)
        .await;
    assert_eq!(service["status"]["components"]["w"]["phase"], "Running");
    let revisions: Vec<i64> =
        cluster.server.list(REVISIONS).iter().map(|revision| operator::revision_number(revision)).collect();
    assert_eq!(revisions.iter().max(), Some(&3), "the first revision is the latest again: {revisions:?}");
    assert_eq!(revisions.len(), 2);
}

/// The new Pod is ready immediately and fails shortly after: the next replica is not updated in between.
#[tokio::test(start_paused = true)]
async fn engine_without_probe_must_run_for_min_ready_time() {
    let cluster = SimulatedCluster::with_gpus(32);
    cluster
        .server
        .create(FUSIONINFER_SERVICES, service_with_roles("chat", vec![role("w", "worker", 3, 1, 8)]))
        .unwrap();
    cluster.wait_until_ready("chat").await;
    set_image(&cluster, "chat", "bad");
    let probe = |server: &Server| (condition(server, "chat", "Failed")?["status"] == "True").then_some(());
    cluster.wait_for("the failure", &probe).await;
    assert_eq!(images(&cluster.server).iter().filter(|image| image.ends_with(" bad")).count(), 1);
    set_image(&cluster, "chat", "engine:2");
    cluster.wait_until_ready("chat").await;
    assert!(images(&cluster.server).iter().all(|image| image.ends_with("engine:2")));
}

#[tokio::test(start_paused = true)]
async fn paused_rollout_continues_when_resumed() {
    let cluster = cluster_with_three_workers().await;
    let pause = |value: Value| {
        cluster
            .test_cluster
            .update_object(FUSIONINFER_SERVICES, "chat", |service| service["metadata"]["annotations"] = value.clone());
    };
    pause(json!({"fusioninfer.io/rollout-paused": "true"}));
    set_image(&cluster, "chat", "engine:2");
    cluster.wait_for_condition("chat", "Ready", "RolloutPaused").await;
    assert!(images(&cluster.server).iter().all(|image| image.ends_with("v0.11.0")));
    pause(json!({}));
    cluster.wait_until_ready("chat").await;
    assert!(images(&cluster.server).iter().all(|image| image.ends_with("engine:2")));
}

/// An unschedulable replica does not block the rollout.
#[tokio::test(start_paused = true)]
async fn unschedulable_replica_does_not_block_a_rollout() {
    let cluster = SimulatedCluster::with_gpus(16);
    cluster
        .server
        .create(FUSIONINFER_SERVICES, service_with_roles("chat", vec![role("w", "worker", 3, 1, 8)]))
        .unwrap();
    cluster.wait_for_condition("chat", "Ready", "Unschedulable").await;
    set_image(&cluster, "chat", "engine:2");
    let updated_service = |server: &Server| {
        let service = server.get(FUSIONINFER_SERVICES, "default", "chat")?;
        let are_all_updated = images(server).iter().all(|image| image.ends_with("engine:2"));
        (are_all_updated && service["status"]["components"]["w"]["readyReplicas"] == 2).then_some(())
    };
    cluster.wait_for("every replica to be updated", &updated_service).await;
}

fn generations(server: &Server) -> BTreeMap<String, i64> {
    let name_and_generation = |set: std::sync::Arc<Value>| {
        (set["metadata"]["name"].as_str().unwrap().to_owned(), set["metadata"]["generation"].as_i64().unwrap())
    };
    server.list(LEADER_WORKER_SETS).into_iter().map(name_and_generation).collect()
}

fn scale(cluster: &SimulatedCluster, role: usize, replicas: i64) {
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "deepseek-r1-disagg", |service| {
        service["spec"]["roles"][role]["replicas"] = json!(replicas);
    });
}

fn has_set_count(server: &Server, count: usize) -> Option<()> {
    (server.list(LEADER_WORKER_SETS).len() == count).then_some(())
}

/// Returns the UIDs of all Pods, by name.
fn pod_uids(server: &Server) -> BTreeMap<String, Value> {
    let name_and_uid = |pod: std::sync::Arc<Value>| {
        (pod["metadata"]["name"].as_str().unwrap().to_owned(), pod["metadata"]["uid"].clone())
    };
    server.list("pods").into_iter().map(name_and_uid).collect()
}

/// The revision of the LeaderWorkerSets follows the generation of the service; no Pod template contains it.
// spec: TOP-37
#[rstest]
#[case::single_pods(service_with_roles("chat", vec![role("decode", "worker", 2, 1, 8)]))]
#[case::gang(service_with_roles("chat", vec![role("decode", "decoder", 2, 2, 8), role("prefill", "prefiller", 1, 2, 8)]))]
#[tokio::test(start_paused = true)]
async fn revision_without_a_changed_template_restarts_no_pod(#[case] service: Value) {
    const REVISION: &str = "fusioninfer.io/revision";
    let cluster = SimulatedCluster::with_gpus(96);
    cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
    cluster.wait_until_ready("chat").await;
    let has_revision = |server: &Server, revision: &str| {
        let sets = server.list(LEADER_WORKER_SETS);
        sets.iter().all(|set| set["metadata"]["labels"][REVISION] == revision).then_some(())
    };
    let (pods, sets) = (pod_uids(&cluster.server), generations(&cluster.server));
    cluster.wait_for("revision 1", &|server| has_revision(server, "1")).await;

    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
        service["metadata"]["annotations"] = json!({"example.com/team": "search"});
    });
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(cluster.service("chat")["metadata"]["generation"], 1, "annotations do not change the generation");

    let edit_spec = |path: &str, value: Value| {
        cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "chat", |service| {
            let (parent, field) = path.rsplit_once('/').unwrap();
            service["spec"].pointer_mut(parent).unwrap()[field] = value.clone();
        });
    };
    for (path, value, revision) in [
        ("/roles/0/maxUnavailable", json!(2), "2"),
        ("/schedulingStrategy", json!({"gangPolicy": "All"}), "3"),
        ("/roles/0/replicas", json!(3), "4"),
    ] {
        edit_spec(path, value);
        cluster.wait_for(revision, &|server| has_revision(server, revision)).await;
        cluster.wait_until_ready("chat").await;
        cluster.test_cluster.wait_until_idle().await;
        assert_eq!(cluster.service("chat")["metadata"]["generation"].to_string(), revision, "{path}");
        let is_old = |name: &String| !name.starts_with("chat-decode-2");
        let mut remaining_pods = pod_uids(&cluster.server);
        remaining_pods.retain(|name, _| is_old(name));
        assert_eq!(remaining_pods, pods, "{path}");
        let mut remaining_sets = generations(&cluster.server);
        remaining_sets.retain(|name, _| is_old(name));
        assert_eq!(remaining_sets, sets, "{path}");
    }
    has_set_count(&cluster.server, sets.len() + 1).expect("an additional replica");
    for set in cluster.server.list(LEADER_WORKER_SETS) {
        assert!(!set["spec"].to_string().contains(REVISION), "{set:#}");
    }
    for pod in cluster.server.list("pods") {
        assert_eq!(pod["metadata"]["labels"][REVISION], Value::Null, "{pod:#}");
    }
}

// spec: TOP-59
// spec: TOP-72
// spec: TOP-73
#[tokio::test(start_paused = true)]
async fn pod_group_is_updated_before_its_replicas() {
    let cluster = SimulatedCluster::with_gpus(112);
    let mut service = disaggregated_service();
    service["spec"]["schedulingStrategy"] = json!({"gangPolicy": "All"});
    cluster.server.create(FUSIONINFER_SERVICES, service).unwrap();
    let group = |server: &Server| server.get(POD_GROUPS, "default", "deepseek-r1-disagg");
    let tasks =
        |server: &Server| group(server).map_or(0, |group| group["spec"]["minTaskMember"].as_object().unwrap().len());
    // Every existing LeaderWorkerSet is a member of the PodGroup.
    let sets_are_in_group = |server: &Server| assert!(server.list(LEADER_WORKER_SETS).len() <= tasks(server));
    cluster
        .wait_for_with_invariant("readiness", &|server| ready_service(server, "deepseek-r1-disagg"), &sets_are_in_group)
        .await;
    let generations_before = generations(&cluster.server);
    scale(&cluster, 1, 3);
    cluster
        .wait_for_with_invariant(
            "a third decode",
            &|server| ready_service(server, "deepseek-r1-disagg").filter(|_| tasks(server) == 4),
            &sets_are_in_group,
        )
        .await;
    let updated_group = group(&cluster.server).unwrap();
    assert_eq!(
        (&updated_group["spec"]["minMember"], &updated_group["spec"]["minTaskMember"]["decode-2"]),
        (&json!(14), &json!(4))
    );
    assert_eq!(updated_group["status"]["phase"], "Running", "the scheduler's status is retained");
    let generations_after = generations(&cluster.server);
    assert!(
        generations_before.iter().all(|(name, generation)| generations_after[name] == *generation),
        "running replicas are not modified"
    );

    let group_shrinks_first = |server: &Server| {
        let sets = server.list(LEADER_WORKER_SETS).len();
        assert!(sets == 4 || tasks(server) == 2, "{sets} sets, {} tasks", tasks(server));
    };
    scale(&cluster, 1, 1);
    cluster.wait_for_with_invariant("one decode", &|server| has_set_count(server, 2), &group_shrinks_first).await;
    assert_eq!(group(&cluster.server).unwrap()["spec"]["minTaskMember"], json!({"prefill-0": 2, "decode-0": 4}));
}

// spec: TOP-76
#[tokio::test(start_paused = true)]
async fn prunes_owned_objects_and_retains_foreign_ones() {
    let cluster = SimulatedCluster::with_gpus(80);
    let foreign = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "deepseek-r1-disagg-prefill-7", "namespace": "default", "labels":
            {"fusioninfer.io/service": "deepseek-r1-disagg", "fusioninfer.io/role-name": "prefill"}},
        "spec": {"replicas": 0, "leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": []}}}}});
    cluster.server.create(LEADER_WORKER_SETS, foreign).unwrap();
    cluster.server.create(FUSIONINFER_SERVICES, disaggregated_service()).unwrap();
    cluster.wait_until_ready("deepseek-r1-disagg").await;
    // Without a decoder and with a single node, the service no longer has a gang.
    cluster.test_cluster.update_object(FUSIONINFER_SERVICES, "deepseek-r1-disagg", |service| {
        service["spec"]["roles"] = json!([role("prefill", "prefiller", 1, 1, 8)]);
    });
    cluster.wait_for("no group", &|server| server.list(POD_GROUPS).is_empty().then_some(())).await;
    cluster.wait_until_ready("deepseek-r1-disagg").await;
    // The additional replica stops once another one is ready.
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(
        cluster.object_names(LEADER_WORKER_SETS),
        ["deepseek-r1-disagg-prefill-0", "deepseek-r1-disagg-prefill-7"]
    );
    let components = cluster.service("deepseek-r1-disagg")["status"]["components"].clone();
    assert_eq!(components.as_object().unwrap().keys().collect::<Vec<_>>(), ["prefill"]);

    cluster.server.delete(FUSIONINFER_SERVICES, "default", "deepseek-r1-disagg", None).unwrap();
    cluster.wait_for("no Pods", &|server| server.list("pods").is_empty().then_some(())).await;
    let kinds = [
        LEADER_WORKER_SETS,
        REVISIONS,
        "services",
        "backendpools.inference.networking.x-k8s.io",
        "llmusecasesets.inference.networking.x-k8s.io",
    ];
    let remaining: Vec<String> = kinds.iter().flat_map(|kind| cluster.object_names(kind)).collect();
    assert_eq!(remaining, ["deepseek-r1-disagg-prefill-7"; 2], "the foreign set and its headless Service remain");
}

// spec: TOP-76
#[tokio::test(start_paused = true)]
async fn foreign_group_with_the_same_name_is_not_modified() {
    let cluster = SimulatedCluster::with_gpus(80);
    let foreign = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "deepseek-r1-disagg", "namespace": "default"}, "spec": {"minMember": 1}});
    let created = cluster.server.create(POD_GROUPS, foreign).unwrap();
    cluster.server.create(FUSIONINFER_SERVICES, disaggregated_service()).unwrap();
    let condition = cluster.wait_for_condition("deepseek-r1-disagg", "Initialized", "ObjectNotOurs").await;
    assert!(
        condition["message"].as_str().unwrap().starts_with("PodGroup default/deepseek-r1-disagg is owned by "),
        "{condition}"
    );
    assert_eq!(cluster.object_names(LEADER_WORKER_SETS), [""; 0]);
    assert_eq!(cluster.server.get(POD_GROUPS, "default", "deepseek-r1-disagg").unwrap()["spec"], created["spec"]);
    // The service continues after the object is deleted.
    cluster.server.delete(POD_GROUPS, "default", "deepseek-r1-disagg", None).unwrap();
    cluster.wait_until_ready("deepseek-r1-disagg").await;
}

#[tokio::test(start_paused = true)]
async fn reverts_foreign_edits_and_keeps_foreign_fields() {
    let cluster = cluster_with_three_workers().await;
    let mut edited_set = (*cluster.server.get(LEADER_WORKER_SETS, "default", "chat-w-1").unwrap()).clone();
    edited_set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] = json!("other:1");
    edited_set["metadata"]["labels"]["example.com/team"] = json!("search");
    cluster.server.update(LEADER_WORKER_SETS, edited_set).unwrap();
    cluster
        .wait_for("the image", &|server| images(server).iter().all(|image| image.ends_with("v0.11.0")).then_some(()))
        .await;
    cluster.wait_until_ready("chat").await;
    let set = cluster.server.get(LEADER_WORKER_SETS, "default", "chat-w-1").unwrap();
    assert_eq!(set["metadata"]["labels"]["example.com/team"], "search");
    cluster.server.delete(LEADER_WORKER_SETS, "default", "chat-w-1", None).unwrap();
    cluster.wait_for("a new LeaderWorkerSet", &|server| has_set_count(server, 3)).await;
    cluster.wait_until_ready("chat").await;
}

// spec: TOP-77
#[tokio::test(start_paused = true)]
async fn deleted_pod_changes_no_owned_object() {
    let cluster = SimulatedCluster::with_gpus(80);
    cluster.server.create(FUSIONINFER_SERVICES, disaggregated_service()).unwrap();
    cluster.wait_until_ready("deepseek-r1-disagg").await;
    let before = (
        generations(&cluster.server),
        cluster.server.get(POD_GROUPS, "default", "deepseek-r1-disagg").unwrap()["spec"].clone(),
    );
    let worker = "deepseek-r1-disagg-decode-0-0-1";
    let uid = cluster.server.get("pods", "default", worker).unwrap()["metadata"]["uid"].clone();
    cluster.server.delete("pods", "default", worker, None).unwrap();
    let is_replaced = |server: &Server| {
        let pod = server.get("pods", "default", worker)?;
        (pod["metadata"]["uid"] != uid).then_some(())
    };
    cluster.wait_for("another Pod", &is_replaced).await;
    cluster.wait_until_ready("deepseek-r1-disagg").await;
    let after = (
        generations(&cluster.server),
        cluster.server.get(POD_GROUPS, "default", "deepseek-r1-disagg").unwrap()["spec"].clone(),
    );
    assert_eq!(before, after);
}

// spec: TOP-71
#[tokio::test(start_paused = true)]
async fn detects_installed_and_uninstalled_integrations() {
    let cluster =
        SimulatedCluster::with_crds(80, [api::crds(), vec![api::integrations::leader_worker_set_crd()]].concat());
    cluster.server.create(FUSIONINFER_SERVICES, disaggregated_service()).unwrap();
    cluster
        .server
        .create(FUSIONINFER_SERVICES, service_with_roles("alone", vec![role("w", "worker", 1, 1, 8)]))
        .unwrap();
    // A service without a gang does not need Volcano.
    cluster.wait_until_ready("alone").await;
    let condition = cluster.wait_for_condition("deepseek-r1-disagg", "Initialized", "KindMissing").await;
    assert_eq!(
        condition["message"],
        "The cluster does not serve PodGroup; install Volcano (scheduling.volcano.sh) to run this service"
    );
    assert_eq!(cluster.object_names(LEADER_WORKER_SETS), ["alone-w-0"], "no Pod waits for a missing group");
    cluster.server.delete(FUSIONINFER_SERVICES, "default", "alone", None).unwrap();
    cluster.wait_for("free capacity", &|server| server.list("pods").is_empty().then_some(())).await;
    cluster.server.create(CRDS, api::integrations::pod_group_crd()).unwrap();
    cluster.wait_until_ready("deepseek-r1-disagg").await;
    cluster.server.delete(CRDS, "", "leaderworkersets.leaderworkerset.x-k8s.io", None).unwrap();
    let condition = cluster.wait_for_condition("deepseek-r1-disagg", "Ready", "KindMissing").await;
    assert!(
        condition["message"].as_str().unwrap().contains("LeaderWorkerSet (leaderworkerset.x-k8s.io)"),
        "{condition}"
    );
    cluster.server.create(CRDS, api::integrations::leader_worker_set_crd()).unwrap();
    cluster.wait_until_ready("deepseek-r1-disagg").await;
}

/// All missing integrations are reported together.
// spec: TOP-71
#[tokio::test(start_paused = true)]
async fn reports_all_missing_integrations_together() {
    let cluster = SimulatedCluster::with_crds(80, api::crds());
    cluster.server.create(FUSIONINFER_SERVICES, disaggregated_service()).unwrap();
    let condition = cluster.wait_for_condition("deepseek-r1-disagg", "Initialized", "KindMissing").await;
    assert_eq!(
        condition["message"],
        "The cluster does not serve PodGroup and LeaderWorkerSet; install Volcano (scheduling.volcano.sh) and \
         LeaderWorkerSet (leaderworkerset.x-k8s.io) to run this service"
    );
}

/// Two of three replicas lost their nodes, one of them after the update: the last ready replica is not updated, and the
/// condition explains the wait.
#[tokio::test(start_paused = true)]
async fn reports_required_replicas_of_a_rollout_without_capacity() {
    let mut cluster = cluster_with_three_workers().await;
    set_image(&cluster, "chat", "engine:2");
    let first_updated = |server: &Server| {
        (images(server).iter().filter(|image| image.ends_with("engine:2")).count() == 1).then_some(())
    };
    cluster.wait_for("the first replica", &first_updated).await;
    let remaining_node = cluster.server.get("pods", "default", "chat-w-2-0").unwrap()["spec"]["nodeName"].clone();
    for node in cluster.object_names("nodes").into_iter().filter(|name| remaining_node != **name) {
        cluster.server.delete("nodes", "", &node, None).unwrap();
    }
    let waits_for_ready_replicas = |server: &Server| {
        let ready = condition(server, "chat", "Ready")?;
        ready["message"]
            .as_str()?
            .contains("the next replica is updated once 3 replicas are ready (currently 1)")
            .then_some(ready)
    };
    let ready = cluster.wait_for("the message about ready replicas", &waits_for_ready_replicas).await;
    assert_eq!(ready["reason"], "Unschedulable", "{ready}");
    assert_eq!(condition(&cluster.server, "chat", "Active").unwrap()["status"], "True");
    cluster.add_gpus(24);
    cluster.wait_until_ready("chat").await;
    assert!(images(&cluster.server).iter().all(|image| image.ends_with("engine:2")));
}

// spec: TOP-74
// spec: TOP-84
#[tokio::test(start_paused = true)]
async fn writes_nothing_without_changes() {
    let cluster = cluster_with_three_workers().await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let writes_before = cluster.test_cluster.requests().0;
    tokio::time::sleep(std::time::Duration::from_secs(3000)).await;
    assert_eq!(cluster.test_cluster.requests().0, writes_before);
}
