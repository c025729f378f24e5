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

fn catalog() -> Vec<(Class, Value)> {
    let text = include_str!("../tests/small/classes.yaml");
    api::parse_manifest("catalog", text).unwrap().into_iter().map(|document| parse_class(document.value)).collect()
}

fn parse_class(value: Value) -> (Class, Value) {
    let class: api::ome::AcceleratorClass = serde_json::from_value(value.clone()).unwrap();
    (Class::from_api(&class, None).unwrap(), value)
}

fn user_class(name: &str, selector: Value) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": name},
        "spec": {"discovery": {"nodeSelector": selector}, "capabilities": {}}})
}

/// Runs discovery once for these nodes and classes.
fn discover(nodes: &[Value], existing: &[Value]) -> Vec<Value> {
    let mut inventory = Inventory::default();
    for class in existing {
        inventory.set_class(object_name(class), Some(parse_class(class.clone()).0));
    }
    for node in nodes {
        inventory.set_node(object_name(node), Some(node));
    }
    discover_classes(&inventory, existing.iter(), &catalog())
}

fn names(classes: &[Value]) -> Vec<&str> {
    classes.iter().map(object_name).collect()
}

// spec: ACC-39
// spec: ACC-41
#[test]
fn generates_one_class_per_product() {
    let nodes = [
        gpu("a", "NVIDIA-A100-SXM4-80GB"),
        gpu("b", "NVIDIA-A100-SXM4-80GB"),
        gpu("c", "Tesla-T4"),
        node("d", json!({"amd.com/gpu.product": "MI250X"})),
        node("cpu", json!({"kubernetes.io/arch": "amd64"})),
    ];
    let generated = discover(&nodes, &[]);
    assert_eq!(names(&generated), ["mi250x", "nvidia-a100-sxm4-80gb", "tesla-t4"]);
    assert!(generated.iter().all(|class| class["metadata"]["labels"][AUTO_DISCOVERED_LABEL] == "true"));
    assert!(generated.iter().all(|class| provenance(class) == Some(Provenance::Nodes) && is_unmodified(class)));
}

// spec: ACC-7
// spec: ACC-42
#[test]
fn unknown_product_has_properties_of_labels_and_no_price() {
    let generated = discover(&[gpu("a", "NVIDIA-X900")], &[]);
    assert_eq!(generated[0]["spec"]["capabilities"], json!({"features": ["cuda"], "memoryGB": "40Gi"}));
    assert_eq!(generated[0]["spec"]["discovery"], json!({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-X900"}}));
    assert!(generated[0]["spec"]["cost"].is_null());
}

// spec: ACC-44
#[test]
fn known_product_has_properties_of_the_catalog() {
    let labels = json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0", "nvidia.com/nvlink": "true"});
    let spec = discover(&[node("a", labels)], &[]).remove(0)["spec"].take();
    assert_eq!((&spec["family"], &spec["model"]), (&json!("hopper"), &json!("h100")));
    let capabilities = &spec["capabilities"];
    assert_eq!((&capabilities["memoryGB"], &capabilities["computeCapability"]), (&json!("80Gi"), &json!("9.0")));
    assert_eq!(
        (&capabilities["memoryBandwidthGBps"], &capabilities["performance"]["fp16TFLOPS"]),
        (&json!("3350"), &json!(989))
    );
    assert_eq!(spec["discovery"]["pciVendorID"], "10de");
    let features: Vec<&str> = capabilities["features"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(features.contains(&"fp8") && features.contains(&"tensor-cores"), "{features:?}");
    assert!(!features.contains(&"mig"), "only if the label sets it: {features:?}");
    assert!(spec["cost"].is_null());
}

// spec: ACC-43
#[test]
fn features_are_not_duplicated() {
    let labels =
        json!({"nvidia.com/gpu.product": "NVIDIA-X900", "nvidia.com/mig.capable": "true", "nvidia.com/nvlink": "true"});
    let generated = discover(&[node("a", labels.clone()), node("b", labels)], &[]);
    assert_eq!(generated[0]["spec"]["capabilities"]["features"], json!(["cuda", "mig", "nvlink"]));
}

#[test]
fn slice_has_architecture_but_not_throughput_of_its_device() {
    let labels = json!({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/gpu.memory": "4864"});
    let spec = discover(&[node("a", labels)], &[]).remove(0)["spec"].take();
    let capabilities = &spec["capabilities"];
    assert_eq!((&capabilities["memoryGB"], &capabilities["computeCapability"]), (&json!("4864Mi"), &json!("8.0")));
    assert!(capabilities["memoryBandwidthGBps"].is_null() && capabilities["performance"].is_null());
    assert_eq!(capabilities["features"], json!(["cuda", "tensor-cores"]));
    assert!(spec["discovery"]["deviceIDs"].is_null());
}

#[rstest]
// spec: ACC-47
#[case::same_product(user_class("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"})), &[])]
#[case::matching_property(user_class("mine", json!({"nvidia.com/gpu.memory": "40960"})), &[])]
// spec: ACC-41
#[case::name_in_use(user_class("nvidia-x900", json!({"zone": "a"})), &[])]
#[case::other_nodes(user_class("mine", json!({"zone": "a"})), &["nvidia-x900"])]
fn user_classes_take_precedence(#[case] class: Value, #[case] expected: &[&str]) {
    assert_eq!(names(&discover(&[gpu("a", "NVIDIA-X900")], &[class])), expected);
}

// spec: ACC-47
#[test]
fn modified_class_is_not_updated() {
    let nodes = [gpu("a", "NVIDIA-X900")];
    let generated = discover(&nodes, &[]);
    assert_eq!(discover(&nodes, &generated), generated, "discovery is idempotent");
    let mut modified = generated[0].clone();
    modified["spec"]["capabilities"]["memoryGB"] = json!("48Gi");
    assert_eq!(discover(&nodes, &[modified]), Vec::<Value>::new());
}

// spec: ACC-47
#[test]
fn discovered_class_excludes_nodes_of_user_class() {
    let nodes = [gpu("a", "NVIDIA-X900")];
    let generated = discover(&nodes, &[]).remove(0);
    let mut inventory = Inventory::default();
    inventory.set_node("a", Some(&nodes[0]));
    inventory.set_class("nvidia-x900", Some(parse_class(generated).0));
    assert_eq!(inventory.totals_of("nvidia-x900").nodes, 1);
    inventory
        .set_class("mine", Some(parse_class(user_class("mine", json!({"nvidia.com/gpu.product": "NVIDIA-X900"}))).0));
    assert_eq!((inventory.totals_of("nvidia-x900").nodes, inventory.totals_of("mine").nodes), (0, 1));
    inventory.set_class("mine", None);
    assert_eq!(inventory.totals_of("nvidia-x900").nodes, 1);
}

/// Different spellings of one product share a class.
#[test]
fn merges_spellings_of_one_product() {
    let generated = discover(&[gpu("a", "Tesla-T4"), gpu("b", "TESLA_T4")], &[]);
    assert_eq!(names(&generated), ["tesla-t4"]);
    let terms = &generated[0]["spec"]["discovery"]["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchExpressions"][0]["values"], json!(["TESLA_T4", "Tesla-T4"]));
}

#[test]
fn generated_classes_have_no_lint_findings() {
    let nodes = [
        gpu("a", "NVIDIA-H100-80GB-HBM3"),
        gpu("b", "NVIDIA-X900"),
        node("c", json!({"amd.com/gpu.product": "MI250X"})),
    ];
    for class in discover(&nodes, &[]) {
        let document = api::Document { source: "discovered".to_owned(), index: 1, value: class };
        assert_eq!(api::lint_document(&document), []);
    }
}
