use rstest::rstest;
use serde_json::json;

use super::super::{is_unmodified, provenance};
use super::*;

fn flavor(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": name},
        "spec": {"nodeLabels": labels}})
}

fn known() -> Vec<(Class, Value)> {
    let text = include_str!("../tests/small/classes.yaml");
    let read = |value: Value| {
        let typed: api::ome::AcceleratorClass = serde_json::from_value(value.clone()).unwrap();
        (Class::from_api(&typed, None).unwrap(), value)
    };
    api::parse_manifest("catalogue", text).unwrap().into_iter().map(|document| read(document.value)).collect()
}

#[rstest]
// spec: ACC-51
#[case::gpu_by_label("a100-pool", json!({"nvidia.com/gpu.product": "A100-SXM4-40GB"}), true)]
// spec: ACC-51
#[case::cpu_by_another_name("gpu-like", json!({"node-pool": "cpu"}), false)]
#[case::memory("big", json!({"nvidia.com/gpu.memory": "81559", "zone": "a"}), true)]
#[case::tpu("t", json!({"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}), true)]
#[case::ascend("n", json!({"accelerator": "huawei-Ascend910"}), true)]
#[case::a_bare_word("n", json!({"accelerator": "none"}), false)]
#[case::everything("all", json!({}), false)]
fn a_flavor_is_known_by_its_labels(#[case] name: &str, #[case] labels: Value, #[case] expect: bool) {
    assert_eq!(is_accelerator_flavor(&flavor(name, labels)), expect);
}

#[test]
fn or_because_a_person_says_so() {
    let mut flavor = flavor("reserved", json!({"node-pool": "p5"}));
    flavor["metadata"]["annotations"] = json!({"ome.io/accelerator-class": "nvidia-h100-80gb"});
    assert!(is_accelerator_flavor(&flavor));
}

/// Story 3, but for the class that the API server stores.
#[test]
fn the_class_of_story_3() {
    let story = flavor("gpu-nvidia-a100", json!({"nvidia.com/gpu.product": "A100-SXM4-40GB"}));
    let class = class_from_flavor(&story, &Inventory::default(), &known());
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
fn nodes_tell_what_the_labels_do_not() {
    let mut index = Inventory::default();
    let node = json!({"metadata": {"name": "a", "labels": {"node-pool": "p5", "nvidia.com/gpu.product": "NVIDIA-X900",
        "nvidia.com/gpu.memory": "40960"}}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}});
    index.set_node("a", Some(&node));
    let class = class_from_flavor(&flavor("p5", json!({"node-pool": "p5"})), &index, &known());
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
fn a_class_makes_the_flavor_that_it_names() {
    let class = class(json!({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}));
    assert_eq!(flavor_link(&class), Some(FlavorLink::Required("f")));
    let made = flavor_from_class(&class, "f", "kueue.x-k8s.io/v1beta2").unwrap();
    assert_eq!((&made["metadata"]["name"], &made["apiVersion"]), (&json!("f"), &json!("kueue.x-k8s.io/v1beta2")));
    assert_eq!(made["spec"]["nodeLabels"], json!({"nvidia.com/gpu.product": "NVIDIA-L4"}));
    assert_eq!((provenance(&made), is_unmodified(&made)), (Some(Provenance::AcceleratorClass("c".to_owned())), true));
}

#[rstest]
#[case::terms_only(json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}))]
#[case::pci_only(json!({"pciVendorID": "10de", "deviceIDs": ["2330"]}))]
#[case::nine_labels(json!({"nodeSelector": {"a": "1", "b": "1", "c": "1", "d": "1", "e": "1", "f": "1", "g": "1", "h": "1", "i": "1"}}))]
fn some_classes_have_no_flavor(#[case] discovery: Value) {
    assert!(flavor_from_class(&class(discovery), "f", "kueue.x-k8s.io/v1beta1").is_err());
}
