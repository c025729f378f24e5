//! Matching of nodes to a class: node selectors, node selector terms with quantities, PCI IDs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use apimachinery::Quantity;
use serde_json::Value;

use crate::units::value_text;

/// How a class matches nodes: by selector, by terms or by PCI IDs. An empty discovery matches no node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Discovery {
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// `NodeSelectorTerm`s as JSON, with the additional operators `Gte` and `Lte` and quantities as values.
    pub terms: Vec<Value>,
    /// PCI vendor ID, such as `10de`.
    pub pci_vendor: Option<String>,
    /// PCI device IDs.
    pub device_ids: Vec<String>,
}

/// Whether a node with this name and these labels belongs to the class.
#[must_use]
pub fn matches_discovery(discovery: &Discovery, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let matches_selector =
        !discovery.node_selector.is_empty() && labels_match_selector(labels, &discovery.node_selector);
    let matches_term = |term: &Value| term_matches_node(term, name, labels);
    matches_selector || discovery.terms.iter().any(matches_term) || pci_matches(discovery, labels)
}

/// Whether the labels have every key and value of the selector. Product names match with or without the `NVIDIA-` prefix.
#[must_use]
pub fn labels_match_selector(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key).is_some_and(|label| label_value_matches(key, label, value)))
}

/// Whether the value of a label equals `expected`, ignoring the vendor prefix of product names.
pub(crate) fn label_value_matches(key: &str, label: &str, expected: &str) -> bool {
    label == expected || comparable_value(key, label) == comparable_value(key, expected)
}

/// Returns the part of a label's value that is compared: product names without their vendor.
pub(crate) fn comparable_value<'a>(key: &str, value: &'a str) -> &'a str {
    if key == "nvidia.com/gpu.product" { value.trim_start_matches("NVIDIA-") } else { value }
}

/// Whether all expressions of the term hold. A term without expressions matches nothing, as in Kubernetes.
#[must_use]
pub fn term_matches(term: &Value, labels: &BTreeMap<String, String>) -> bool {
    let expressions = list(term, "matchExpressions");
    !expressions.is_empty() && expressions.iter().all(|expression| expression_matches(expression, labels))
}

/// Whether the term matches the node, including `matchFields`, which Kubernetes supports for `metadata.name` only.
pub(crate) fn term_matches_node(term: &Value, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let fields = list(term, "matchFields");
    if fields.is_empty() {
        return term_matches(term, labels);
    }
    let node_fields = BTreeMap::from([("metadata.name".to_owned(), name.to_owned())]);
    fields.iter().all(|field| expression_matches(field, &node_fields))
        && list(term, "matchExpressions").iter().all(|expression| expression_matches(expression, labels))
}

fn list<'a>(term: &'a Value, name: &str) -> &'a [Value] {
    term.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn expression_value(value: &Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| value_text(value).into(), Cow::from)
}

fn expression_matches(expression: &Value, labels: &BTreeMap<String, String>) -> bool {
    let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
    let values = || list(expression, "values").iter().map(expression_value);
    let label = labels.get(key);
    let is_in = || label.is_some_and(|label| values().any(|value| label_value_matches(key, label, &value)));
    let order = || compare_label(key, label?, &values().next()?);
    match expression.get("operator").and_then(Value::as_str).unwrap_or_default() {
        "In" => is_in(),
        "NotIn" => !is_in(),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => order().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => order().is_some_and(std::cmp::Ordering::is_lt),
        "Gte" => order().is_some_and(std::cmp::Ordering::is_ge),
        "Lte" => order().is_some_and(std::cmp::Ordering::is_le),
        _ => false,
    }
}

/// Compares a node label with a quantity in the unit of the label. Integers compare exactly. Quantities with a suffix
/// compare with [`MEMORY_TOLERANCE`], because an 80 GiB device reports 81,559 MiB and one of 24 GiB with GDDR6 23,034 MiB.
fn compare_label(key: &str, label: &str, expected: &str) -> Option<std::cmp::Ordering> {
    if let (Ok(label), Ok(expected)) = (label.parse::<i64>(), expected.parse::<i64>()) {
        return Some(label.cmp(&expected));
    }
    let label = label.parse::<Quantity>().ok()?.as_f64() * bytes_per_label_unit(key);
    let expected = expected.parse::<Quantity>().ok()?.as_f64();
    if (label - expected).abs() <= expected.abs() * MEMORY_TOLERANCE {
        return Some(std::cmp::Ordering::Equal);
    }
    label.partial_cmp(&expected)
}

/// Fraction by which the memory of a device may be less than its nominal size. Devices with GDDR6 store error correction codes in
/// a sixteenth of their memory: T4 has 15,360 MiB, A10 23,028 (modal-labs/modal-client, pull request 2797).
pub(crate) const MEMORY_TOLERANCE: f64 = 0.065;

/// Returns the bytes per unit of the label.
pub(crate) fn bytes_per_label_unit(key: &str) -> f64 {
    // GPU feature discovery publishes memory in MiB.
    if key == "nvidia.com/gpu.memory" { f64::from(1 << 20) } else { 1.0 }
}

/// Matches labels of node-feature-discovery: `feature.node.kubernetes.io/pci-0302_10de_2330.present`.
fn pci_matches(discovery: &Discovery, labels: &BTreeMap<String, String>) -> bool {
    let Some(vendor) = discovery.pci_vendor.as_deref().map(str::to_ascii_lowercase) else { return false };
    let pci_labels = labels.iter().filter(|(_, value)| *value == "true");
    let mut ids =
        pci_labels.filter_map(|(key, _)| key.strip_prefix("feature.node.kubernetes.io/pci-")?.strip_suffix(".present"));
    ids.any(|id| {
        let parts: Vec<String> = id.split('_').map(str::to_ascii_lowercase).collect();
        let has_device = |device: &String| parts.contains(&device.to_ascii_lowercase());
        parts.contains(&vendor) && discovery.device_ids.iter().any(has_device)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    // spec: ACC-15
    #[rstest]
    #[case::all_labels(&[("gpu", "a100"), ("zone", "x"), ("more", "1")], true)]
    #[case::label_missing(&[("gpu", "a100")], false)]
    #[case::different_value(&[("gpu", "a100"), ("zone", "y")], false)]
    fn selector_requires_every_label(#[case] node: &[(&str, &str)], #[case] expected: bool) {
        let node_selector = labels(&[("gpu", "a100"), ("zone", "x")]);
        assert_eq!(
            matches_discovery(&Discovery { node_selector, ..Discovery::default() }, "n1", &labels(node)),
            expected
        );
    }

    // spec: ACC-16
    #[rstest]
    #[case("In", json!(["a", "7"]), true)]
    #[case("In", json!(["a"]), false)]
    #[case("NotIn", json!(["a"]), true)]
    #[case("NotIn", json!(["7"]), false)]
    #[case("Exists", json!([]), true)]
    #[case("DoesNotExist", json!([]), false)]
    #[case("Gt", json!(["6"]), true)]
    #[case("Gt", json!(["7"]), false)]
    #[case("Lt", json!(["8"]), true)]
    #[case("Lt", json!(["7"]), false)]
    #[case("Gte", json!(["7"]), true)]
    #[case("Gte", json!(["8"]), false)]
    #[case("Lte", json!(["7"]), true)]
    #[case("Lte", json!(["6"]), false)]
    #[case("Near", json!(["7"]), false)]
    fn evaluates_operators(#[case] operator: &str, #[case] values: Value, #[case] expected: bool) {
        let term = json!({"matchExpressions": [{"key": "n", "operator": operator, "values": values}]});
        assert_eq!(term_matches(&term, &labels(&[("n", "7")])), expected);
        // All expressions of a term must match; if there are several terms, one suffices.
        let missing_label = json!({"key": "m", "operator": "Exists"});
        let mut both = term.clone();
        both["matchExpressions"].as_array_mut().unwrap().push(missing_label.clone());
        assert!(!term_matches(&both, &labels(&[("n", "7")])));
        let terms = vec![json!({"matchExpressions": [missing_label]}), term];
        assert_eq!(
            matches_discovery(&Discovery { terms, ..Discovery::default() }, "n1", &labels(&[("n", "7")])),
            expected
        );
    }

    // spec: ACC-17
    #[rstest]
    #[case::by_selector("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB", true)]
    #[case::by_term("nvidia.com/gpu.product", "NVIDIA-A100-PCIE-40GB", true)]
    #[case::by_neither("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB", false)]
    fn selector_and_terms_are_alternatives(#[case] key: &str, #[case] value: &str, #[case] expected: bool) {
        let pcie = json!({"key": key, "operator": "In", "values": ["NVIDIA-A100-PCIE-40GB"]});
        let discovery = Discovery {
            node_selector: labels(&[(key, "NVIDIA-A100-SXM4-40GB")]),
            terms: vec![json!({"matchExpressions": [pcie]})],
            ..Discovery::default()
        };
        assert_eq!(matches_discovery(&discovery, "n1", &labels(&[(key, value)])), expected);
        assert!(
            !matches_discovery(&Discovery::default(), "n1", &labels(&[(key, value)])),
            "an empty discovery matches no node"
        );
    }

    // spec: ACC-18
    #[rstest]
    #[case::present("pci-0302_10de_20b0.present", "true", true)]
    #[case::second_device("pci-0302_10DE_20B2.present", "true", true)]
    #[case::absent("pci-0302_10de_20b0.present", "false", false)]
    #[case::other_device("pci-0302_10de_2330.present", "true", false)]
    #[case::other_vendor("pci-0302_1002_20b0.present", "true", false)]
    fn matches_pci_ids(#[case] key: &str, #[case] value: &str, #[case] expected: bool) {
        let device_ids = vec!["20b0".to_owned(), "20b2".to_owned()];
        let discovery = Discovery { pci_vendor: Some("10de".to_owned()), device_ids, ..Discovery::default() };
        let key = format!("feature.node.kubernetes.io/{key}");
        assert_eq!(matches_discovery(&discovery, "n1", &labels(&[(&key, value)])), expected);
    }

    #[rstest]
    #[case::matching_name("n1", json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]), true)]
    #[case::other_name("n2", json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]), false)]
    #[case::name_and_label("n1", json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}],
        "matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]), false)]
    fn matches_node_by_name(#[case] name: &str, #[case] terms: Value, #[case] expected: bool) {
        let terms = terms.as_array().unwrap().clone();
        assert_eq!(
            matches_discovery(&Discovery { terms, ..Discovery::default() }, name, &labels(&[("zone", "x")])),
            expected
        );
    }
}
