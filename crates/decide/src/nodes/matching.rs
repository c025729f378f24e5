//! Which nodes belong to a class: selectors, terms with quantities, PCI ids.

use std::borrow::Cow;
use std::collections::BTreeMap;

use apimachinery::Quantity;
use serde_json::Value;

use crate::units::text_of;

/// How nodes of a class are recognised; the ways are alternatives. An empty discovery matches no node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Discovery {
    pub node_selector: BTreeMap<String, String>,
    /// `NodeSelectorTerm`s as JSON; besides the operators of Kubernetes `Gte` and `Lte`, and quantities as values.
    pub terms: Vec<Value>,
    pub pci_vendor: Option<String>,
    pub device_ids: Vec<String>,
}

/// Does the node of this name with these labels carry the class's accelerators?
#[must_use]
pub fn matches_discovery(discovery: &Discovery, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let selected = !discovery.node_selector.is_empty() && labels_match_selector(labels, &discovery.node_selector);
    let within = |term: &Value| term_matches_node(term, name, labels);
    selected || discovery.terms.iter().any(within) || pci_matches(discovery, labels)
}

/// Every key with its value; product names count with or without their `NVIDIA-`.
#[must_use]
pub fn labels_match_selector(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key).is_some_and(|label| label_value_matches(key, label, value)))
}

/// Whether a label's value means `wanted`.
pub(crate) fn label_value_matches(key: &str, label: &str, wanted: &str) -> bool {
    label == wanted || (key == "nvidia.com/gpu.product" && bare(label) == bare(wanted))
}

fn bare(product: &str) -> &str {
    product.trim_start_matches("NVIDIA-")
}

/// All expressions of the term hold; a term without expressions matches nothing, as in Kubernetes.
#[must_use]
pub fn term_matches(term: &Value, labels: &BTreeMap<String, String>) -> bool {
    let expressions = list(term, "matchExpressions");
    !expressions.is_empty() && expressions.iter().all(|expression| expression_matches(expression, labels))
}

/// The same of a node whose name is known: `matchFields` speak of `metadata.name`, and of nothing else in Kubernetes.
#[must_use]
pub fn term_matches_node(term: &Value, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let fields = list(term, "matchFields");
    if fields.is_empty() {
        return term_matches(term, labels);
    }
    let of_node = BTreeMap::from([("metadata.name".to_owned(), name.to_owned())]);
    fields.iter().all(|field| expression_matches(field, &of_node))
        && list(term, "matchExpressions").iter().all(|expression| expression_matches(expression, labels))
}

fn list<'a>(term: &'a Value, name: &str) -> &'a [Value] {
    term.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn written(value: &Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| text_of(value).into(), Cow::from)
}

fn expression_matches(expression: &Value, labels: &BTreeMap<String, String>) -> bool {
    let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
    let values = || list(expression, "values").iter().map(written);
    let label = labels.get(key);
    let is_in = || label.is_some_and(|label| values().any(|value| label_value_matches(key, label, &value)));
    let order = || compare(key, label?, &values().next()?);
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

/// Compares a node label with a quantity in the label's own unit. Plain integers compare exactly; sizes with a
/// suffix within 2 %, because an 80 GiB device reports 81,559 MiB.
fn compare(key: &str, label: &str, wanted: &str) -> Option<std::cmp::Ordering> {
    if let (Ok(label), Ok(wanted)) = (label.parse::<i64>(), wanted.parse::<i64>()) {
        return Some(label.cmp(&wanted));
    }
    let label = label.parse::<Quantity>().ok()?.as_f64() * label_unit(key);
    let wanted = wanted.parse::<Quantity>().ok()?.as_f64();
    if (label - wanted).abs() <= wanted.abs() * MEMORY_TOLERANCE {
        return Some(std::cmp::Ordering::Equal);
    }
    label.partial_cmp(&wanted)
}

/// Share by which memory may fall short of its nominal size.
pub const MEMORY_TOLERANCE: f64 = 0.02;

/// Bytes that one unit of the label stands for.
#[must_use]
pub fn label_unit(key: &str) -> f64 {
    // GPU feature discovery publishes memory in MiB.
    if key == "nvidia.com/gpu.memory" { f64::from(1 << 20) } else { 1.0 }
}

/// node-feature-discovery labels: `feature.node.kubernetes.io/pci-0302_10de_2330.present`.
fn pci_matches(discovery: &Discovery, labels: &BTreeMap<String, String>) -> bool {
    let Some(vendor) = discovery.pci_vendor.as_deref().map(str::to_ascii_lowercase) else { return false };
    let pci = labels.iter().filter(|(_, value)| *value == "true");
    let mut ids =
        pci.filter_map(|(key, _)| key.strip_prefix("feature.node.kubernetes.io/pci-")?.strip_suffix(".present"));
    ids.any(|id| {
        let parts: Vec<String> = id.split('_').map(str::to_ascii_lowercase).collect();
        let known = |device: &String| parts.contains(&device.to_ascii_lowercase());
        parts.contains(&vendor) && discovery.device_ids.iter().any(known)
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
    #[case::every_label(&[("gpu", "a100"), ("zone", "x"), ("more", "1")], true)]
    #[case::one_is_missing(&[("gpu", "a100")], false)]
    #[case::another_value(&[("gpu", "a100"), ("zone", "y")], false)]
    fn a_selector_wants_every_label(#[case] node: &[(&str, &str)], #[case] expect: bool) {
        let node_selector = labels(&[("gpu", "a100"), ("zone", "x")]);
        assert_eq!(
            matches_discovery(&Discovery { node_selector, ..Discovery::default() }, "n1", &labels(node)),
            expect
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
    fn operators(#[case] operator: &str, #[case] values: Value, #[case] expect: bool) {
        let holds = json!({"matchExpressions": [{"key": "n", "operator": operator, "values": values}]});
        assert_eq!(term_matches(&holds, &labels(&[("n", "7")])), expect);
        // Within a term all hold, of the terms one suffices.
        let never = json!({"key": "m", "operator": "Exists"});
        let mut both = holds.clone();
        both["matchExpressions"].as_array_mut().unwrap().push(never.clone());
        assert!(!term_matches(&both, &labels(&[("n", "7")])));
        let terms = vec![json!({"matchExpressions": [never]}), holds];
        assert_eq!(
            matches_discovery(&Discovery { terms, ..Discovery::default() }, "n1", &labels(&[("n", "7")])),
            expect
        );
    }

    // spec: ACC-17
    #[rstest]
    #[case::by_the_selector("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB", true)]
    #[case::by_a_term("nvidia.com/gpu.product", "NVIDIA-A100-PCIE-40GB", true)]
    #[case::by_neither("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB", false)]
    fn selector_and_terms_are_alternatives(#[case] key: &str, #[case] value: &str, #[case] expect: bool) {
        let pcie = json!({"key": key, "operator": "In", "values": ["NVIDIA-A100-PCIE-40GB"]});
        let discovery = Discovery {
            node_selector: labels(&[(key, "NVIDIA-A100-SXM4-40GB")]),
            terms: vec![json!({"matchExpressions": [pcie]})],
            ..Discovery::default()
        };
        assert_eq!(matches_discovery(&discovery, "n1", &labels(&[(key, value)])), expect);
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
    #[case::another_device("pci-0302_10de_2330.present", "true", false)]
    #[case::another_vendor("pci-0302_1002_20b0.present", "true", false)]
    fn pci_ids(#[case] key: &str, #[case] value: &str, #[case] expect: bool) {
        let device_ids = vec!["20b0".to_owned(), "20b2".to_owned()];
        let discovery = Discovery { pci_vendor: Some("10de".to_owned()), device_ids, ..Discovery::default() };
        let key = format!("feature.node.kubernetes.io/{key}");
        assert_eq!(matches_discovery(&discovery, "n1", &labels(&[(&key, value)])), expect);
    }

    #[rstest]
    #[case::its_name("n1", json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]), true)]
    #[case::another("n2", json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]), false)]
    #[case::name_and_label("n1", json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}],
        "matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]), false)]
    fn nodes_by_name(#[case] name: &str, #[case] terms: Value, #[case] expect: bool) {
        let terms = terms.as_array().unwrap().clone();
        assert_eq!(
            matches_discovery(&Discovery { terms, ..Discovery::default() }, name, &labels(&[("zone", "x")])),
            expect
        );
    }
}
