//! A multi-node engine of `ome.io`: a LeaderWorkerSet for all replicas, which have unique names, and which replaces a Deployment.

use serde_json::{Value, json};

use super::test_cluster::{DEPLOYMENTS, GROUPS, OME, Objects, PODS, SERVICES, SETS, STATEFUL_SETS, TestCluster};

const NAMESPACE: &str = "workers";

fn service() -> Value {
    let runner = json!({"name": "ome-container", "image": "vllm/vllm-openai:v0.11.0",
        "command": ["vllm", "serve", "meta-llama/Llama-3.1-405B", "--tensor-parallel-size=16"],
        "ports": [{"containerPort": 8080}], "resources": {"limits": {"nvidia.com/gpu": "8"}}});
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "large", "namespace": NAMESPACE},
        "spec": {"engine": {"minReplicas": 2, "maxReplicas": 2, "leader": {"runner": runner}, "worker": {"size": 1}}}})
}

/// LeaderWorkerSet creates a headless Service per leader, in addition to the Service of the component.
// spec: TOP-46
pub(super) async fn replicas_have_unique_names(test_cluster: &TestCluster) {
    test_cluster.namespace(NAMESPACE).await;
    test_cluster.cluster.apply(&realcluster::gpu_nodes(0, 10)).await.unwrap();
    test_cluster.apply(&service()).await;
    test_cluster.wait_for_condition(OME, NAMESPACE, "large", ("Ready", "True"), "").await;
    test_cluster.wait_for_condition(OME, NAMESPACE, "large", ("GangScheduled", "True"), "FullCapacity").await;
    let services = test_cluster.wait_for("three Services", SERVICES, NAMESPACE, |objects| objects.len() == 3).await;
    let cluster_ip = |name: &str| services[name]["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    assert_ne!(cluster_ip("large-engine"), "None", "the Service of the component has a cluster IP");
    assert_eq!(["large-engine-0", "large-engine-1"].map(cluster_ip), ["None"; 2]);
    let pods = test_cluster.wait_for("four Pods", PODS, NAMESPACE, |objects| objects.len() == 4).await;
    for (name, pod) in &pods {
        let leader = name.split("-engine-").nth(1).and_then(|rest| rest.split('-').next()).unwrap();
        let leader = format!("large-engine-{leader}");
        assert_eq!(pod["spec"]["subdomain"], *leader, "{name}");
        let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        let address = env.iter().find(|variable| variable["name"] == "LWS_LEADER_ADDRESS").unwrap();
        assert_eq!(address["value"], format!("{leader}.{leader}.{NAMESPACE}"), "{name}");
    }
    test_cluster.delete(OME, NAMESPACE, "large").await;
    test_cluster.wait_for_deletion(NAMESPACE, &[OME, SETS, STATEFUL_SETS, GROUPS, PODS, SERVICES]).await;
}

/// The Deployment serves while no node matches the LeaderWorkerSet, and until this is ready. A Deployment replaces it again.
pub(super) async fn deployment_serves_until_it_is_replaced(test_cluster: &TestCluster) {
    let namespace = "replacement";
    let small = || {
        json!({"name": "ome-container", "image": "vllm/vllm-openai:v0.11.0", "ports": [{"containerPort": 8080}],
            "resources": {"limits": {"nvidia.com/gpu": "1"}}})
    };
    let chat = |engine: Value| {
        json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": "chat", "namespace": namespace}, "spec": {"engine": engine}})
    };
    let large = |hostname: &str| {
        let mut engine = service()["spec"]["engine"].clone();
        (engine["minReplicas"], engine["maxReplicas"]) = (json!(1), json!(1));
        if !hostname.is_empty() {
            engine["nodeSelector"] = json!({"kubernetes.io/hostname": hostname});
        }
        chat(engine)
    };
    test_cluster.namespace(namespace).await;
    test_cluster.cluster.apply(&realcluster::gpu_nodes(0, 10)).await.unwrap();
    test_cluster.apply(&chat(json!({"runner": small()}))).await;
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    test_cluster.apply(&large("missing")).await;
    let message = "Deployment replacement/chat-engine serves until LeaderWorkerSet replacement/chat-engine is ready";
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "False"), message).await;
    test_cluster.wait_for("the set", SETS, namespace, |objects| objects.len() == 1).await;
    let deployment = test_cluster.get(DEPLOYMENTS, namespace, "chat-engine").await;
    assert_eq!(deployment["status"]["readyReplicas"], 1);
    let selector = test_cluster.get(SERVICES, namespace, "chat-engine").await["spec"]["selector"].clone();
    assert!(selector["pod-template-hash"].is_string(), "{selector}");

    test_cluster.apply(&large("")).await;
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    test_cluster.wait_for("two Pods", PODS, namespace, |objects| objects.len() == 2).await;
    test_cluster.wait_for("no Deployment", DEPLOYMENTS, namespace, Objects::is_empty).await;
    test_cluster.apply(&chat(json!({"runner": small()}))).await;
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    let labels = json!({"ome.io/inferenceservice": "chat", "component": "engine"});
    test_cluster
        .wait_for("the planned selector", SERVICES, namespace, |objects| {
            objects.get("chat-engine").is_some_and(|service| service["spec"]["selector"] == labels)
        })
        .await;
    test_cluster.wait_for("no set", SETS, namespace, Objects::is_empty).await;
    test_cluster.delete(OME, namespace, "chat").await;
    test_cluster.wait_for_deletion(namespace, &[OME, DEPLOYMENTS, SETS, GROUPS, PODS, SERVICES]).await;
}
