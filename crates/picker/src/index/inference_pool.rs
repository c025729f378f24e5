//! Reads InferencePools, of both versions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Returns the selector of an InferencePool. In v1alpha2, it is a map of labels. A selector with a value that is not a
/// string selects nothing.
pub(super) fn selector(spec: &Value) -> BTreeMap<String, String> {
    let selector = &spec["selector"];
    let labels = selector["matchLabels"].as_object().or(selector.as_object()).into_iter().flatten();
    let labels: Option<BTreeMap<_, _>> =
        labels.map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    labels.unwrap_or_default()
}

/// Returns the target ports of an InferencePool. In v1alpha2, there is only `targetPortNumber`.
pub(super) fn ports(spec: &Value) -> BTreeSet<u16> {
    let ports = spec["targetPorts"].as_array().into_iter().flatten().map(|port| &port["number"]);
    let numbers = ports.chain([&spec["targetPortNumber"]]);
    numbers.filter_map(|number| u16::try_from(number.as_u64()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::v1(json!({"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": 8001}, {"number": 8000}]}), Some("llama"), &[8000, 8001])]
    #[case::v1alpha2(json!({"selector": {"app": "qwen"}, "targetPortNumber": 9000}), Some("qwen"), &[9000])]
    #[case::invalid_label(json!({"selector": {"app": 1}, "targetPorts": [{"number": 70_000}]}), None, &[])]
    #[case::empty(json!({}), None, &[])]
    fn reads_selector_and_ports(#[case] spec: Value, #[case] app: Option<&str>, #[case] expect: &[u16]) {
        assert_eq!(selector(&spec).get("app").map(String::as_str), app);
        assert_eq!(ports(&spec).into_iter().collect::<Vec<_>>(), expect);
    }
}
