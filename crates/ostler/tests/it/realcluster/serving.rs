//! Services of the API group `ome.io`.

use serde_json::{Value, json};

use super::test_cluster::{
    AUTOSCALERS, CLASSES, DEPLOYMENTS, NODES, OME, PODS, SERVICES, TestCluster, object_named, wait_for_empty_diff,
};

pub(super) fn service(namespace: &str, name: &str, annotations: Value) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"model": {"name": "llama-3-2-3b-instruct"}}})
}

// spec: ACC-96
pub(super) async fn service_lifecycle(test_cluster: &TestCluster) {
    let namespace = "serving";
    test_cluster.namespace(namespace).await;
    test_cluster.apply(&service(namespace, "chat", json!({}))).await;
    let ready = test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    assert_eq!(ready["status"]["components"]["engine"]["selectedAccelerator"]["acceleratorClass"], "nvidia-h100-80gb");
    wait_for_empty_diff(test_cluster, namespace).await;
    let pods = test_cluster.wait_for("one Pod", PODS, namespace, |objects| objects.len() == 1).await;
    let pod = &pods.values().next().unwrap()["spec"];
    assert!(pod["nodeName"].as_str().unwrap().starts_with("gpu-"));
    let resources = &pod["containers"][0]["resources"];
    assert_eq!(
        (&resources["limits"]["nvidia.com/gpu"], &resources["requests"]["nvidia.com/gpu"]),
        (&json!("1"), &json!("1"))
    );
    // The status of the class counts the nodes, and the accelerators that the Pod does not use.
    test_cluster
        .wait_for("the class's nodes", CLASSES, "", |objects| {
            let status = &object_named(objects, "nvidia-h100-80gb")["status"];
            status["availableNodes"] == 2 && status["totalAccelerators"] == 16 && status["availableAccelerators"] == 15
        })
        .await;
    test_cluster.delete(OME, namespace, "chat").await;
    let pools = ("backendpools.inference.networking.x-k8s.io", "v1alpha1");
    let use_cases = ("llmusecasesets.inference.networking.x-k8s.io", "v1alpha1");
    test_cluster.wait_for_deletion(namespace, &[OME, DEPLOYMENTS, PODS, SERVICES, pools, use_cases]).await;
}

/// A node selector term in Gi is converted to MiB, the unit of the label, and selects the matching node.
// spec: ACC-38
pub(super) async fn scheduler_receives_valid_terms(test_cluster: &TestCluster) {
    let namespace = "terms";
    test_cluster.namespace(namespace).await;
    let class = json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "large"}, "spec": {
        "vendor": "nvidia", "family": "hopper", "capabilities": {"memoryGB": "80Gi", "computeCapability": "9.0", "features": ["tensor-cores"]},
        "discovery": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "nvidia.com/gpu.memory", "operator": "Gte", "values": ["80Gi"]}]}]},
        "resources": [{"name": "nvidia.com/gpu"}]}});
    test_cluster.apply(&class).await;
    test_cluster.apply(&service(namespace, "large-memory", json!({"ome.io/accelerator-class": "large"}))).await;
    test_cluster.wait_for_condition(OME, namespace, "large-memory", ("Ready", "True"), "").await;
    let pods = test_cluster.wait_for("one Pod", PODS, namespace, |objects| objects.len() == 1).await;
    let pod = &pods.values().next().unwrap()["spec"];
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let expression = &terms[0]["matchExpressions"][0];
    assert_eq!((&expression["operator"], &expression["values"]), (&json!("Gt"), &json!(["76595"])), "{terms}");
    assert!(
        test_cluster.get(NODES, "", pod["nodeName"].as_str().unwrap()).await["metadata"]["labels"]["nvidia.com/gpu.memory"]
            == "81559"
    );
    test_cluster.delete(OME, namespace, "large-memory").await;
    test_cluster.wait_for_deletion(namespace, &[OME, DEPLOYMENTS, PODS]).await;
    test_cluster.delete(CLASSES, "", "large").await;
}

/// Removing the decoder and the autoscaler from a service deletes their objects.
pub(super) async fn removed_components_are_pruned(test_cluster: &TestCluster) {
    let namespace = "changing";
    test_cluster.namespace(namespace).await;
    let mut disaggregated = service(namespace, "chat", json!({}));
    disaggregated["spec"]["runtime"] = json!({"name": "srt-llama-3-2-3b-instruct-pd"});
    disaggregated["spec"]["engine"] = json!({"minReplicas": 1, "maxReplicas": 3});
    test_cluster.apply(&disaggregated).await;
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    let deployments =
        test_cluster.wait_for("two Deployments", DEPLOYMENTS, namespace, |objects| objects.len() == 2).await;
    test_cluster.wait_for("an autoscaler", AUTOSCALERS, namespace, |objects| objects.len() == 1).await;
    wait_for_empty_diff(test_cluster, namespace).await;

    test_cluster.apply(&service(namespace, "chat", json!({}))).await;
    test_cluster.wait_for_deletion(namespace, &[AUTOSCALERS]).await;
    let remaining_deployments =
        test_cluster.wait_for("one Deployment", DEPLOYMENTS, namespace, |objects| objects.len() == 1).await;
    assert_eq!(
        remaining_deployments["chat-engine"]["metadata"]["uid"], deployments["chat-engine"]["metadata"]["uid"],
        "the Deployment is updated, not replaced"
    );
    test_cluster.wait_for("one Service", SERVICES, namespace, |objects| objects.len() == 1).await;
    test_cluster.wait_for_condition(OME, namespace, "chat", ("Ready", "True"), "").await;
    test_cluster.delete(OME, namespace, "chat").await;
    test_cluster.wait_for_deletion(namespace, &[OME, DEPLOYMENTS, PODS, SERVICES]).await;
}
