//! A multi-node engine of `ome.io`: a LeaderWorkerSet for all replicas, which have unique names.

use serde_json::{Value, json};

use super::test_cluster::{GROUPS, OME, PODS, SERVICES, SETS, STATEFUL_SETS, TestCluster};

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
    let message = "All replicas are scheduled: engine 2 of 2";
    test_cluster.wait_for_condition(OME, NAMESPACE, "large", ("GangScheduled", "True"), message).await;
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
