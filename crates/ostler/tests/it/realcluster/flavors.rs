//! Kueue ResourceFlavors, with the CustomResourceDefinition of Kueue.

use serde_json::{Value, json};

use super::test_cluster::{CLASSES, DEPLOYMENTS, NODES, OME, PODS, TestCluster, object_named};

const FLAVORS: (&str, &str) = ("resourceflavors.kueue.x-k8s.io", "v1beta2");

fn flavor(name: &str, product: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name},
        "spec": {"nodeLabels": {"nvidia.com/gpu.product": product}}})
}

/// User story of specification 000: a user applies only a ResourceFlavor and a service.
// spec: ACC-49
// spec: ACC-52
// spec: ACC-104
pub(super) async fn flavors_and_classes_are_synchronized(test_cluster: &TestCluster) {
    let Some(definition) = test_cluster.cluster.resource_flavor_definition().unwrap() else {
        return eprintln!("         skipped: no source of Kueue");
    };
    test_cluster.cluster.apply_definitions(&[definition]).await.unwrap();
    let mut node = realcluster::gpu_nodes(20, 21).remove(0);
    for (label, value) in [("nvidia.com/gpu.product", "A100-SXM4-40GB"), ("nvidia.com/gpu.memory", "40960")] {
        node["metadata"]["labels"][label] = json!(value);
    }
    test_cluster.apply(&node).await;
    test_cluster.apply(&flavor("gpu-nvidia-a100", "A100-SXM4-40GB")).await;
    let objects = test_cluster
        .wait_for("the flavor's class", CLASSES, "", |objects| {
            objects.get("gpu-nvidia-a100").is_some_and(|class| class["status"]["availableNodes"] == 1)
        })
        .await;
    let class = &objects["gpu-nvidia-a100"];
    assert_eq!(class["metadata"]["annotations"]["ome.io/kueue-resource-flavor"], "gpu-nvidia-a100");
    assert_eq!(class["spec"]["discovery"]["nodeSelector"], json!({"nvidia.com/gpu.product": "A100-SXM4-40GB"}));
    let capabilities = &class["spec"]["capabilities"];
    assert_eq!((&capabilities["memoryGB"], &capabilities["computeCapability"]), (&json!("40Gi"), &json!("8.0")));

    test_cluster.namespace("carol").await;
    test_cluster.apply(&json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "carol", "annotations": {"ome.io/accelerator-class": "gpu-nvidia-a100"}},
        "spec": {"model": {"name": "llama-3-2-3b-instruct"}}})).await;
    test_cluster.wait_for_condition(OME, "carol", "chat", ("Ready", "True"), "").await;
    let pods = test_cluster.wait_for("one Pod", PODS, "carol", |objects| objects.len() == 1).await;
    assert_eq!(pods.values().next().unwrap()["spec"]["nodeName"], "gpu-20");
    test_cluster.delete(OME, "carol", "chat").await;
    test_cluster.wait_for_deletion("carol", &[OME, DEPLOYMENTS, PODS]).await;
    test_cluster.delete(NODES, "", "gpu-20").await;
    synchronize_in_both_directions(test_cluster).await;
}

async fn synchronize_in_both_directions(test_cluster: &TestCluster) {
    // A change of the flavor updates the class that was created from it.
    test_cluster.apply(&flavor("gpu-nvidia-a100", "NVIDIA-A100-SXM4-40GB")).await;
    test_cluster
        .wait_for("the updated class", CLASSES, "", |objects| {
            object_named(objects, "gpu-nvidia-a100")["spec"]["discovery"]["nodeSelector"]["nvidia.com/gpu.product"]
                == "NVIDIA-A100-SXM4-40GB"
        })
        .await;
    // The flavor that a class names is created, updated and deleted with the class.
    let class = |product: &str| {
        json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "mine"}, "spec": {
        "vendor": "nvidia", "capabilities": {"memoryGB": "24Gi"}, "integration": {"kueueResourceFlavor": "mine"},
        "discovery": {"nodeSelector": {"nvidia.com/gpu.product": product}}}})
    };
    for product in ["NVIDIA-L4", "NVIDIA-A10"] {
        test_cluster.apply(&class(product)).await;
        test_cluster
            .wait_for("the flavor of the class", FLAVORS, "", |objects| {
                objects
                    .get("mine")
                    .is_some_and(|flavor| flavor["spec"]["nodeLabels"]["nvidia.com/gpu.product"] == product)
            })
            .await;
    }
    test_cluster.delete(CLASSES, "", "mine").await;
    test_cluster.wait_for("the deletion of the flavor", FLAVORS, "", |objects| !objects.contains_key("mine")).await;
    test_cluster.delete(FLAVORS, "", "gpu-nvidia-a100").await;
    test_cluster
        .wait_for("the deletion of the class", CLASSES, "", |objects| !objects.contains_key("gpu-nvidia-a100"))
        .await;
}
