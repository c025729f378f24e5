use rstest::rstest;
use serde_json::json;

use super::super::{is_unmodified, provenance};
use super::*;

fn flavor(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": name},
        "spec": {"nodeLabels": labels}})
}

fn catalog() -> Vec<(Class, Value)> {
    let text = include_str!("../tests/small/classes.yaml");
    let parse = |value: Value| {
        let class: api::ome::AcceleratorClass = serde_json::from_value(value.clone()).unwrap();
        (Class::from_api(&class, None).unwrap(), value)
    };
    api::parse_manifest("catalog", text).unwrap().into_iter().map(|document| parse(document.value)).collect()
}

#[rstest]
// spec: ACC-51
#[case::gpu_label("a100-pool", json!({"nvidia.com/gpu.product": "A100-SXM4-40GB"}), true)]
// spec: ACC-51
#[case::cpu_pool("gpu-like", json!({"node-pool": "cpu"}), false)]
#[case::memory_label("big", json!({"nvidia.com/gpu.memory": "81559", "zone": "a"}), true)]
#[case::tpu("t", json!({"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}), true)]
#[case::ascend("n", json!({"accelerator": "huawei-Ascend910"}), true)]
#[case::unrelated_label("n", json!({"accelerator": "none"}), false)]
#[case::no_labels("all", json!({}), false)]
fn recognizes_flavors_by_labels(#[case] name: &str, #[case] labels: Value, #[case] expected: bool) {
    assert_eq!(is_accelerator_flavor(&flavor(name, labels)), expected);
}

#[test]
fn recognizes_flavors_by_annotation() {
    let mut flavor = flavor("reserved", json!({"node-pool": "p5"}));
    flavor["metadata"]["annotations"] = json!({"ome.io/accelerator-class": "nvidia-h100-80gb"});
    assert!(is_accelerator_flavor(&flavor));
}

/// Seed 000, Story 3, except for the class that the API server stores.
#[test]
fn creates_the_class_of_story_3() {
    let story = flavor("gpu-nvidia-a100", json!({"nvidia.com/gpu.product": "A100-SXM4-40GB"}));
    let class = class_from_flavor(&story, &Inventory::default(), &catalog());
    assert_eq!(class["metadata"]["name"], "gpu-nvidia-a100");
    assert_eq!(class["metadata"]["annotations"]["ome.io/kueue-resource-flavor"], "gpu-nvidia-a100");
    assert_eq!(class["spec"]["discovery"], json!({"nodeSelector": {"nvidia.com/gpu.product": "A100-SXM4-40GB"}}));
    assert_eq!(class["spec"]["capabilities"]["memoryGB"], "40Gi");
    assert_eq!(class["spec"]["capabilities"]["computeCapability"], "8.0");
    assert_eq!(class["spec"]["resources"][0]["name"], "nvidia.com/gpu");
    assert_eq!(
        (provenance(&class), is_unmodified(&class)),
        (Some(Provenance::ResourceFlavor("gpu-nvidia-a100".to_owned())), true)
    );
    assert_eq!(flavor_link(&class), Some(FlavorLink::CreatedFrom("gpu-nvidia-a100")));
}

#[test]
fn completes_classes_from_nodes() {
    let mut inventory = Inventory::default();
    let node = json!({"metadata": {"name": "a", "labels": {"node-pool": "p5", "nvidia.com/gpu.product": "NVIDIA-X900",
        "nvidia.com/gpu.memory": "40960"}}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}});
    inventory.set_node("a", Some(&node));
    let class = class_from_flavor(&flavor("p5", json!({"node-pool": "p5"})), &inventory, &catalog());
    assert_eq!(
        (&class["spec"]["vendor"], &class["spec"]["capabilities"]["memoryGB"]),
        (&json!("nvidia"), &json!("40Gi"))
    );
}

fn class(discovery: Value) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "c"},
        "spec": {"discovery": discovery, "capabilities": {}, "integration": {"kueueResourceFlavor": "f"}}})
}

#[test]
fn creates_the_named_flavor() {
    let class = class(json!({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}));
    assert_eq!(flavor_link(&class), Some(FlavorLink::Required("f")));
    let generated = flavor_from_class(&class, "f", "kueue.x-k8s.io/v1beta2").unwrap();
    assert_eq!(
        (&generated["metadata"]["name"], &generated["apiVersion"]),
        (&json!("f"), &json!("kueue.x-k8s.io/v1beta2"))
    );
    assert_eq!(generated["spec"]["nodeLabels"], json!({"nvidia.com/gpu.product": "NVIDIA-L4"}));
    assert_eq!(
        (provenance(&generated), is_unmodified(&generated)),
        (Some(Provenance::AcceleratorClass("c".to_owned())), true)
    );
}

#[rstest]
#[case::terms_only(json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}))]
#[case::pci_only(json!({"pciVendorID": "10de", "deviceIDs": ["2330"]}))]
#[case::nine_labels(json!({"nodeSelector": {"a": "1", "b": "1", "c": "1", "d": "1", "e": "1", "f": "1", "g": "1", "h": "1", "i": "1"}}))]
fn rejects_inexpressible_selectors(#[case] discovery: Value) {
    assert!(flavor_from_class(&class(discovery), "f", "kueue.x-k8s.io/v1beta1").is_err());
}
