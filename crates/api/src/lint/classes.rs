//! Accelerator classes without a known resource or without matching nodes.

use apimachinery::Quantity;
use serde_json::Value;

use super::finding::{Finding, REQUIRED_FIELD_MISSING};
use super::truncate::abbreviate;
use crate::ome::{self, AcceleratorClassSpec};

/// Returns the findings about an accelerator class.
pub(super) fn check(class: &AcceleratorClassSpec) -> Vec<Finding> {
    let mut findings: Vec<Finding> = unknown_resource(class).into_iter().chain(no_discovery(class)).collect();
    for (index, term) in class.discovery.node_selector_terms.iter().enumerate() {
        let path = format!("spec.discovery.nodeSelectorTerms[{index}]");
        let expressions = term["matchExpressions"].as_array().map(Vec::as_slice).unwrap_or_default();
        if expressions.is_empty() && term["matchFields"].as_array().is_none_or(Vec::is_empty) {
            let finding = Finding::warning(&path, "a term without expressions matches no node");
            findings.push(finding.with_hint("add `matchExpressions`, or remove the term"));
        }
        let check = |(index, expression): (usize, &Value)| {
            check_expression(expression, &format!("{path}.matchExpressions[{index}]"))
        };
        findings.extend(expressions.iter().enumerate().filter_map(check));
    }
    findings
}

/// Warns about a class that does not select any nodes.
fn no_discovery(class: &AcceleratorClassSpec) -> Option<Finding> {
    let discovery = &class.discovery;
    let has_terms = !discovery.node_selector_terms.is_empty() || discovery.affinity.is_some();
    let has_device_ids = discovery.pci_vendor_id.is_some() && !discovery.device_ids.is_empty();
    let selects_nodes = !class.merged_node_selector().is_empty() || has_terms || has_device_ids;
    let finding =
        || Finding::warning("spec.discovery", "discovery does not select any nodes, so no node belongs to the class");
    (!selects_nodes).then(|| {
        finding()
            .with_hint("set `nodeSelector` to a label that only nodes with this accelerator have; `kubectl describe node` lists labels")
    })
}

/// Checks one expression of a node selector term.
fn check_expression(expression: &Value, path: &str) -> Option<Finding> {
    const OPERATORS: [&str; 8] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];
    let values = expression["values"].as_array().map(Vec::as_slice).unwrap_or_default();
    let operator = expression["operator"].as_str().unwrap_or_default();
    if expression["key"].as_str().unwrap_or_default().is_empty() {
        return Some(
            Finding::error(format!("{path}.key"), REQUIRED_FIELD_MISSING).with_hint("use the key of a node label"),
        );
    }
    let error = |field: &str, message: String| Finding::error(format!("{path}.{field}"), message);
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            Some(error("values", format!("operator {operator} requires values")).with_hint("add at least one value"))
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => Some(
            error("values", format!("operator {operator} does not accept values"))
                .with_hint("remove the values or use `In`"),
        ),
        "Gt" | "Lt" | "Gte" | "Lte" if !is_single_quantity(values) => Some(
            error("values", format!("operator {operator} requires exactly one number"))
                .with_hint("use one number, such as `40960` or `40Gi`"),
        ),
        supported if OPERATORS.contains(&supported) => None,
        unknown => {
            let finding = error("operator", format!("unknown operator `{}`", abbreviate(unknown)));
            Some(finding.with_hint(format!("use one of {}", OPERATORS.join(", "))))
        }
    }
}

fn is_single_quantity(values: &[Value]) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    values.len() == 1 && values.iter().all(|value| text(value).parse::<Quantity>().is_ok())
}

/// Warns about a class without `resources` whose vendor has no known device plugin.
fn unknown_resource(class: &AcceleratorClassSpec) -> Option<Finding> {
    let vendor = class.vendor.as_deref().filter(|vendor| ome::vendor_resource(vendor).is_none())?;
    let message = format!(
        "vendor {vendor} is unknown and resources is empty, so Pods cannot request the accelerator and the class is never selected"
    );
    let hint =
        "set `resources: [{name: VENDOR/DEVICE}]` to the resource that `kubectl describe node` lists under Allocatable";
    class.resources.is_empty().then(|| Finding::warning("spec.resources", message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    // spec: ACC-2
    #[rstest]
    #[case::unknown_vendor(
        "{vendor: acme, discovery: {nodeSelector: {acme.com/npu: x}}}",
        Some("vendor acme is unknown")
    )]
    #[case::no_vendor("{discovery: {nodeSelector: {gpu: x}}}", None)]
    #[case::explicit_resource(
        "{vendor: acme, discovery: {nodeSelector: {a: b}}, resources: [{name: acme.com/npu}]}",
        None
    )]
    #[case::known_vendor("{vendor: AMD, discovery: {nodeSelector: {a: b}}}", None)]
    // spec: ACC-16
    #[case::not_an_operator(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Above, values: ['1']}]}]}}",
        Some("unknown operator `Above`")
    )]
    #[case::two_values(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gte, values: ['1', '2']}]}]}}",
        Some("operator Gte requires exactly one number")
    )]
    #[case::not_a_number(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Lt, values: [many]}]}]}}",
        Some("operator Lt requires exactly one number")
    )]
    #[case::quantity(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Lt, values: [24Gi]}, {key: b, operator: Gt, values: [7]}]}]}}",
        None
    )]
    #[case::no_values(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}",
        Some("operator In requires values")
    )]
    #[case::unexpected_values(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}}",
        Some("operator Exists does not accept values")
    )]
    #[case::no_key(
        "{discovery: {nodeSelectorTerms: [{matchExpressions: [{operator: Exists}]}]}}",
        Some("required field is missing")
    )]
    #[case::empty_term("{discovery: {nodeSelectorTerms: [{}]}}", Some("a term without expressions matches no node"))]
    #[case::match_fields(
        "{discovery: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n]}]}]}}",
        None
    )]
    // spec: ACC-18
    #[case::pci_ids("{discovery: {pciVendorID: 10de, deviceIDs: ['20b0']}}", None)]
    #[case::pci_vendor_without_devices("{discovery: {pciVendorID: 10de}}", Some("discovery does not select any nodes"))]
    #[case::empty_discovery("{discovery: {}}", Some("discovery does not select any nodes"))]
    // spec: ACC-50
    #[case::spec_node_selector("{discovery: {}, nodeSelector: {a: b}}", None)]
    fn reports_invalid_classes(#[case] spec: &str, #[case] expect: Option<&str>) {
        let document = crate::manifest::parse_manifest("t", &format!("{{apiVersion: v1, kind: C, spec: {spec}}}"))
            .unwrap()
            .remove(0);
        let spec: AcceleratorClassSpec = serde_json::from_value(document.value["spec"].clone()).unwrap();
        let findings: Vec<String> = check(&spec).into_iter().map(|finding| finding.message).collect();
        match expect {
            Some(expect) => assert!(findings[0].contains(expect), "{findings:?}"),
            None => assert!(findings.is_empty(), "{findings:?}"),
        }
    }
}
