use super::super::{is_unmodified, provenance};
use super::*;

const SEED: &str = include_str!("base_set_seed.yaml");

fn config_map(text: &str) -> Value {
    json!({"metadata": {"namespace": "ome-system", "name": "accelerator-classes-base"}, "data": {DATA_KEY: text}})
}

// spec: ACC-35
#[test]
fn parses_documents_and_skips_comments() {
    let set = BaseSet::from_config_map(&config_map(SEED));
    assert_eq!(set.errors, []);
    let names: Vec<_> = set.classes.iter().map(|class| class["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["small-gpu", "medium-gpu", "large-gpu"]);
    let large = &set.classes[2];
    assert_eq!(large["metadata"]["labels"]["ome.io/gpu-tier"], "large");
    assert_eq!(provenance(large), Some(Provenance::ConfigMap("ome-system/accelerator-classes-base".to_owned())));
    assert!(is_unmodified(large));
}

/// The class for small GPUs covers nodes whose label states less than 24 GiB, and no node without the label.
// spec: ACC-36
#[test]
fn small_class_covers_labeled_nodes_with_little_memory() {
    let set = BaseSet::from_config_map(&config_map(SEED));
    let small = &set.classes[0];
    assert_eq!(small["metadata"]["labels"]["ome.io/gpu-tier"], "small");
    let parsed = crate::Class::from_api(&serde_json::from_value(small.clone()).unwrap(), None).unwrap();
    assert_eq!(
        (parsed.memory, parsed.features.iter().map(String::as_str).collect()),
        (Some(16 << 30), vec!["tensor-cores"])
    );
    let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}});
    let nodes = [
        node("t4", json!({"nvidia.com/gpu.memory": "15360"})),
        node("a30", json!({"nvidia.com/gpu.memory": "24576"})),
        node("unlabeled", json!({})),
    ];
    let availability = crate::inventory::class_availability(&parsed, &crate::inventory::node_infos(&nodes, &[]));
    assert_eq!(availability.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["t4"]);
}

#[test]
fn reports_invalid_document_and_parses_others() {
    let text = "# only a comment\n---\napiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata: {name: a}\nspec: {discovery: {}, capabilities: {}}\n---\nkind: [\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\napiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata: {name: b}\nspec: {discovery: {}, capabilities: {memoryGB: lots}}\n";
    let set = BaseSet::from_config_map(&config_map(text));
    assert_eq!(set.classes.len(), 1);
    let errors: Vec<String> = set.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 3);
    assert!(errors[0].starts_with("accelerator-classes.yaml, document 2"), "{errors:?}");
    assert_eq!(errors[1], "accelerator-classes.yaml, document 3 (Pod p): not an AcceleratorClass of ome.io/v1beta1");
    assert!(
        errors[2].starts_with("accelerator-classes.yaml, document 4 (AcceleratorClass b), spec.capabilities.memoryGB"),
        "{errors:?}"
    );
}

/// A missing key may be misspelled, so the set is not empty but unknown.
#[test]
fn missing_key_is_an_error() {
    let mut misspelled = config_map(SEED);
    misspelled["data"] = json!({"accelerator-class.yaml": SEED});
    let set = BaseSet::from_config_map(&misspelled);
    assert_eq!(set.classes, Vec::<Value>::new());
    let expected = "key `accelerator-classes.yaml` is missing; the ConfigMap has `accelerator-class.yaml`";
    assert_eq!(set.errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    assert!(set.errors[0].hint().unwrap().starts_with("rename the key to `accelerator-classes.yaml`"));
    let without_data = BaseSet::from_config_map(&json!({"metadata": {"name": "x"}}));
    assert_eq!(without_data.errors, [BaseSetError::MissingKey(Vec::new())]);
    assert_eq!(BaseSet::from_config_map(&config_map("# no classes\n")), BaseSet::default());
}
