//! An engine of `ome.io` over several nodes: one LeaderWorkerSet for all replicas, each with names of its own.

use serde_json::{Value, json};

use super::world::{GROUPS, OME, PODS, SERVICES, SETS, STATEFUL_SETS, World};

const NAMESPACE: &str = "workers";

fn service() -> Value {
    let runner = json!({"name": "ome-container", "image": "vllm/vllm-openai:v0.11.0",
        "command": ["vllm", "serve", "meta-llama/Llama-3.1-405B", "--tensor-parallel-size=16"],
        "ports": [{"containerPort": 8080}], "resources": {"limits": {"nvidia.com/gpu": "8"}}});
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "large", "namespace": NAMESPACE},
        "spec": {"engine": {"minReplicas": 2, "maxReplicas": 2, "leader": {"runner": runner}, "worker": {"size": 1}}}})
}

/// LeaderWorkerSet names a headless Service after each leader: beside them the component's own Service keeps its name.
// spec: TOP-46
pub(super) async fn every_replica_has_names_of_its_own(world: &World) {
    world.namespace(NAMESPACE).await;
    world.cluster.apply(&realcluster::gpu_nodes(0, 10)).await.unwrap();
    world.apply(&service()).await;
    world.condition(OME, NAMESPACE, "large", ("Ready", "True"), "").await;
    let words = "every replica has its nodes: 2 engine";
    world.condition(OME, NAMESPACE, "large", ("GangScheduled", "True"), words).await;
    let services = world.until("three Services", SERVICES, NAMESPACE, |found| found.len() == 3).await;
    let cluster_ip = |name: &str| services[name]["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    assert_ne!(cluster_ip("large-engine"), "None", "ours answers requests");
    assert_eq!(["large-engine-0", "large-engine-1"].map(cluster_ip), ["None"; 2]);
    let pods = world.until("four Pods", PODS, NAMESPACE, |found| found.len() == 4).await;
    for (name, pod) in &pods {
        let leader = name.split("-engine-").nth(1).and_then(|rest| rest.split('-').next()).unwrap();
        let leader = format!("large-engine-{leader}");
        assert_eq!(pod["spec"]["subdomain"], *leader, "{name}");
        let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        let address = env.iter().find(|one| one["name"] == "LWS_LEADER_ADDRESS").unwrap();
        assert_eq!(address["value"], format!("{leader}.{leader}.{NAMESPACE}"), "{name}");
    }
    world.delete(OME, NAMESPACE, "large").await;
    world.nothing_left(NAMESPACE, &[OME, SETS, STATEFUL_SETS, GROUPS, PODS, SERVICES]).await;
}
