//! Accelerator classes that Pods could request nothing of.

use super::Finding;
use crate::ome::{self, AcceleratorClassSpec};

/// Findings about one class.
pub(super) fn check(class: &AcceleratorClassSpec) -> Vec<Finding> {
    nothing_to_request(class).into_iter().collect()
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
    #[case::its_resource("{vendor: acme, discovery: {}, resources: [{name: acme.com/npu}]}", None)]
    #[case::known_vendor("{vendor: AMD, discovery: {}}", None)]
    fn what_pods_request(#[case] spec: &str, #[case] expect: Option<&str>) {
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
