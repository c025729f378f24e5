//! Rollouts of a Deployment on a class without accelerators for an additional Pod.

use std::sync::Arc;

use embedded::Server;
use serde_json::{Value, json};

use crate::scaling::{add_node, cluster_with_full_class, condition, service, wait_until_ready};
use crate::simulated_cluster::SimulatedCluster;
use crate::supply::{self, RUNTIMES, selected_class};
use crate::test_cluster::OME_SERVICES;

const DEPLOYMENTS: &str = "deployments.apps";

fn set_engine(cluster: &SimulatedCluster, engine: &Value) {
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| service["spec"]["engine"] = engine.clone());
}

/// Edits the image of the runtime, as `kubectl apply` does.
pub(crate) fn set_runtime_image(cluster: &SimulatedCluster, image: &str) {
    let mut runtime = (*cluster.server.get(RUNTIMES, "", "any").unwrap()).clone();
    runtime["spec"]["engineConfig"]["runner"]["image"] = json!(image);
    cluster.server.update(RUNTIMES, runtime).unwrap();
}

pub(crate) fn strategy(server: &Server) -> Value {
    server.get(DEPLOYMENTS, "default", "chat-engine").unwrap()["spec"]["strategy"].clone()
}

/// Returns the images of Pods that are not terminating.
pub(crate) fn images(server: &Server) -> Vec<String> {
    let is_not_terminating = |pod: &Arc<Value>| pod["metadata"]["deletionTimestamp"].is_null();
    let image = |pod: Arc<Value>| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    server.list("pods").into_iter().filter(is_not_terminating).map(image).collect()
}

pub(crate) async fn wait_for_image(cluster: &SimulatedCluster, image: &str, pods: usize) {
    let is_replaced = |server: &Server| {
        let ready = condition(server, "Ready")?["status"] == "True";
        (ready && images(server) == vec![image.to_owned(); pods]).then_some(())
    };
    cluster.wait_for(&format!("{pods} Pods of {image}"), &is_replaced).await;
}

#[tokio::test(start_paused = true)]
async fn single_replica_on_a_full_class_is_recreated_with_an_announcement() {
    let cluster = cluster_with_full_class().await;
    set_engine(&cluster, &json!({"runner": {"args": ["--port=8080", "--max-model-len=4096"]}}));
    let announcement = cluster.wait_for("the announcement", &|server| condition(server, "NoSurgeCapacity")).await;
    let expected = "Deployment default/chat-engine is updated without an additional Pod, for which no accelerators are free: \
        it is recreated, and unavailable until a new Pod is ready";
    assert_eq!((&announcement["reason"], &announcement["message"]), (&json!("NoFreeAccelerators"), &json!(expected)));
    let is_updated = |server: &Server| {
        let pods = server.list("pods");
        let [pod] = pods.as_slice() else { return None };
        let has_argument = pod["spec"]["containers"][0]["args"].as_array()?.contains(&json!("--max-model-len=4096"));
        (has_argument && condition(server, "Ready")?["status"] == "True").then_some(())
    };
    cluster.wait_for("the new argument", &is_updated).await;
    assert_eq!(selected_class(&service(&cluster.server)), "small", "the edit does not select again");
    cluster
        .wait_for("the end of the announcement", &|server| condition(server, "NoSurgeCapacity").is_none().then_some(()))
        .await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(strategy(&cluster.server), json!({"type": "Recreate"}), "nothing changes between rollouts");

    // With room for an additional Pod, the next rollout does not interrupt the service.
    add_node(&cluster.server, "node-small-2", "small", 1);
    set_engine(&cluster, &json!({}));
    let surge = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    cluster.wait_for("the default strategy", &|server| (strategy(server) == surge).then_some(())).await;
    wait_until_ready(&cluster, "True").await;
    assert!(condition(&cluster.server, "NoSurgeCapacity").is_none());
}

#[tokio::test(start_paused = true)]
async fn replicas_on_a_full_class_are_replaced_one_at_a_time() {
    let cluster = cluster_with_full_class().await;
    add_node(&cluster.server, "node-small-2", "small", 1);
    set_engine(&cluster, &json!({"minReplicas": 2, "maxReplicas": 2}));
    wait_for_image(&cluster, "example.com/any:1", 2).await;
    set_runtime_image(&cluster, "example.com/any:2");
    let is_replaced = |server: &Server| (images(server) == ["example.com/any:2"; 2]).then_some(());
    let never_interrupted = |server: &Server| {
        let is_ready = |pod: &Arc<Value>| {
            cluster::find_condition(&pod["status"]["conditions"], "Ready")
                .is_some_and(|ready| ready["status"] == "True")
        };
        assert!(server.list("pods").iter().any(is_ready), "one replica serves");
    };
    cluster.wait_for_with_invariant("the new image", &is_replaced, &never_interrupted).await;
    wait_until_ready(&cluster, "True").await;
    assert_eq!(strategy(&cluster.server)["rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": 1}));
}

/// The Deployment has no Pod for a moment, as while it is recreated.
#[tokio::test(start_paused = true)]
async fn eviction_of_the_only_pod_after_a_recreation_is_not_announced() {
    let cluster = cluster_with_full_class().await;
    set_runtime_image(&cluster, "example.com/any:2");
    cluster.wait_for("the announcement", &|server| condition(server, "NoSurgeCapacity")).await;
    wait_for_image(&cluster, "example.com/any:2", 1).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(strategy(&cluster.server), json!({"type": "Recreate"}));
    let evicted = cluster.server.list("pods").remove(0)["metadata"]["uid"].clone();
    let name = cluster.server.list("pods").remove(0)["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.server.delete("pods", "default", &name, None).unwrap();
    let is_replaced = |server: &Server| {
        let pods = server.list("pods");
        let ready = condition(server, "Ready")?["status"] == "True";
        (ready && !pods.is_empty() && pods.iter().all(|pod| pod["metadata"]["uid"] != evicted)).then_some(())
    };
    let never_announced = |server: &Server| assert_eq!(condition(server, "NoSurgeCapacity"), None);
    cluster.wait_for_with_invariant("the replacement", &is_replaced, &never_announced).await;
}

/// Neither a new replica nor the replacement of an evicted Pod is a rollout.
#[tokio::test(start_paused = true)]
async fn scaling_and_evictions_after_a_rollout_are_not_announced() {
    let cluster = cluster_with_full_class().await;
    add_node(&cluster.server, "node-small-2", "small", 1);
    set_engine(&cluster, &json!({"minReplicas": 2, "maxReplicas": 2}));
    wait_for_image(&cluster, "example.com/any:1", 2).await;
    set_runtime_image(&cluster, "example.com/any:2");
    cluster.wait_for("the announcement", &|server| condition(server, "NoSurgeCapacity")).await;
    wait_for_image(&cluster, "example.com/any:2", 2).await;
    let has_ended = |server: &Server| condition(server, "NoSurgeCapacity").is_none().then_some(());
    cluster.wait_for("the end of the announcement", &has_ended).await;

    let never_announced = |server: &Server| assert_eq!(condition(server, "NoSurgeCapacity"), None);
    let is_ready = |server: &Server| {
        let deployment = server.get(DEPLOYMENTS, "default", "chat-engine").unwrap();
        (deployment["status"]["readyReplicas"] == 3).then_some(())
    };
    add_node(&cluster.server, "node-small-3", "small", 1);
    set_engine(&cluster, &json!({"minReplicas": 3, "maxReplicas": 3}));
    cluster.wait_for_with_invariant("the third replica", &is_ready, &never_announced).await;
    let evicted = cluster.server.list("pods").remove(0)["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.server.delete("pods", "default", &evicted, None).unwrap();
    let is_replaced = |server: &Server| {
        let is_gone = server.list("pods").iter().all(|pod| pod["metadata"]["name"] != evicted.as_str());
        is_ready(server).filter(|()| is_gone)
    };
    cluster.wait_for_with_invariant("the replacement", &is_replaced, &never_announced).await;
    assert_eq!(strategy(&cluster.server)["rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": 1}));
}

#[tokio::test(start_paused = true)]
async fn crashing_pod_gives_its_accelerator_to_its_fix() {
    let cluster = cluster_with_full_class().await;
    set_runtime_image(&cluster, "bad");
    let has_crashed = |server: &Server| (condition(server, "Ready")?["reason"] == "CrashLoop").then_some(());
    cluster.wait_for("the crash", &has_crashed).await;
    set_runtime_image(&cluster, "example.com/any:3");
    wait_for_image(&cluster, "example.com/any:3", 1).await;
    assert_eq!(cluster.server.list("controllerrevisions.apps").len(), 3, "one revision per ReplicaSet");
}

/// The first revision crashes, so that no rollout has ever completed.
#[tokio::test(start_paused = true)]
async fn first_revision_that_crashes_is_replaced() {
    let cluster = cluster_with_full_class().await;
    cluster.server.delete(OME_SERVICES, "default", "chat", None).unwrap();
    set_runtime_image(&cluster, "bad");
    cluster.wait_for("the deletion", &|server| server.list("pods").is_empty().then_some(())).await;
    let mut chat = crate::supply::service("chat", "model");
    chat["spec"]["acceleratorSelector"]["preferredClasses"] = json!(["small"]);
    cluster.server.create(OME_SERVICES, chat).unwrap();
    let has_crashed = |server: &Server| (condition(server, "Ready")?["reason"] == "CrashLoop").then_some(());
    cluster.wait_for("the crash", &has_crashed).await;
    set_runtime_image(&cluster, "example.com/any:3");
    wait_for_image(&cluster, "example.com/any:3", 1).await;
    let announcements =
        cluster.server.list("events").into_iter().filter(|event| event["reason"] == "NoFreeAccelerators");
    assert_eq!(announcements.count(), 1, "the condition remains while the old Pod stops");
}

/// No Pod of an earlier template stops, so there is nothing to announce.
#[tokio::test(start_paused = true)]
async fn new_service_that_waits_for_its_first_pod_is_not_announced_as_updated() {
    let cluster = cluster_with_full_class().await;
    let strategy_before = strategy(&cluster.server);
    cluster.server.delete(OME_SERVICES, "default", "chat", None).unwrap();
    cluster.wait_for("the deletion", &|server| server.list("pods").is_empty().then_some(())).await;
    cluster.server.delete("nodes", "", "node-small", None).unwrap();
    add_node(&cluster.server, "node-small-2", "small", 0);
    let mut chat = crate::supply::service("chat", "model");
    chat["spec"]["acceleratorSelector"] = json!({"acceleratorClass": "small"});
    cluster.server.create(OME_SERVICES, chat).unwrap();
    let is_pending = |server: &Server| (condition(server, "Ready")?["reason"] == "Unschedulable").then_some(());
    let never_announced = |server: &Server| assert_eq!(condition(server, "NoSurgeCapacity"), None);
    cluster.wait_for_with_invariant("the Pod that waits", &is_pending, &never_announced).await;
    cluster.test_cluster.wait_until_idle().await;
    never_announced(&cluster.server);
    assert_eq!(strategy(&cluster.server), strategy_before);
}

#[tokio::test(start_paused = true)]
async fn strategy_of_the_user_is_retained() {
    let cluster = cluster_with_full_class().await;
    let user_strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    set_engine(&cluster, &json!({"deploymentStrategy": user_strategy, "runner": {"args": ["--seed=1"]}}));
    let is_pending = |server: &Server| (condition(server, "Ready")?["reason"] == "Unschedulable").then_some(());
    cluster.wait_for("the additional Pod", &is_pending).await;
    assert_eq!(strategy(&cluster.server), user_strategy);
}

/// Replaces the model of 3B parameters, which needs one accelerator, by one that needs four.
fn set_larger_model(cluster: &SimulatedCluster) {
    cluster.server.create("clusterbasemodels.ome.io", supply::model("larger", "70B")).unwrap();
    let mut runtime = supply::runtime("larger");
    runtime["spec"]["modelSizeRange"] = json!({"min": "60B", "max": "80B"});
    runtime["spec"]["supportedModelFormats"][0]["priority"] = json!(2);
    runtime["spec"]["engineConfig"]["runner"]["readinessProbe"] =
        json!({"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 5});
    cluster.server.create(RUNTIMES, runtime).unwrap();
    cluster
        .test_cluster
        .update_object(OME_SERVICES, "chat", |service| service["spec"]["model"] = json!({"name": "larger"}));
}

/// Checks that a Pod serves.
fn assert_served(server: &Server) {
    let is_serving = |pod: &Arc<Value>| {
        pod["metadata"]["deletionTimestamp"].is_null()
            && cluster::find_condition(&pod["status"]["conditions"], "Ready")
                .is_some_and(|ready| ready["status"] == "True")
    };
    assert!(server.list("pods").iter().any(is_serving), "no Pod serves");
}

/// Waits until only the engine of the larger model runs, and checks `invariant` after every change.
async fn wait_for_larger_model(cluster: &SimulatedCluster, invariant: &dyn Fn(&Server)) {
    let is_replaced = |server: &Server| {
        let ready = condition(server, "Ready")?["status"] == "True";
        let pods = server.list("pods");
        let is_new = pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "example.com/larger:1");
        (ready && is_new && pods.len() == 1).then_some(())
    };
    cluster.wait_for_with_invariant("the larger model", &is_replaced, invariant).await;
}

/// The larger model selects another runtime and another class, which has free accelerators.
#[tokio::test(start_paused = true)]
async fn smaller_model_serves_until_the_larger_one_is_ready() {
    let cluster = cluster_with_full_class().await;
    set_larger_model(&cluster);
    wait_for_larger_model(&cluster, &assert_served).await;
    assert_eq!(selected_class(&service(&cluster.server)), "big");
    assert!(condition(&cluster.server, "NoSurgeCapacity").is_none());
}

/// Stopping the engine of the smaller model would not free an accelerator that the larger one can use.
#[tokio::test(start_paused = true)]
async fn smaller_model_serves_while_the_class_of_the_larger_one_is_full() {
    let cluster = cluster_with_full_class().await;
    let mut other = supply::service("other", "model");
    other["spec"]["acceleratorSelector"]["preferredClasses"] = json!(["big"]);
    other["spec"]["engine"] = json!({"runner": {"resources": {"limits": {"nvidia.com/gpu": "8"}}}});
    cluster.server.create(OME_SERVICES, other).unwrap();
    let is_running = |server: &Server| {
        let other = server.get(OME_SERVICES, "default", "other")?;
        (cluster::find_condition(&other["status"]["conditions"], "Ready")?["status"] == "True").then_some(())
    };
    cluster.wait_for("the other service", &is_running).await;
    set_larger_model(&cluster);
    let waits = |server: &Server| {
        let ready = condition(server, "Ready")?;
        (ready["reason"] == "Unschedulable").then(|| ready["message"].as_str().unwrap().to_owned())
    };
    let smaller_model_serves = |server: &Server| {
        let is_serving = |pod: &Arc<Value>| {
            pod["metadata"]["labels"]["ome.io/inferenceservice"] == "chat"
                && pod["metadata"]["deletionTimestamp"].is_null()
                && cluster::find_condition(&pod["status"]["conditions"], "Ready")
                    .is_some_and(|ready| ready["status"] == "True")
        };
        assert!(server.list("pods").iter().any(is_serving), "no Pod of chat serves");
    };
    let message = cluster.wait_for_with_invariant("the wait for class big", &waits, &smaller_model_serves).await;
    assert!(message.starts_with("Class big is full: the engine requires 4 accelerators and 0 of "), "{message}");
    assert!(condition(&cluster.server, "NoSurgeCapacity").is_none(), "nothing is interrupted");
    cluster.test_cluster.wait_until_idle().await;
    smaller_model_serves(&cluster.server);

    cluster.server.delete(OME_SERVICES, "default", "other", None).unwrap();
    wait_for_larger_model(&cluster, &smaller_model_serves).await;
}

/// Both engines do not fit on the only node: the status announces the interruption.
#[tokio::test(start_paused = true)]
async fn larger_model_that_needs_the_accelerators_of_the_smaller_one_interrupts_with_an_announcement() {
    let cluster = cluster_with_full_class().await;
    cluster.server.delete("nodes", "", "node-big", None).unwrap();
    cluster.server.delete("nodes", "", "node-small", None).unwrap();
    add_node(&cluster.server, "node-small-2", "small", 4);
    let is_moved = |server: &Server| {
        let ready = condition(server, "Ready")?["status"] == "True";
        (ready && server.list("pods").iter().all(|pod| pod["spec"]["nodeName"] == "node-small-2")).then_some(())
    };
    cluster.wait_for("the service on the new node", &is_moved).await;
    set_larger_model(&cluster);
    let announcement = cluster.wait_for("the announcement", &|server| condition(server, "NoSurgeCapacity")).await;
    let expected = "Deployment default/chat-engine is updated without an additional Pod, for which no accelerators are free: \
        it is recreated, and unavailable until a new Pod is ready";
    assert_eq!(announcement["message"], expected);
    wait_for_larger_model(&cluster, &|_| {}).await;
}
