//! Tests of model sizes in runtime names, and of device partitions.

use rstest::rstest;
use serde_json::json;

use super::fixture::{RUNTIME, fixture_with_classes, selection, service, warning_codes};
use super::{class, class_code, decide, demand, demand_7b, rejection_code, runtimes};
use crate::{Demand, Model, ModelReference};

/// The size in the name of a runtime without a size range only ranks it: the model's size before none before another one.
#[rstest]
#[case::same_size_first(&["universal", "qwen-14b", "a-7b"], "a-7b", false)]
#[case::none_before_another(&["qwen-14b", "universal"], "universal", false)]
#[case::another(&["qwen-14b"], "qwen-14b", true)]
// spec: RT-60
fn ranks_runtimes_by_the_size_in_their_names(#[case] names: &[&str], #[case] expected: &str, #[case] warns: bool) {
    let runtimes_of = |spec: serde_json::Value| names.iter().map(|name| (*name, spec.clone())).collect::<Vec<_>>();
    let decision = decide(&demand_7b(), &runtimes(&runtimes_of(json!({}))), None);
    assert_eq!(decision.runtime.as_ref().unwrap().name, expected);
    assert_eq!(warning_codes(&decision).contains(&"RuntimeNamedForAnotherSize"), warns);
    let with_range = decide(&demand_7b(), &runtimes(&runtimes_of(json!({"range": {"max": "20B"}}))), None);
    assert!(!warning_codes(&with_range).contains(&"RuntimeNamedForAnotherSize"), "a range takes precedence");
}

/// Returns a demand for a model that states no size.
fn demand_without_size(model: &str) -> Demand {
    let mut demand = demand("mistral-7b-instruct", json!({"acceleratorSelector": {"strategy": "cost"}}));
    let spec = serde_json::from_value(json!({"modelFormat": {"name": "safetensors"}})).unwrap();
    demand.model = ModelReference::Resolved(Model::from_api(model, &spec).unwrap());
    demand
}

/// A model that states no size takes the one in its own name, which ranks runtimes but rejects none.
#[rstest]
#[case::in_range("chat-7b", "a", "ModelSizeInferred")]
#[case::out_of_range("chat-70b", "z", "ModelSizeInferred")]
#[case::unknown("chat", "z", "ModelSizeUnstated")]
// spec: RT-60
fn size_in_the_name_of_the_model_is_a_hint(#[case] model: &str, #[case] expected: &str, #[case] warning: &str) {
    let mut supply = runtimes(&[("a", json!({"range": {"max": "8B"}})), ("z", json!({}))]);
    let spec = json!({"vendor": "nvidia", "capabilities": {"memoryGB": "80Gi"}});
    supply.classes = vec![class(&json!({"metadata": {"name": "big"}, "spec": spec}), None).into()];
    let decision = decide(&demand_without_size(model), &supply, None);
    assert_eq!(decision.runtime.as_ref().unwrap().name, expected);
    assert_eq!(warning_codes(&decision).iter().find(|code| code.starts_with("ModelSize")), Some(&warning));
    assert_eq!(rejection_code(&decision, "a"), "");
}

#[test]
fn prefers_namesake_among_equals() {
    let supply = runtimes(&[("a", json!({})), ("srt-mistral-7b-instruct", json!({}))]);
    assert_eq!(decide(&demand_7b(), &supply, None).runtime.unwrap().name, "srt-mistral-7b-instruct");
}

#[test]
fn does_not_combine_device_slices() {
    let partition = |memory: &str| {
        class(
            &json!({"metadata": {"name": memory.to_lowercase()}, "spec": {
                "capabilities": {"memoryGB": memory},
                "resources": [{"name": "nvidia.com/mig-1g", "divisible": true}],
            }}),
            None,
        )
    };
    let mut supply = runtimes(&[("a", json!({}))]);
    supply.classes = vec![partition("10Gi").into(), partition("20Gi").into()];
    let mut demand = demand("mistral-7b-instruct", json!({"acceleratorSelector": {"strategy": "cost"}}));
    demand.runtime = Some("a".to_owned());
    let decision = decide(&demand, &supply, None);
    assert_eq!(class_code(&decision, "10gi"), "ModelDoesNotFit");
    assert_eq!(decision.components["engine"].accelerators_per_node, 1);
}

/// A size in the model's name ranks runtimes by the distance of their range, and a range that does not contain it is reported.
#[test]
fn size_in_the_models_name_ranks_ranges() {
    let runtime = |name: &str, range: &str| {
        RUNTIME
            .replace("name: srt", &format!("name: {name}"))
            .replace("engineConfig", &format!("modelSizeRange: {range}, engineConfig"))
    };
    let model = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: foo-20b}, spec: {modelFormat: {name: safetensors}}}";
    let service = service("", "").replace("name: m}", "name: foo-20b}");
    let (far, near) = (runtime("a", "{min: 1B, max: 3B}"), runtime("b", "{min: 10B, max: 18B}"));
    let decision = fixture_with_classes(&[model, &far, &near, &service]).decide();
    assert_eq!(selection(&decision).0, "b", "{}", decision.message);
    let codes = warning_codes(&decision);
    assert!(!codes.contains(&"AmbiguousRuntimes"), "{codes:?}");
    let warning = decision.warnings.iter().find(|warning| warning.code == "ModelSizeInferred").unwrap();
    assert!(warning.message.ends_with("the size range 10B–18B of runtime b does not contain"), "{}", warning.message);
    let within = runtime("c", "{min: 10B, max: 30B}");
    let decision = fixture_with_classes(&[model, &near, &within, &service]).decide();
    assert_eq!(selection(&decision).0, "c", "{}", decision.message);
}
