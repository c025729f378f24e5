use super::super::{maker, unedited};
use super::*;

const SEED: &str = include_str!("base_set_seed.yaml");

fn config_map(text: &str) -> Value {
    json!({"metadata": {"namespace": "ome-system", "name": "accelerator-classes-base"}, "data": {KEY: text}})
}

// spec: ACC-35
#[test]
fn documents_become_classes_and_comments_none() {
    let set = BaseSet::read(&config_map(SEED));
    assert_eq!(set.faults, []);
    let names: Vec<_> = set.classes.iter().map(|class| class["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["small-gpu", "medium-gpu", "large-gpu"]);
    let large = &set.classes[2];
    assert_eq!(large["metadata"]["labels"]["ome.io/gpu-tier"], "large");
    assert_eq!(maker(large), Some(Maker::ConfigMap("ome-system/accelerator-classes-base".to_owned())));
    assert!(unedited(large));
}

#[test]
fn a_broken_document_is_named_and_stops_no_other() {
    let text = "# only a comment\n---\napiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata: {name: a}\nspec: {discovery: {}, capabilities: {}}\n---\nkind: [\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\napiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata: {name: b}\nspec: {discovery: {}, capabilities: {memoryGB: lots}}\n";
    let set = BaseSet::read(&config_map(text));
    assert_eq!(set.classes.len(), 1);
    let faults: Vec<String> = set.faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 3);
    assert!(faults[0].starts_with("accelerator-classes.yaml, document 2"), "{faults:?}");
    assert_eq!(faults[1], "accelerator-classes.yaml, document 3 (Pod p): not an AcceleratorClass of ome.io/v1beta1");
    assert!(
        faults[2].starts_with("accelerator-classes.yaml, document 4 (AcceleratorClass b), spec.capabilities.memoryGB"),
        "{faults:?}"
    );
}

#[test]
fn an_absent_key_is_an_empty_set() {
    assert_eq!(BaseSet::read(&json!({"metadata": {"name": "x"}})), BaseSet::default());
}
