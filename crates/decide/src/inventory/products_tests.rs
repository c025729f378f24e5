use rstest::rstest;
use serde_json::json;

use super::product::sanitize;
use super::*;
use crate::inventory::node_infos;

/// Returns a node with the given labels and resources.
fn node(labels: Value, resources: &[&str]) -> NodeInfo {
    let allocatable: Value =
        resources.iter().map(|name| ((*name).to_owned(), json!("8"))).collect::<serde_json::Map<_, _>>().into();
    let node = json!({"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": allocatable}});
    node_infos(&[node], &[]).remove(0)
}

fn detect(labels: Value, resources: &[&str]) -> Vec<(String, String)> {
    detect_products(&node(labels, resources)).into_iter().map(|product| (product.name, product.resource)).collect()
}

#[rstest]
// spec: ACC-39
#[case::nvidia(json!({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}), &["nvidia.com/gpu"], "nvidia-a100-sxm4-80gb", "nvidia.com/gpu")]
// spec: ACC-39
#[case::amd(json!({"amd.com/gpu.product": "MI250X"}), &["amd.com/gpu"], "mi250x", "amd.com/gpu")]
#[case::amd_node_labeller(json!({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}), &["amd.com/gpu"], "amd-instinct-mi300x-oam", "amd.com/gpu")]
#[case::amd_beta_label(json!({"beta.amd.com/gpu.product-name": "AMD_Instinct_MI210"}), &["amd.com/gpu"], "amd-instinct-mi210", "amd.com/gpu")]
// spec: ACC-40
#[case::intel_i915(json!({"gpu.intel.com/product": "Max_1550"}), &["gpu.intel.com/i915"], "max-1550", "gpu.intel.com/i915")]
// spec: ACC-40
#[case::intel_xe(json!({"gpu.intel.com/product": "Max_1550"}), &["gpu.intel.com/i915", "gpu.intel.com/xe"], "max-1550", "gpu.intel.com/xe")]
#[case::intel_without_product(json!({"gpu.intel.com/device-id.0380-56c1.present": "true"}), &["gpu.intel.com/i915"], "intel-gpu-56c1", "gpu.intel.com/i915")]
// spec: ACC-40
#[case::gaudi3(json!({"feature.node.kubernetes.io/pci-1200_1da3_1060.present": "true"}), &["habana.ai/gaudi"], "intel-gaudi3", "habana.ai/gaudi")]
#[case::gaudi_by_instance_type(json!({"node.kubernetes.io/instance-type": "dl1.24xlarge"}), &["habana.ai/gaudi"], "intel-gaudi-dl1-24xlarge", "habana.ai/gaudi")]
// spec: ACC-40
#[case::tpu(json!({"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice", "cloud.google.com/gke-tpu-topology": "2x4"}), &["google.com/tpu"], "tpu-v5-lite-podslice", "google.com/tpu")]
// spec: ACC-40
#[case::neuron(json!({"node.kubernetes.io/instance-type": "inf2.48xlarge"}), &["aws.amazon.com/neuron", "aws.amazon.com/neuroncore"], "aws-inferentia2", "aws.amazon.com/neuron")]
// spec: ACC-40
#[case::trainium(json!({"node.kubernetes.io/instance-type": "trn1n.32xlarge"}), &["aws.amazon.com/neuroncore"], "aws-trainium", "aws.amazon.com/neuroncore")]
// spec: ACC-40
#[case::ascend(json!({"accelerator": "huawei-Ascend310P"}), &["huawei.com/Ascend310P"], "huawei-ascend310p", "huawei.com/Ascend310P")]
// spec: ACC-40
#[case::ascend_by_chip_name(json!({"accelerator": "huawei-Ascend910", "node.kubernetes.io/npu.chip.name": "910B3"}), &["huawei.com/Ascend910"], "huawei-ascend910b3", "huawei.com/Ascend910")]
#[case::gke_without_gpu_feature_discovery(json!({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}), &["nvidia.com/gpu"], "nvidia-h100-80gb", "nvidia.com/gpu")]
fn detects_products_of_each_vendor(
    #[case] labels: Value,
    #[case] resources: &[&str],
    #[case] name: &str,
    #[case] resource: &str,
) {
    assert_eq!(detect(labels, resources), [(name.to_owned(), resource.to_owned())]);
}

#[rstest]
#[case::cpu_only(json!({"kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "m7i.large"}), &[])]
#[case::unrelated_accelerator_label(json!({"accelerator": "true"}), &["huawei.com/Ascend910"])]
#[case::name_without_valid_characters(json!({"nvidia.com/gpu.product": "__--"}), &["nvidia.com/gpu"])]
#[case::empty_label(json!({"nvidia.com/gpu.product": ""}), &["nvidia.com/gpu"])]
#[case::inferentia_without_device_plugin(json!({"node.kubernetes.io/instance-type": "inf2.xlarge"}), &[])]
fn ignores_unknown_products(#[case] labels: Value, #[case] resources: &[&str]) {
    assert_eq!(detect(labels, resources), []);
}

// spec: ACC-42
#[rstest]
#[case::mebibytes("40960", "8.0", Some("40Gi"), Some("8.0"))]
#[case::uneven_mebibytes("46068", "8.9", Some("46068Mi"), Some("8.9"))]
#[case::unparsable("lots", "new", None, None)]
#[case::zero("0", "", None, None)]
fn reads_capabilities_from_labels(
    #[case] memory: &str,
    #[case] compute: &str,
    #[case] expected: Option<&str>,
    #[case] capability: Option<&str>,
) {
    let labels =
        json!({"nvidia.com/gpu.product": "X", "nvidia.com/gpu.memory": memory, "nvidia.com/gpu.compute": compute});
    let product = detect_products(&node(labels, &["nvidia.com/gpu"])).remove(0);
    assert_eq!(product.memory.map(|memory| memory.to_string()).as_deref(), expected);
    assert_eq!(product.compute_capability.map(|compute| compute.to_string()).as_deref(), capability);
}

// spec: ACC-43
#[rstest]
#[case::labels_true("true", "true", &["cuda", "mig", "nvlink"])]
#[case::labels_false("false", "false", &["cuda"])]
#[case::labels_empty("", "", &["cuda"])]
fn reads_features_from_labels(#[case] mig: &str, #[case] nvlink: &str, #[case] expected: &[&str]) {
    let labels = json!({"nvidia.com/gpu.product": "X", "nvidia.com/mig.capable": mig, "nvidia.com/nvlink": nvlink});
    let features = detect_products(&node(labels, &["nvidia.com/gpu"])).remove(0).features;
    assert_eq!(features.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn reads_capability_from_major_and_minor() {
    let labels = json!({"nvidia.com/gpu.product": "X", "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0"});
    let product = detect_products(&node(labels, &["nvidia.com/gpu"])).remove(0);
    assert_eq!(product.compute_capability.unwrap().to_string(), "9.0");
    assert!(product.features.contains("tensor-cores") && product.features.contains("fp8"));
}

/// Strategy `single`: the GPUs of the node are slices.
#[test]
fn detects_mig_strategy_single() {
    let labels = json!({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/gpu.memory": "4864",
        "nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "single"});
    let slice = detect_products(&node(labels, &["nvidia.com/gpu"])).remove(0);
    assert_eq!(
        (slice.name.as_str(), slice.is_partition, slice.is_slice),
        ("nvidia-a100-sxm4-40gb-mig-1g-5gb", true, true)
    );
    assert_eq!(slice.memory.unwrap().to_string(), "4864Mi");
    assert_eq!(slice.device_labels["nvidia.com/gpu.product"], "NVIDIA-A100-SXM4-40GB");
    assert_eq!(Vec::from_iter(slice.features), ["cuda"]);
}

/// Strategy `mixed`: whole GPUs and each profile have separate resources.
#[test]
fn detects_mig_strategy_mixed() {
    let labels = json!({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.memory": "40960",
        "nvidia.com/mig.strategy": "mixed", "nvidia.com/mig-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "nvidia.com/mig-1g.5gb.memory": "4864", "nvidia.com/mig-2g.10gb.product": "NVIDIA-A100-SXM4-40GB-MIG-2g.10gb"});
    let resources = ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"];
    let products: Vec<_> = detect_products(&node(labels, &resources))
        .into_iter()
        .map(|product| (product.resource, product.is_partition))
        .collect();
    assert_eq!(products, [("nvidia.com/gpu".to_owned(), false), ("nvidia.com/mig-1g.5gb".to_owned(), true)]);
}

#[test]
fn time_slicing_replicas_share_memory() {
    let labels = json!({"nvidia.com/gpu.product": "NVIDIA-L4-SHARED", "nvidia.com/gpu.memory": "24576", "nvidia.com/gpu.replicas": "4"});
    let time_sliced = detect_products(&node(labels, &["nvidia.com/gpu"])).remove(0);
    assert_eq!((time_sliced.memory.unwrap().to_string().as_str(), time_sliced.is_partition), ("6Gi", true));
}

#[test]
fn reads_amd_memory_and_partitions() {
    let plain_labels = json!({"amd.com/gpu.product-name": "MI300X", "amd.com/gpu.vram": "192G"});
    assert_eq!(detect_products(&node(plain_labels, &["amd.com/gpu"]))[0].memory.unwrap().to_string(), "192Gi");
    let counted_labels = json!({"amd.com/gpu.product-name": "MI300X", "beta.amd.com/gpu.vram.192G": "8"});
    let products = detect_products(&node(counted_labels, &["amd.com/gpu", "amd.com/cpx_nps4"]));
    assert_eq!(products[0].memory.unwrap().to_string(), "192Gi");
    assert_eq!(
        (products[1].name.as_str(), products[1].resource.as_str(), products[1].is_partition),
        ("mi300x-cpx-nps4", "amd.com/cpx_nps4", true)
    );
}

#[test]
fn names_from_labels_are_valid() {
    assert_eq!(sanitize(&"A_".repeat(80)).len(), 63);
    assert_eq!(sanitize("Tesla  T4 (16GB)"), "tesla-t4-16gb");
}
