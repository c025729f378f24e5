//! Accelerator classes that Pods could request nothing of, or that no node can belong to.

use apimachinery::quantity::Quantity;
use serde_json::Value;

use super::{Finding, short};
use crate::ome::{self, AcceleratorClassSpec};

/// Findings about one class.
pub(super) fn check(class: &AcceleratorClassSpec) -> Vec<Finding> {
    let mut findings: Vec<Finding> = nothing_to_request(class).into_iter().chain(no_discovery(class)).collect();
    for (index, term) in class.discovery.node_selector_terms.iter().enumerate() {
        let path = format!("spec.discovery.nodeSelectorTerms[{index}]");
        let expressions = term["matchExpressions"].as_array().map(Vec::as_slice).unwrap_or_default();
        if expressions.is_empty() && term["matchFields"].as_array().is_none_or(Vec::is_empty) {
            let finding = Finding::warning(&path, "a term without expressions matches no node");
            findings.push(finding.hint("add `matchExpressions`, or leave the term out"));
        }
        let of = |(index, one): (usize, &Value)| expression(one, &format!("{path}.matchExpressions[{index}]"));
        findings.extend(expressions.iter().enumerate().filter_map(of));
    }
    findings
}

/// A class that says nothing of its nodes has none.
fn no_discovery(class: &AcceleratorClassSpec) -> Option<Finding> {
    let discovery = &class.discovery;
    let by_terms = !discovery.node_selector_terms.is_empty() || discovery.affinity.is_some();
    let by_device = discovery.pci_vendor_id.is_some() && !discovery.device_ids.is_empty();
    let found = !class.selector().is_empty() || by_terms || by_device;
    let finding = || Finding::warning("spec.discovery", "says nothing of nodes, so none belongs to the class");
    (!found).then(|| {
        finding()
            .hint("write a label that only such nodes have under `nodeSelector`; `kubectl describe node` shows them")
    })
}

/// An expression that no node label can be compared with.
fn expression(one: &Value, path: &str) -> Option<Finding> {
    const OPERATORS: [&str; 8] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];
    let values = one["values"].as_array().map(Vec::as_slice).unwrap_or_default();
    let operator = one["operator"].as_str().unwrap_or_default();
    if one["key"].as_str().unwrap_or_default().is_empty() {
        return Some(Finding::error(format!("{path}.key"), "is missing").hint("write the name of a node label"));
    }
    let at = |field: &str, message: String| Finding::error(format!("{path}.{field}"), message);
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            Some(at("values", format!("{operator} compares with values, and there are none")).hint("list one or more"))
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            Some(at("values", format!("{operator} takes no values")).hint("leave them out, or write `In`"))
        }
        "Gt" | "Lt" | "Gte" | "Lte" if !is_one_number(values) => Some(
            at("values", format!("{operator} compares with one number")).hint("write one such as `40960` or `40Gi`"),
        ),
        known if OPERATORS.contains(&known) => None,
        other => {
            let finding = at("operator", format!("`{}` is not an operator", short(other)));
            Some(finding.hint(format!("write one of {}", OPERATORS.join(", "))))
        }
    }
}

fn is_one_number(values: &[Value]) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    values.len() == 1 && values.iter().all(|value| text(value).parse::<Quantity>().is_ok())
}

/// A class says which resource Pods request, or is of a vendor whose device plugin is known.
fn nothing_to_request(class: &AcceleratorClassSpec) -> Option<Finding> {
    let vendor = class.vendor.as_deref().filter(|vendor| ome::vendor_resource(vendor).is_none())?;
    let message = format!(
        "vendor {vendor} is not known, so nothing says which resource Pods request, and the class is never chosen"
    );
    let hint = "write `resources: [{name: VENDOR/DEVICE}]`, as `kubectl describe node` lists it under Allocatable";
    class.resources.is_empty().then(|| Finding::warning("spec.resources", message).hint(hint))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    // spec: ACC-2
    #[rstest]
    #[case::unknown_vendor(
        "{vendor: acme, discovery: {nodeSelector: {acme.com/npu: x}}}",
        Some("vendor acme is not known")
    )]
    #[case::no_vendor("{discovery: {nodeSelector: {gpu: x}}}", None)]
    #[case::its_resource("{vendor: acme, discovery: {nodeSelector: {a: b}}, resources: [{name: acme.com/npu}]}", None)]
    #[case::known_vendor("{vendor: AMD, discovery: {nodeSelector: {a: b}}}", None)]
    // spec: ACC-16
    #[case::not_an_operator(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Above, values: ['1']}]}]}}",
        Some("`Above` is not an operator")
    )]
    #[case::two_bounds(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gte, values: ['1', '2']}]}]}}",
        Some("Gte compares with one number")
    )]
    #[case::no_number(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Lt, values: [much]}]}]}}",
        Some("Lt compares with one number")
    )]
    #[case::a_quantity(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Lt, values: [24Gi]}, {key: b, operator: Gt, values: [7]}]}]}}",
        None
    )]
    #[case::no_values(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}",
        Some("In compares with values")
    )]
    #[case::needless_values(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}}",
        Some("Exists takes no values")
    )]
    #[case::no_key("{discovery: {nodeSelectorTerms: [{matchExpressions: [{operator: Exists}]}]}}", Some("is missing"))]
    #[case::an_empty_term("{discovery: {nodeSelectorTerms: [{}]}}", Some("a term without expressions matches no node"))]
    #[case::a_field(
        "{discovery: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n]}]}]}}",
        None
    )]
    // spec: ACC-18
    #[case::pci_ids("{discovery: {pciVendorID: 10de, deviceIDs: ['20b0']}}", None)]
    #[case::a_vendor_alone("{discovery: {pciVendorID: 10de}}", Some("says nothing of nodes"))]
    #[case::nothing("{discovery: {}}", Some("says nothing of nodes"))]
    // spec: ACC-50
    #[case::a_selector_beside_it("{discovery: {}, nodeSelector: {a: b}}", None)]
    fn what_is_told_of_a_class(#[case] spec: &str, #[case] expect: Option<&str>) {
        let document =
            crate::manifest::read("t", &format!("{{apiVersion: v1, kind: C, spec: {spec}}}")).unwrap().remove(0);
        let spec: AcceleratorClassSpec = serde_json::from_value(document.value["spec"].clone()).unwrap();
        let findings: Vec<String> = check(&spec).into_iter().map(|finding| finding.message).collect();
        match expect {
            Some(expect) => assert!(findings[0].contains(expect), "{findings:?}"),
            None => assert!(findings.is_empty(), "{findings:?}"),
        }
    }
}
