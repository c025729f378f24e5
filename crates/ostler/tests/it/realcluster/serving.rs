//! Services of `ome.io`.

use serde_json::{Value, json};

use super::world::{AUTOSCALERS, CLASSES, DEPLOYMENTS, NODES, OME, PODS, SERVICES, World, named};

fn service(namespace: &str, name: &str, annotations: Value) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"model": {"name": "llama-3-2-3b-instruct"}}})
}

// spec: ACC-96
pub(super) async fn a_service_comes_up_and_goes(world: &World) {
    let namespace = "serving";
    world.namespace(namespace).await;
    world.apply(&service(namespace, "chat", json!({}))).await;
    let ready = world.condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    assert_eq!(ready["status"]["decision"]["components"]["engine"]["acceleratorClass"], "nvidia-h100-80gb");
    let pods = world.until("one Pod", PODS, namespace, |found| found.len() == 1).await;
    let pod = &pods.values().next().unwrap()["spec"];
    assert!(pod["nodeName"].as_str().unwrap().starts_with("gpu-"));
    let resources = &pod["containers"][0]["resources"];
    assert_eq!(
        (&resources["limits"]["nvidia.com/gpu"], &resources["requests"]["nvidia.com/gpu"]),
        (&json!("1"), &json!("1"))
    );
    // Nodes of the class are counted from real Node objects, and what the Pod took is gone.
    world
        .until("the class's nodes", CLASSES, "", |found| {
            let status = &named(found, "nvidia-h100-80gb")["status"];
            status["availableNodes"] == 2 && status["totalAccelerators"] == 16 && status["availableAccelerators"] == 15
        })
        .await;
    world.delete(OME, namespace, "chat").await;
    let pools = ("backendpools.inference.networking.x-k8s.io", "v1alpha1");
    let use_cases = ("llmusecasesets.inference.networking.x-k8s.io", "v1alpha1");
    world.nothing_left(namespace, &[OME, DEPLOYMENTS, PODS, SERVICES, pools, use_cases]).await;
}

/// A term in Gi reaches the scheduler as whole MiB, the label's own unit, and selects the node that has them.
// spec: ACC-38
pub(super) async fn what_reaches_the_scheduler_is_valid(world: &World) {
    let namespace = "terms";
    world.namespace(namespace).await;
    let class = json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "large"}, "spec": {
        "vendor": "nvidia", "family": "hopper", "capabilities": {"memoryGB": "80Gi", "computeCapability": "9.0", "features": ["tensor-cores"]},
        "discovery": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "nvidia.com/gpu.memory", "operator": "Gte", "values": ["80Gi"]}]}]},
        "resources": [{"name": "nvidia.com/gpu"}]}});
    world.apply(&class).await;
    world.apply(&service(namespace, "roomy", json!({"ome.io/accelerator-class": "large"}))).await;
    world.condition(OME, namespace, "roomy", ("Ready", "True"), "").await;
    let pods = world.until("one Pod", PODS, namespace, |found| found.len() == 1).await;
    let pod = &pods.values().next().unwrap()["spec"];
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let expression = &terms[0]["matchExpressions"][0];
    assert_eq!((&expression["operator"], &expression["values"]), (&json!("Gt"), &json!(["80281"])), "{terms}");
    assert!(
        world.get(NODES, "", pod["nodeName"].as_str().unwrap()).await["metadata"]["labels"]["nvidia.com/gpu.memory"]
            == "81559"
    );
    world.delete(OME, namespace, "roomy").await;
    world.nothing_left(namespace, &[OME, DEPLOYMENTS, PODS]).await;
    world.delete(CLASSES, "", "large").await;
}

/// A decoder and an autoscaler are asked for, and then not any more.
pub(super) async fn what_is_asked_for_no_more_goes(world: &World) {
    let namespace = "changing";
    world.namespace(namespace).await;
    let mut pair = service(namespace, "chat", json!({}));
    pair["spec"]["runtime"] = json!({"name": "srt-llama-3-2-3b-instruct-pd"});
    pair["spec"]["engine"] = json!({"minReplicas": 1, "maxReplicas": 3});
    world.apply(&pair).await;
    world.condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    let both = world.until("two Deployments", DEPLOYMENTS, namespace, |found| found.len() == 2).await;
    world.until("an autoscaler", AUTOSCALERS, namespace, |found| found.len() == 1).await;

    world.apply(&service(namespace, "chat", json!({}))).await;
    world.nothing_left(namespace, &[AUTOSCALERS]).await;
    let one = world.until("one Deployment", DEPLOYMENTS, namespace, |found| found.len() == 1).await;
    assert_eq!(
        one["chat-engine"]["metadata"]["uid"], both["chat-engine"]["metadata"]["uid"],
        "it is changed, not replaced"
    );
    world.until("one Service", SERVICES, namespace, |found| found.len() == 1).await;
    world.condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    world.delete(OME, namespace, "chat").await;
    world.nothing_left(namespace, &[OME, DEPLOYMENTS, PODS, SERVICES]).await;
}
