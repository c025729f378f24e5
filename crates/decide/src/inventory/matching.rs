//! Which nodes belong to a class: selectors, terms with quantities, PCI ids.

use std::collections::BTreeMap;

use apimachinery::quantity::Quantity;
use serde_json::Value;

use super::facts::text_of;

/// How nodes of a class are recognised; the ways are alternatives. An empty discovery matches no node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Discovery {
    pub node_selector: BTreeMap<String, String>,
    /// `NodeSelectorTerm`s as JSON; besides the operators of Kubernetes `Gte` and `Lte`, and quantities as values.
    pub terms: Vec<Value>,
    pub pci_vendor: Option<String>,
    pub device_ids: Vec<String>,
}

/// Does a node with these labels carry the class's accelerators?
#[must_use]
pub fn belongs(discovery: &Discovery, labels: &BTreeMap<String, String>) -> bool {
    let selected = !discovery.node_selector.is_empty() && has_all(labels, &discovery.node_selector);
    selected || discovery.terms.iter().any(|term| term_matches(term, labels)) || pci_matches(discovery, labels)
}

/// Every key with its value; product names count with or without their `NVIDIA-`.
#[must_use]
pub fn has_all(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key).is_some_and(|label| same_value(key, label, value)))
}

/// Whether a label's value means `wanted`.
pub(crate) fn same_value(key: &str, label: &str, wanted: &str) -> bool {
    let bare = |text: &str| text.trim_start_matches("NVIDIA-").to_owned();
    label == wanted || (key == "nvidia.com/gpu.product" && bare(label) == bare(wanted))
}

/// All expressions of the term hold; a term without expressions matches nothing, as in Kubernetes.
#[must_use]
pub fn term_matches(term: &Value, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.get("matchExpressions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    !expressions.is_empty() && expressions.iter().all(|expression| expression_matches(expression, labels))
}

fn expression_matches(expression: &Value, labels: &BTreeMap<String, String>) -> bool {
    let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
    let values: Vec<String> = expression
        .get("values")
        .and_then(Value::as_array)
        .map(|values| values.iter().map(text_of).collect())
        .unwrap_or_default();
    let label = labels.get(key);
    let is_in = || label.is_some_and(|label| values.iter().any(|value| same_value(key, label, value)));
    let order = || compare(key, label?, values.first()?);
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
    if (label - wanted).abs() <= wanted.abs() * TOLERANCE {
        return Some(std::cmp::Ordering::Equal);
    }
    label.partial_cmp(&wanted)
}

/// Share by which memory may fall short of its nominal size.
pub const TOLERANCE: f64 = 0.02;

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
