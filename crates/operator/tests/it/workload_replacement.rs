//! Replacement of a Deployment by a LeaderWorkerSet, and back, because the number of nodes of an engine changes.

use std::sync::Arc;

use cluster::{IDENTITY_ANNOTATION, find_current_condition};
use embedded::Server;
use operator::{revision_number, rollout_pause_annotation};
use rstest::rstest;
use serde_json::{Value, json};

use crate::ownership::as_earlier_release;
use crate::simulated_cluster::{LEADER_WORKER_SETS, SimulatedCluster};
use crate::test_cluster::OME_SERVICES;

const DEPLOYMENTS: &str = "deployments.apps";
const BACKEND_POOLS: &str = "backendpools.inference.networking.x-k8s.io";

/// Returns a container that requests `gpus` GPUs.
fn runner(image: &str, port: u16, gpus: u32) -> Value {
    json!({"name": "ome-container", "image": image, "ports": [{"containerPort": port}],
        "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}})
}

/// Returns an engine of one Pod with two GPUs.
pub(crate) fn small_engine(image: &str) -> Value {
    let mut runner = runner(image, 8080, 2);
    runner["readinessProbe"] = json!({"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 5});
    json!({"runner": runner})
}

/// Returns an engine of two Pods with eight GPUs each.
pub(crate) fn large_engine() -> Value {
    let mut leader = runner("large:1", 9090, 8);
    leader["readinessProbe"] = json!({"httpGet": {"path": "/health", "port": 9090}, "initialDelaySeconds": 5});
    json!({"leader": {"runner": leader}, "worker": {"size": 1, "runner": runner("large:1", 9090, 8)}})
}

pub(crate) fn chat(engine: Value) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"}, "spec": {"engine": engine}})
}

pub(crate) async fn cluster_with(gpus: usize, engine: Value) -> SimulatedCluster {
    let cluster = SimulatedCluster::with_gpus(gpus);
    cluster.server.create(OME_SERVICES, chat(engine)).unwrap();
    cluster.wait_for("chat to be ready", &is_ready).await;
    cluster
}

pub(crate) fn set_engine(cluster: &SimulatedCluster, engine: &Value) {
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| service["spec"]["engine"] = engine.clone());
}

pub(crate) fn condition(server: &Server, kind: &str) -> Option<Value> {
    find_current_condition(&*server.get(OME_SERVICES, "default", "chat")?, kind).cloned()
}

pub(crate) fn is_ready(server: &Server) -> Option<()> {
    (condition(server, "Ready")?["status"] == "True").then_some(())
}

fn is_pod_ready(pod: &Value) -> bool {
    cluster::find_condition(&pod["status"]["conditions"], "Ready").is_some_and(|ready| ready["status"] == "True")
        && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Returns the ready Pods that a selector matches.
fn selected_pods(server: &Server, selector: &Value) -> Vec<Arc<Value>> {
    let is_selected = |pod: &Arc<Value>| {
        let labels = &pod["metadata"]["labels"];
        selector.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value) && is_pod_ready(pod)
    };
    server.list("pods").into_iter().filter(is_selected).collect()
}

/// Checks that Service and BackendPool select ready Pods that serve on the port, and no worker of a group.
pub(crate) fn assert_routed(server: &Server) {
    let service = server.get("services", "default", "chat-engine").unwrap();
    let pool = server.get(BACKEND_POOLS, "default", "chat").unwrap();
    for (spec, port) in [
        (&service["spec"], &service["spec"]["ports"][0]["targetPort"]),
        (&pool["spec"], &pool["spec"]["targetPorts"][0]),
    ] {
        let pods = selected_pods(server, &spec["selector"]);
        assert!(!pods.is_empty(), "{} selects no ready Pod", spec["selector"]);
        for pod in pods {
            let worker_index = pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"].as_str();
            assert!(worker_index.is_none_or(|index| index == "0"), "{} is a worker", pod["metadata"]["name"]);
            assert_eq!(pod["spec"]["containers"][0]["ports"][0]["containerPort"], *port, "{}", spec["selector"]);
        }
    }
}

/// Returns the engine workloads as `Kind name`.
fn workloads(server: &Server) -> Vec<String> {
    let name = |kind: &str, object: Arc<Value>| format!("{kind} {}", object["metadata"]["name"].as_str().unwrap());
    let deployments = server.list(DEPLOYMENTS).into_iter().map(|object| name("Deployment", object));
    deployments
        .chain(server.list(LEADER_WORKER_SETS).into_iter().map(|object| name("LeaderWorkerSet", object)))
        .collect()
}

/// Returns the images of all Pods, sorted.
fn images(server: &Server) -> Vec<String> {
    let image = |pod: Arc<Value>| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    let mut images: Vec<String> = server.list("pods").into_iter().map(image).collect();
    images.sort();
    images
}

/// Waits until the service is ready and only Pods of these images exist, and checks `invariant` after every change.
pub(crate) async fn wait_for_images(cluster: &SimulatedCluster, expected: &[&str], invariant: &dyn Fn(&Server)) {
    let is_replaced = |server: &Server| (images(server) == expected).then(|| is_ready(server)).flatten();
    cluster.wait_for_with_invariant(&format!("{expected:?}"), &is_replaced, invariant).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_routed(&cluster.server);
}

/// Waits until workloads of both kinds exist.
async fn wait_for_both(cluster: &SimulatedCluster, invariant: &dyn Fn(&Server)) {
    let exist = |server: &Server| (workloads(server).len() == 2).then_some(());
    cluster.wait_for_with_invariant("both workloads", &exist, invariant).await;
}

fn selectors(server: &Server) -> [Value; 2] {
    let service = server.get("services", "default", "chat-engine").unwrap();
    let pool = server.get(BACKEND_POOLS, "default", "chat").unwrap();
    [&service, &pool].map(|route| route["spec"]["selector"].clone())
}

#[tokio::test(start_paused = true)]
async fn deployment_serves_until_the_leader_worker_set_is_ready() {
    let cluster = cluster_with(24, small_engine("small:1")).await;
    set_engine(&cluster, &large_engine());
    let waits = |server: &Server| {
        let ready = condition(server, "Ready")?;
        let message = ready["message"].as_str().filter(|message| message.contains("Pod chat-engine-0"))?.to_owned();
        Some((ready["status"].clone(), message))
    };
    let (status, message) = cluster.wait_for_with_invariant("the first Pod", &waits, &assert_routed).await;
    assert_eq!(status, "False", "the service is ready once the current generation is");
    let expected =
        "Deployment default/chat-engine serves until LeaderWorkerSet default/chat-engine is ready. Pod chat-engine-0";
    assert!(message.starts_with(expected), "{message}");
    let service = cluster.server.get(OME_SERVICES, "default", "chat").unwrap();
    assert_eq!(service["status"]["components"]["engine"]["readyReplicas"], 1);
    assert_eq!(service["status"]["url"], "http://chat-engine.default.svc.cluster.local:8080");

    wait_for_images(&cluster, &["large:1", "large:1"], &assert_routed).await;
    assert_eq!(workloads(&cluster.server), ["LeaderWorkerSet chat-engine"]);
    let service = cluster.server.get(OME_SERVICES, "default", "chat").unwrap();
    assert_eq!(service["status"]["url"], "http://chat-engine.default.svc.cluster.local:9090");
    assert!(condition(&cluster.server, "NoSurgeCapacity").is_none());
    let revisions = cluster.server.list("controllerrevisions.apps");
    assert_eq!(revisions.iter().map(|revision| revision_number(revision)).max(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn leader_worker_set_serves_until_the_deployment_is_ready() {
    let cluster = cluster_with(24, large_engine()).await;
    set_engine(&cluster, &small_engine("small:1"));
    wait_for_images(&cluster, &["small:1"], &assert_routed).await;
    assert_eq!(workloads(&cluster.server), ["Deployment chat-engine"]);
    let labels = json!({"ome.io/inferenceservice": "chat", "component": "engine"});
    assert_eq!(selectors(&cluster.server), [labels.clone(), labels], "the restriction ends with the old Pods");
}

#[tokio::test(start_paused = true)]
async fn deployment_that_holds_the_accelerators_stops_first_with_an_announcement() {
    let cluster = cluster_with(16, small_engine("small:1")).await;
    set_engine(&cluster, &large_engine());
    let announcement = cluster.wait_for("the announcement", &|server| condition(server, "NoSurgeCapacity")).await;
    let expected = "LeaderWorkerSet default/chat-engine starts after the Pods that it replaces have stopped, because no \
        accelerators are free for both: the service is unavailable until it is ready";
    assert_eq!((&announcement["reason"], &announcement["message"]), (&json!("NoFreeAccelerators"), &json!(expected)));
    let is_announced = |server: &Server| {
        let is_ready = is_ready(server).is_some();
        assert_eq!(condition(server, "NoSurgeCapacity").is_none(), is_ready, "announced until the service is ready");
    };
    wait_for_images(&cluster, &["large:1", "large:1"], &is_announced).await;
    assert!(condition(&cluster.server, "NoSurgeCapacity").is_none());
}

/// Stopping the old engine would not suffice: it serves until a node is added.
#[tokio::test(start_paused = true)]
async fn deployment_serves_while_the_leader_worker_set_does_not_fit_at_all() {
    let mut cluster = cluster_with(8, small_engine("small:1")).await;
    set_engine(&cluster, &large_engine());
    let waits = |server: &Server| (condition(server, "Ready")?["reason"] == "Unschedulable").then_some(());
    cluster.wait_for_with_invariant("the Pods that wait", &waits, &assert_routed).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_routed(&cluster.server);
    assert!(condition(&cluster.server, "NoSurgeCapacity").is_none(), "nothing is interrupted");
    cluster.scale_nodes_to(24);
    wait_for_images(&cluster, &["large:1", "large:1"], &assert_routed).await;
}

#[tokio::test(start_paused = true)]
async fn crashing_deployment_gives_its_accelerators_to_the_leader_worker_set() {
    let cluster = SimulatedCluster::with_gpus(16);
    cluster.server.create(OME_SERVICES, chat(small_engine("bad"))).unwrap();
    let has_crashed = |server: &Server| (condition(server, "Ready")?["reason"] == "CrashLoop").then_some(());
    cluster.wait_for("the crash", &has_crashed).await;
    set_engine(&cluster, &large_engine());
    let never_announced = |server: &Server| assert_eq!(condition(server, "NoSurgeCapacity"), None);
    wait_for_images(&cluster, &["large:1", "large:1"], &never_announced).await;
}

/// The second edit returns to the first kind of workload, with the same or another template.
#[rstest]
#[case::undone("small:1")]
#[case::other_template("small:2")]
#[tokio::test(start_paused = true)]
async fn edit_back_to_the_deployment_converges(#[case] image: &str) {
    let cluster = cluster_with(24, small_engine("small:1")).await;
    set_engine(&cluster, &large_engine());
    wait_for_both(&cluster, &assert_routed).await;
    set_engine(&cluster, &small_engine(image));
    wait_for_images(&cluster, &[image], &assert_routed).await;
    assert_eq!(workloads(&cluster.server), ["Deployment chat-engine"]);
    let labels = json!({"ome.io/inferenceservice": "chat", "component": "engine"});
    assert_eq!(selectors(&cluster.server), [labels.clone(), labels]);
}

#[tokio::test(start_paused = true)]
async fn deletion_during_the_replacement_leaves_nothing() {
    let cluster = cluster_with(24, small_engine("small:1")).await;
    set_engine(&cluster, &large_engine());
    wait_for_both(&cluster, &assert_routed).await;
    cluster.server.delete(OME_SERVICES, "default", "chat", None).unwrap();
    let resources =
        [DEPLOYMENTS, LEADER_WORKER_SETS, BACKEND_POOLS, "pods", "services", "podgroups.scheduling.volcano.sh"];
    let is_empty = |server: &Server| resources.iter().all(|resource| server.list(resource).is_empty()).then_some(());
    cluster.wait_for("the deletion", &is_empty).await;
}

#[tokio::test(start_paused = true)]
async fn replacement_survives_restarts_of_the_operator() {
    let mut cluster = SimulatedCluster::without_operator([api::crds(), api::integrations::crds()].concat());
    cluster.scale_nodes_to(24);
    let operator = cluster.test_cluster.start_operator_until_dropped();
    cluster.server.create(OME_SERVICES, chat(small_engine("small:1"))).unwrap();
    cluster.wait_for("chat to be ready", &is_ready).await;
    set_engine(&cluster, &large_engine());
    wait_for_both(&cluster, &assert_routed).await;
    drop(operator);
    cluster.test_cluster.wait_until_idle().await;
    assert_routed(&cluster.server);
    let _operator = cluster.test_cluster.start_operator_until_dropped();
    wait_for_images(&cluster, &["large:1", "large:1"], &assert_routed).await;
    assert_eq!(workloads(&cluster.server), ["LeaderWorkerSet chat-engine"]);
}

#[tokio::test(start_paused = true)]
async fn paused_rollout_replaces_no_workload() {
    let cluster = cluster_with(24, small_engine("small:1")).await;
    let pause = |value: Value| {
        cluster
            .test_cluster
            .update_object(OME_SERVICES, "chat", |service| service["metadata"]["annotations"] = value.clone());
    };
    pause(json!({rollout_pause_annotation("ome.io/v1beta1"): "true"}));
    set_engine(&cluster, &large_engine());
    let is_paused = |server: &Server| (condition(server, "Ready")?["reason"] == "RolloutPaused").then_some(());
    cluster.wait_for_with_invariant("the paused rollout", &is_paused, &assert_routed).await;
    cluster.test_cluster.wait_until_idle().await;
    assert_eq!(workloads(&cluster.server), ["Deployment chat-engine"]);
    assert_routed(&cluster.server);
    pause(json!({}));
    wait_for_images(&cluster, &["large:1", "large:1"], &assert_routed).await;
}

/// A removed component is not retained.
#[tokio::test(start_paused = true)]
async fn removed_component_stops() {
    let cluster = SimulatedCluster::with_gpus(24);
    let mut service = chat(small_engine("small:1"));
    service["spec"]["decoder"] = small_engine("decoder:1");
    cluster.server.create(OME_SERVICES, service).unwrap();
    cluster.wait_for("chat to be ready", &is_ready).await;
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["spec"].as_object_mut().unwrap().remove("decoder");
    });
    cluster.wait_for("the removal", &|server| (images(server) == ["small:1"]).then_some(())).await;
    assert_eq!(workloads(&cluster.server), ["Deployment chat-engine"]);
}

/// Returns an engine of the image with Pods that serve on the port.
fn engine_on(image: &str, port: u16, replicas: usize) -> Value {
    let mut runner = runner(image, port, 2);
    runner["readinessProbe"] = json!({"httpGet": {"path": "/health", "port": port}, "initialDelaySeconds": 5});
    json!({"runner": runner, "minReplicas": replicas, "maxReplicas": replicas})
}

/// The port changes with the template of the Deployment: requests go to the old port until as many new Pods are ready. The
/// nodes have free accelerators for an additional Pod, or not.
#[rstest]
#[case::additional_pod(2, 24)]
#[case::only_replica(1, 24)]
#[case::full_nodes(4, 8)]
#[tokio::test(start_paused = true)]
async fn port_changes_without_an_interruption(#[case] replicas: usize, #[case] gpus: usize) {
    let cluster = cluster_with(gpus, engine_on("small:1", 8080, replicas)).await;
    set_engine(&cluster, &engine_on("small:2", 9090, replicas));
    wait_for_images(&cluster, &vec!["small:2"; replicas], &assert_routed).await;
    let labels = json!({"ome.io/inferenceservice": "chat", "component": "engine"});
    assert_eq!(selectors(&cluster.server), [labels.clone(), labels]);
    let service = cluster.server.get("services", "default", "chat-engine").unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 9090);
    let deployment = cluster.server.get(DEPLOYMENTS, "default", "chat-engine").unwrap();
    assert_eq!(deployment["spec"]["minReadySeconds"], Value::Null, "the limits end with the old Pods");
}

/// The old Pods do not stop before the routes have switched, however late the operator is.
#[rstest]
#[case::additional_pod(2, 24)]
#[case::only_replica(1, 24)]
#[case::full_nodes(4, 8)]
#[tokio::test(start_paused = true)]
async fn changed_port_waits_for_the_operator(#[case] replicas: usize, #[case] gpus: usize) {
    let mut cluster = SimulatedCluster::without_operator([api::crds(), api::integrations::crds()].concat());
    cluster.scale_nodes_to(gpus);
    let operator = cluster.test_cluster.start_operator_until_dropped();
    cluster.server.create(OME_SERVICES, chat(engine_on("small:1", 8080, replicas))).unwrap();
    cluster.wait_for("chat to be ready", &is_ready).await;
    set_engine(&cluster, &engine_on("small:2", 9090, replicas));
    let has_new_pod = |server: &Server| images(server).contains(&"small:2".to_owned()).then_some(());
    cluster.wait_for_with_invariant("a new Pod", &has_new_pod, &assert_routed).await;
    drop(operator);
    cluster.test_cluster.wait_until_idle().await;
    assert_routed(&cluster.server);
    let _operator = cluster.test_cluster.start_operator_until_dropped();
    wait_for_images(&cluster, &vec!["small:2"; replicas], &assert_routed).await;
}

/// Rewrites an object as an earlier release applied it.
fn downgrade(server: &Server, resource: &str, name: &str) {
    let live = server.get(resource, "default", name).unwrap();
    let downgraded = server.update(resource, as_earlier_release(&live)).unwrap();
    assert!(downgraded["metadata"]["annotations"].get(IDENTITY_ANNOTATION).is_none());
}

/// The operator is upgraded between an edit and the end of the replacement: the Deployment that an earlier release created serves
/// until the LeaderWorkerSet is ready, and is then deleted.
#[tokio::test(start_paused = true)]
async fn deployment_of_an_earlier_release_is_replaced() {
    let mut cluster = SimulatedCluster::without_operator([api::crds(), api::integrations::crds()].concat());
    cluster.scale_nodes_to(24);
    let operator = cluster.test_cluster.start_operator_until_dropped();
    cluster.server.create(OME_SERVICES, chat(small_engine("small:1"))).unwrap();
    cluster.wait_for("chat to be ready", &is_ready).await;
    set_engine(&cluster, &large_engine());
    wait_for_both(&cluster, &assert_routed).await;
    drop(operator);
    cluster.test_cluster.wait_until_idle().await;
    downgrade(&cluster.server, DEPLOYMENTS, "chat-engine");
    let _operator = cluster.test_cluster.start_operator_until_dropped();
    wait_for_images(&cluster, &["large:1", "large:1"], &assert_routed).await;
    assert_eq!(workloads(&cluster.server), ["LeaderWorkerSet chat-engine"]);
}

/// A removed component of an earlier release may be a copy: it remains, and one event of the service names the command that
/// deletes it, also after restarts of the operator.
#[tokio::test(start_paused = true)]
async fn obsolete_deployment_of_an_earlier_release_is_reported_once() {
    let mut cluster = SimulatedCluster::without_operator([api::crds(), api::integrations::crds()].concat());
    cluster.scale_nodes_to(24);
    let operator = cluster.test_cluster.start_operator_until_dropped();
    let mut service = chat(small_engine("small:1"));
    service["spec"]["decoder"] = small_engine("decoder:1");
    cluster.server.create(OME_SERVICES, service).unwrap();
    cluster.wait_for("chat to be ready", &is_ready).await;
    drop(operator);
    cluster.test_cluster.wait_until_idle().await;
    downgrade(&cluster.server, DEPLOYMENTS, "chat-decoder");
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["spec"].as_object_mut().unwrap().remove("decoder");
    });
    let reported = |server: &Server| {
        let events = server.list("events").into_iter().filter(|event| event["reason"] == "ObsoleteObject");
        events
            .map(|event| [&event["involvedObject"]["name"], &event["type"], &event["message"]].map(Value::clone))
            .collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let _operator = cluster.test_cluster.start_operator_until_dropped();
        cluster.wait_for("the event", &|server| reported(server).pop()).await;
        cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| {
            service["metadata"]["annotations"]["example.com/touched"] = json!("true");
        });
        cluster.test_cluster.wait_until_idle().await;
    }
    let events = reported(&cluster.server);
    let [[service, kind, message]] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((service, kind), (&json!("chat"), &json!("Warning")));
    let message = message.as_str().unwrap();
    assert!(message.starts_with("Deployment default/chat-decoder is obsolete"), "{message}");
    assert!(message.ends_with("run `kubectl delete deployments.apps chat-decoder -n default`"), "{message}");
    assert!(workloads(&cluster.server).contains(&"Deployment chat-decoder".to_owned()));
}

/// A router that is added to a service gets the requests once it is ready. Until then, also while it crashes, the engine does.
#[tokio::test(start_paused = true)]
async fn engine_serves_until_an_added_router_is_ready() {
    let cluster = cluster_with(24, small_engine("small:1")).await;
    let set_router = |image: &str| {
        let router = engine_on(image, 9090, 1);
        cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| service["spec"]["router"] = router.clone());
    };
    set_router("bad");
    let has_crashed = |server: &Server| (condition(server, "Ready")?["reason"] == "CrashLoop").then_some(());
    cluster.wait_for_with_invariant("the crash", &has_crashed, &assert_routed).await;
    set_router("router:1");
    wait_for_images(&cluster, &["router:1", "small:1"], &assert_routed).await;
    let [_, pool] = selectors(&cluster.server);
    assert_eq!(pool, json!({"ome.io/inferenceservice": "chat", "component": "router"}));
    cluster.test_cluster.update_object(OME_SERVICES, "chat", |service| {
        service["spec"].as_object_mut().unwrap().remove("router");
    });
    wait_for_images(&cluster, &["small:1"], &assert_routed).await;
    let [_, pool] = selectors(&cluster.server);
    assert_eq!(pool, json!({"ome.io/inferenceservice": "chat", "component": "engine"}));
}
