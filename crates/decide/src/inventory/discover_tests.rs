use rstest::rstest;
use serde_json::json;

use super::*;

fn node(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "amd.com/gpu": "8"}}})
}

fn gpu(name: &str, product: &str) -> Value {
    node(name, json!({"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "40960"}))
}

fn known() -> Vec<(Class, Value)> {
    let text = include_str!("../tests/small/classes.yaml");
    api::parse_manifest("catalogue", text).unwrap().into_iter().map(|document| read(document.value)).collect()
}

fn read(value: Value) -> (Class, Value) {
    let typed: api::ome::AcceleratorClass = serde_json::from_value(value.clone()).unwrap();
    (Class::from_api(&typed, None).unwrap(), value)
}

fn by_hand(name: &str, selector: Value) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": name},
        "spec": {"discovery": {"nodeSelector": selector}, "capabilities": {}}})
}

/// One pass over these nodes and classes.
fn pass(nodes: &[Value], existing: &[Value]) -> Vec<Value> {
    let mut index = Inventory::default();
    for class in existing {
        index.set_class(name(class), Some(read(class.clone()).0));
    }
    for node in nodes {
        index.set_node(name(node), Some(node));
    }
    discover_classes(&index, existing.iter(), &known())
}

fn names(classes: &[Value]) -> Vec<&str> {
    classes.iter().map(name).collect()
}

// spec: ACC-39
// spec: ACC-41
#[test]
fn one_class_per_product() {
    let nodes = [
        gpu("a", "NVIDIA-A100-SXM4-80GB"),
        gpu("b", "NVIDIA-A100-SXM4-80GB"),
        gpu("c", "Tesla-T4"),
        node("d", json!({"amd.com/gpu.product": "MI250X"})),
        node("cpu", json!({"kubernetes.io/arch": "amd64"})),
    ];
    let made = pass(&nodes, &[]);
    assert_eq!(names(&made), ["mi250x", "nvidia-a100-sxm4-80gb", "tesla-t4"]);
    assert!(made.iter().all(|class| class["metadata"]["labels"][AUTO_DISCOVERED_LABEL] == "true"));
    assert!(made.iter().all(|class| provenance(class) == Some(Provenance::ReplicaNodes) && is_unmodified(class)));
}

// spec: ACC-7
// spec: ACC-42
#[test]
fn labels_tell_what_the_table_does_not_and_no_price_is_invented() {
    let made = pass(&[gpu("a", "NVIDIA-X900")], &[]);
    assert_eq!(made[0]["spec"]["capabilities"], json!({"features": ["cuda"], "memoryGB": "40Gi"}));
    assert_eq!(made[0]["spec"]["discovery"], json!({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-X900"}}));
    assert!(made[0]["spec"]["cost"].is_null());
}

// spec: ACC-44
#[test]
fn known_products_have_the_facts_of_the_table() {
    let labels = json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0", "nvidia.com/nvlink": "true"});
    let spec = pass(&[node("a", labels)], &[]).remove(0)["spec"].take();
    assert_eq!((&spec["family"], &spec["model"]), (&json!("hopper"), &json!("h100")));
    let able = &spec["capabilities"];
    assert_eq!((&able["memoryGB"], &able["computeCapability"]), (&json!("80Gi"), &json!("9.0")));
    assert_eq!((&able["memoryBandwidthGBps"], &able["performance"]["fp16TFLOPS"]), (&json!("3350"), &json!(989)));
    assert_eq!(spec["discovery"]["pciVendorID"], "10de");
    let features: Vec<&str> = able["features"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(features.contains(&"fp8") && features.contains(&"tensor-cores"), "{features:?}");
    assert!(!features.contains(&"mig"), "only if the label says so: {features:?}");
    assert!(spec["cost"].is_null());
}

// spec: ACC-43
#[test]
fn a_feature_of_many_nodes_stands_once() {
    let labels =
        json!({"nvidia.com/gpu.product": "NVIDIA-X900", "nvidia.com/mig.capable": "true", "nvidia.com/nvlink": "true"});
    let made = pass(&[node("a", labels.clone()), node("b", labels)], &[]);
    assert_eq!(made[0]["spec"]["capabilities"]["features"], json!(["cuda", "mig", "nvlink"]));
}

#[test]
fn a_slice_has_the_architecture_of_its_device_but_not_its_numbers() {
    let labels = json!({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/gpu.memory": "4864"});
    let spec = pass(&[node("a", labels)], &[]).remove(0)["spec"].take();
    let able = &spec["capabilities"];
    assert_eq!((&able["memoryGB"], &able["computeCapability"]), (&json!("4864Mi"), &json!("8.0")));
    assert!(able["memoryBandwidthGBps"].is_null() && able["performance"].is_null());
    assert_eq!(able["features"], json!(["cuda", "tensor-cores"]));
    assert!(spec["discovery"]["deviceIDs"].is_null());
}

#[rstest]
// spec: ACC-47
#[case::a_class_of_ones_own(by_hand("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"})), &[])]
#[case::by_another_property(by_hand("mine", json!({"nvidia.com/gpu.memory": "40960"})), &[])]
// spec: ACC-41
#[case::the_name_is_taken(by_hand("nvidia-x900", json!({"zone": "a"})), &[])]
#[case::of_other_nodes(by_hand("mine", json!({"zone": "a"})), &["nvidia-x900"])]
fn what_a_person_wrote_counts(#[case] class: Value, #[case] expect: &[&str]) {
    assert_eq!(names(&pass(&[gpu("a", "NVIDIA-X900")], &[class])), expect);
}

// spec: ACC-47
#[test]
fn an_edit_stays() {
    let nodes = [gpu("a", "NVIDIA-X900")];
    let made = pass(&nodes, &[]);
    assert_eq!(pass(&nodes, &made), made, "the second pass wants the same");
    let mut edited = made[0].clone();
    edited["spec"]["capabilities"]["memoryGB"] = json!("48Gi");
    assert_eq!(pass(&nodes, &[edited]), Vec::<Value>::new());
}

// spec: ACC-47
#[test]
fn where_a_person_names_the_product_the_discovered_class_gives_way() {
    let nodes = [gpu("a", "NVIDIA-X900")];
    let made = pass(&nodes, &[]).remove(0);
    let mut index = Inventory::default();
    index.set_node("a", Some(&nodes[0]));
    index.set_class("nvidia-x900", Some(read(made).0));
    assert_eq!(index.totals_of("nvidia-x900").nodes, 1);
    index.set_class("mine", Some(read(by_hand("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}))).0));
    assert_eq!((index.totals_of("nvidia-x900").nodes, index.totals_of("mine").nodes), (0, 1));
    index.set_class("mine", None);
    assert_eq!(index.totals_of("nvidia-x900").nodes, 1);
}

/// Labels differ in spelling, the class is one.
#[test]
fn two_spellings_of_one_product() {
    let made = pass(&[gpu("a", "Tesla-T4"), gpu("b", "TESLA_T4")], &[]);
    assert_eq!(names(&made), ["tesla-t4"]);
    let terms = &made[0]["spec"]["discovery"]["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchExpressions"][0]["values"], json!(["TESLA_T4", "Tesla-T4"]));
}

#[test]
fn made_classes_lint_clean() {
    let nodes = [
        gpu("a", "NVIDIA-H100-80GB-HBM3"),
        gpu("b", "NVIDIA-X900"),
        node("c", json!({"amd.com/gpu.product": "MI250X"})),
    ];
    for class in pass(&nodes, &[]) {
        let document = api::Document { source: "discovered".to_owned(), index: 1, value: class };
        assert_eq!(api::lint_document(&document), []);
    }
}
