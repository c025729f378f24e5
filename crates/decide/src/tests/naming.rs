//! Tests of model sizes in runtime names, and of device partitions.

use rstest::rstest;
use serde_json::json;

use super::{class, class_code, decide, demand, demand_7b, rejection_code, runtimes};

/// A runtime with 14B in its name and no size range is not selected for a 7B model unless the service names it or the
/// runtime sets a range.
#[rstest]
#[case::other_size("qwen-14b", json!({}), None, "SizeOutOfRange")]
#[case::same_size("qwen-7b", json!({}), None, "")]
#[case::no_size("universal", json!({}), None, "")]
#[case::range_before_name("qwen-14b", json!({"range": {"max": "20B"}}), None, "")]
#[case::named_by_service("qwen-14b", json!({}), Some("qwen-14b"), "")]
fn evaluates_size_in_runtime_name(
    #[case] runtime: &str,
    #[case] spec: serde_json::Value,
    #[case] named: Option<&str>,
    #[case] expected: &str,
) {
    let mut demand = demand_7b();
    demand.runtime = named.map(str::to_owned);
    assert_eq!(rejection_code(&decide(&demand, &runtimes(&[(runtime, spec)]), None), runtime), expected);
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
