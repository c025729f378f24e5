//! Kueue's ResourceFlavors, by Kueue's own definition.

use serde_json::{Value, json};

use super::world::{CLASSES, DEPLOYMENTS, NODES, OME, PODS, World, named};

const FLAVORS: (&str, &str) = ("resourceflavors.kueue.x-k8s.io", "v1beta2");

fn flavor(name: &str, product: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name},
        "spec": {"nodeLabels": {"nvidia.com/gpu.product": product}}})
}

/// Carol applies a flavor and a service, and nothing else.
// spec: ACC-49
// spec: ACC-52
// spec: ACC-104
pub(super) async fn carol(world: &World) {
    let Some(definition) = world.cluster.flavor_definition().unwrap() else {
        return eprintln!("         left out: no source of Kueue");
    };
    world.cluster.define(&[definition]).await.unwrap();
    let mut node = realcluster::gpu_nodes(20, 21).remove(0);
    for (label, value) in [("nvidia.com/gpu.product", "A100-SXM4-40GB"), ("nvidia.com/gpu.memory", "40960")] {
        node["metadata"]["labels"][label] = json!(value);
    }
    world.apply(&node).await;
    world.apply(&flavor("gpu-nvidia-a100", "A100-SXM4-40GB")).await;
    let found = world
        .until("the flavor's class", CLASSES, "", |found| {
            found.get("gpu-nvidia-a100").is_some_and(|class| class["status"]["availableNodes"] == 1)
        })
        .await;
    let class = &found["gpu-nvidia-a100"];
    assert_eq!(class["metadata"]["annotations"]["ome.io/kueue-resource-flavor"], "gpu-nvidia-a100");
    assert_eq!(class["spec"]["discovery"]["nodeSelector"], json!({"nvidia.com/gpu.product": "A100-SXM4-40GB"}));
    let capabilities = &class["spec"]["capabilities"];
    assert_eq!((&capabilities["memoryGB"], &capabilities["computeCapability"]), (&json!("40Gi"), &json!("8.0")));

    world.namespace("carol").await;
    world.apply(&json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "carol", "annotations": {"ome.io/accelerator-class": "gpu-nvidia-a100"}},
        "spec": {"model": {"name": "llama-3-2-3b-instruct"}}})).await;
    world.condition(OME, "carol", "chat", ("Ready", "True"), "").await;
    let pods = world.until("one Pod", PODS, "carol", |found| found.len() == 1).await;
    assert_eq!(pods.values().next().unwrap()["spec"]["nodeName"], "gpu-20");
    world.delete(OME, "carol", "chat").await;
    world.nothing_left("carol", &[OME, DEPLOYMENTS, PODS]).await;
    world.delete(NODES, "", "gpu-20").await;
    both_ways(world).await;
}

async fn both_ways(world: &World) {
    // The flavor selects other nodes: so does the class made from it.
    world.apply(&flavor("gpu-nvidia-a100", "NVIDIA-A100-SXM4-40GB")).await;
    world
        .until("a class that follows", CLASSES, "", |found| {
            named(found, "gpu-nvidia-a100")["spec"]["discovery"]["nodeSelector"]["nvidia.com/gpu.product"]
                == "NVIDIA-A100-SXM4-40GB"
        })
        .await;
    // A class that names a flavor has it made, and changed, and removed.
    let class = |product: &str| {
        json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "mine"}, "spec": {
        "vendor": "nvidia", "capabilities": {"memoryGB": "24Gi"}, "integration": {"kueueResourceFlavor": "mine"},
        "discovery": {"nodeSelector": {"nvidia.com/gpu.product": product}}}})
    };
    for product in ["NVIDIA-L4", "NVIDIA-A10"] {
        world.apply(&class(product)).await;
        world
            .until("the class's flavor", FLAVORS, "", |found| {
                found
                    .get("mine")
                    .is_some_and(|flavor| flavor["spec"]["nodeLabels"]["nvidia.com/gpu.product"] == product)
            })
            .await;
    }
    world.delete(CLASSES, "", "mine").await;
    world.until("a flavor that goes with its class", FLAVORS, "", |found| !found.contains_key("mine")).await;
    world.delete(FLAVORS, "", "gpu-nvidia-a100").await;
    world.until("a class that goes with its flavor", CLASSES, "", |found| !found.contains_key("gpu-nvidia-a100")).await;
}
