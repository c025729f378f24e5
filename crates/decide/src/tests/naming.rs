//! Names where fields say nothing, and slices of devices.

use rstest::rstest;
use serde_json::json;

use super::{class, class_code, code, decide, demand, plain_7b, runtimes};

/// A runtime for 14B that states no range is not chosen for 7B; naming it or stating a range is a person's word.
#[rstest]
#[case::another_size("qwen-14b", json!({}), None, "SizeOutOfRange")]
#[case::its_size("qwen-7b", json!({}), None, "")]
#[case::no_size("universal", json!({}), None, "")]
#[case::a_range_counts_first("qwen-14b", json!({"range": {"max": "20B"}}), None, "")]
#[case::named("qwen-14b", json!({}), Some("qwen-14b"), "")]
fn the_size_in_a_name(
    #[case] runtime: &str,
    #[case] spec: serde_json::Value,
    #[case] named: Option<&str>,
    #[case] expect: &str,
) {
    let mut demand = plain_7b();
    demand.runtime = named.map(str::to_owned);
    assert_eq!(code(&decide(&demand, &runtimes(&[(runtime, spec)]), None), runtime), expect);
}

#[test]
fn among_equals_the_namesake_of_the_model_wins() {
    let supply = runtimes(&[("a", json!({})), ("srt-mistral-7b-instruct", json!({}))]);
    assert_eq!(decide(&plain_7b(), &supply, None).runtime.unwrap().name, "srt-mistral-7b-instruct");
}

#[test]
fn slices_of_a_device_are_not_joined() {
    let slice = |memory: &str| {
        class(
            &json!({"metadata": {"name": memory.to_lowercase()}, "spec": {
                "capabilities": {"memoryGB": memory},
                "resources": [{"name": "nvidia.com/mig-1g", "divisible": true}],
            }}),
            None,
        )
    };
    let mut supply = runtimes(&[("a", json!({}))]);
    supply.classes = vec![slice("10Gi").into(), slice("20Gi").into()];
    let mut demand = demand("mistral-7b-instruct", json!({"acceleratorSelector": {"strategy": "cost"}}));
    demand.runtime = Some("a".to_owned());
    let decision = decide(&demand, &supply, None);
    assert_eq!(class_code(&decision, "10gi"), "ModelDoesNotFit");
    assert_eq!(decision.components["engine"].accelerators_per_node, 1);
}
