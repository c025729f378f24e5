//! Tests of runtimes that are for accelerators of one vendor, and of accelerators that no node has.

use rstest::rstest;

use super::class_code;
use super::fixture::{RUNTIME, fixture, fixture_with_classes, model, selection, service};

/// RUNTIME without requirements that only NVIDIA classes meet.
fn runtime(runner: &str, fields: &str) -> String {
    RUNTIME
        .replace("acceleratorRequirements: {requiredCapabilities: {features: [tensor-cores]}}", fields)
        .replace("image: i", runner)
}

const MI250X: &str = "{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {name: amd-mi250x}, spec: {vendor: amd, discovery: {nodeSelector: {gpu: mi250x}}, capabilities: {memoryGB: 128Gi}, resources: [{name: amd.com/gpu}]}}";

const ANY_CLASS: &str = "acceleratorRequirements: {requiredCapabilities: {memoryGB: 1}}";

#[rstest]
#[case::unbound("image: i", ANY_CLASS, "", "Eligible")]
#[case::resource("image: i, resources: {limits: {nvidia.com/gpu: 1}}", ANY_CLASS, "", "VendorMismatch")]
#[case::image("image: \"lmsysorg/sglang:v0.5-cu126\"", ANY_CLASS, "", "VendorMismatch")]
#[case::image_of_the_vendor("image: \"rocm/vllm:1\"", ANY_CLASS, "", "Eligible")]
#[case::two_vendors("image: i, resources: {limits: {nvidia.com/gpu: 1, amd.com/gpu: 1}}", ANY_CLASS, "", "Eligible")]
#[case::configuration(
    "image: i, resources: {limits: {nvidia.com/gpu: 1}}",
    "acceleratorConfigurations: [{selector: {acceleratorClass: amd-mi250x}, runner: {image: \"rocm/vllm:1\"}}], acceleratorRequirements: {requiredCapabilities: {memoryGB: 1}}",
    "",
    "Eligible"
)]
#[case::supported_by_name(
    "image: i, resources: {limits: {nvidia.com/gpu: 1}}",
    "acceleratorRequirements: {supportedClasses: [amd-mi250x, nvidia-a100-40gb]}",
    "",
    "Eligible"
)]
#[case::preferred_by_the_service(
    "image: i, resources: {limits: {nvidia.com/gpu: 1}}",
    ANY_CLASS,
    "acceleratorSelector: {preferredClasses: [amd-mi250x]}",
    "VendorMismatch"
)]
#[case::image_of_the_service(
    "image: i, resources: {limits: {nvidia.com/gpu: 1}}",
    ANY_CLASS,
    "engine: {runner: {image: \"rocm/vllm:1\"}}",
    "Eligible"
)]
// spec: ACC-3
fn vendor_of_the_runtime_binds(
    #[case] runner: &str,
    #[case] fields: &str,
    #[case] service_fields: &str,
    #[case] expected: &str,
) {
    let documents = [model("7B", ""), runtime(runner, fields), service(service_fields, ""), MI250X.to_owned()];
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let decision = fixture_with_classes(&documents).decide();
    assert_eq!(class_code(&decision, "amd-mi250x"), expected, "{}", decision.message);
    if expected == "VendorMismatch" {
        assert_ne!(selection(&decision).1, "amd-mi250x");
    }
}

#[rstest]
#[case::no_node("{nvidia.com/gpu: 1}", "{cpu: 64}", Some("no node has this resource"))]
#[case::other_vendor("{nvidia.com/gpu: 1}", "{amd.com/gpu: 8}", Some("no node has this resource"))]
#[case::too_many("{nvidia.com/gpu: 16}", "{nvidia.com/gpu: 8}", Some("the largest node has 8"))]
#[case::sufficient("{nvidia.com/gpu: 8}", "{nvidia.com/gpu: 8}", None)]
#[case::no_accelerators("{cpu: 8}", "{cpu: 64}", None)]
#[case::unknown_nodes("{nvidia.com/gpu: 16}", "", None)]
fn plan_without_classes_requires_a_node(
    #[case] limits: &str,
    #[case] allocatable: &str,
    #[case] expected: Option<&str>,
) {
    let runtime = runtime(&format!("image: i, resources: {{limits: {limits}}}"), "annotations: {}");
    let node = format!("{{apiVersion: v1, kind: Node, metadata: {{name: n}}, status: {{allocatable: {allocatable}}}}}");
    let mut documents = vec![model("7B", ""), runtime, service("", "")];
    documents.extend((!allocatable.is_empty()).then_some(node));
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let decision = fixture(&documents).decide();
    assert_eq!(decision.feasible, expected.is_none(), "{}", decision.message);
    if let Some(expected) = expected {
        let rejection = decision.candidates[0].rejected.as_ref().unwrap();
        assert_eq!(rejection.code().as_str(), "AcceleratorUnavailable");
        assert!(rejection.to_string().ends_with(expected), "{rejection}");
    }
}
