//! Tests of number formats that accelerators compute, of preferred precisions, and of the prices of partitions.

use rstest::rstest;

use super::class_code;
use super::fixture::{RUNTIME, fixture, fixture_with_classes, model, selection, service, warning_codes};
use crate::complete_partitions;

/// RUNTIME with this image for models of this quantization.
fn runtime(image: &str, quantization: &str) -> String {
    RUNTIME
        .replace("autoSelect: true", &format!("autoSelect: true, quantization: \"{quantization}\""))
        .replace("image: i", &format!("image: \"{image}\""))
}

const VLLM: &str = "vllm/vllm-openai:v0.32.0";
const SGLANG: &str = "lmsysorg/sglang:v0.5.23";

/// With their units, the throughput of FP8 decides for H100, although A100 costs less than half.
#[rstest]
#[case::native(VLLM, "fp8", "acceleratorSelector: {constraints: {excludedClasses: [nvidia-t4]}}", "nvidia-h100-80gb", &[])]
#[case::converted_if_required(VLLM, "fp8", "acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}", "nvidia-a100-40gb", &["FormatEmulated"])]
#[case::cheapest(VLLM, "fp8", "acceleratorSelector: {strategy: cost}", "nvidia-t4", &["FormatEmulated"])]
#[case::cheapest_that_starts(SGLANG, "fp8", "acceleratorSelector: {strategy: cost}", "nvidia-a100-40gb", &["FormatEmulated"])]
#[case::bfloat16(VLLM, "", "acceleratorSelector: {preferredClasses: [nvidia-t4]}", "nvidia-t4", &["FormatEmulated"])]
#[case::float16(VLLM, "", "acceleratorSelector: {preferredClasses: [nvidia-t4]}, engine: {runner: {args: [--dtype=half]}}", "nvidia-t4", &[])]
// spec: ACC-77
fn classes_without_units_rank_lower_or_are_rejected(
    #[case] image: &str,
    #[case] quantization: &str,
    #[case] service_fields: &str,
    #[case] class: &str,
    #[case] warnings: &[&str],
) {
    let documents = [model("3B", quantization), runtime(image, quantization), service(service_fields, "")];
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let decision = fixture_with_classes(&documents).decide();
    assert_eq!(selection(&decision).1, class, "{}", decision.message);
    let codes = warning_codes(&decision);
    let emulated: Vec<&str> = codes.into_iter().filter(|code| *code == "FormatEmulated").collect();
    assert_eq!(emulated, warnings);
    if image == SGLANG {
        assert_eq!(class_code(&decision, "nvidia-t4"), "AcceleratorUnsupported");
    }
}

#[test]
fn message_names_what_the_engine_requires() {
    let t4 = "acceleratorSelector: {preferredClasses: [nvidia-t4]}";
    let documents = [model("3B", "fp8"), runtime(SGLANG, "fp8"), service(t4, "")];
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let decision = fixture_with_classes(&documents).decide();
    let reason = "sglang requires compute capability 8.0 for fp8; the class has 7.5";
    assert!(!decision.feasible && decision.message.contains(reason), "{}", decision.message);
}

/// Among classes with the same free capacity, the one that computes the first precision is selected; the service takes precedence over
/// the runtime.
#[rstest]
#[case::none("", "", "nvidia-t4")]
#[case::runtime("preferredPrecisions: [fp8, fp16], ", "", "nvidia-h100-80gb")]
#[case::service("preferredPrecisions: [fp8], ", ", constraints: {preferredPrecisions: [bf16]}", "nvidia-a100-40gb")]
#[case::unknown("preferredPrecisions: [int2], ", "", "nvidia-t4")]
fn preferred_precisions_rank_classes(#[case] requirements: &str, #[case] selector: &str, #[case] class: &str) {
    let runtime = RUNTIME.replace("acceleratorRequirements: {", &format!("acceleratorRequirements: {{{requirements}"));
    let service = service(&format!("acceleratorSelector: {{strategy: cost{selector}}}"), "");
    let decision = fixture_with_classes(&[&model("1B", ""), &runtime, &service]).decide();
    assert_eq!(selection(&decision).1, class, "{}", decision.message);
}

/// The prices of partitions are the device's price times their share of its memory, unless they declare one.
// spec: ACC-7
#[rstest]
#[case::derived("a100-40gb-mig-1g.5gb", "5Gi", "", Some(0.25))]
#[case::declared("a100-40gb-mig-1g.5gb", "5Gi", ", cost: {perHour: '0.4'}", Some(0.4))]
#[case::tier_is_no_price("a100-40gb-mig-3g.20gb", "20Gi", ", cost: {tier: low}", Some(1.0))]
#[case::unknown_device("h100-mig-1g.10gb", "10Gi", "", None)]
#[case::device_by_product("NVIDIA-A100-SXM4-40GB-MIG-2g.10gb", "10Gi", "", Some(0.5))]
#[case::replica_of_a_shared_device("A100-SXM4-40GB-SHARED", "20Gi", "", Some(1.0))]
#[case::unknown_product("NVIDIA-A30-MIG-1g.6gb", "6Gi", "", None)]
fn partitions_have_a_share_of_the_price(
    #[case] name: &str,
    #[case] memory: &str,
    #[case] cost: &str,
    #[case] expect: Option<f64>,
) {
    let class = |name: &str, product: &str, memory: &str, divisible: bool, rest: &str| {
        format!(
            "{{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {{name: {name}}}, spec: {{vendor: nvidia, discovery: {{nodeSelector: {{nvidia.com/gpu.product: {product}}}}}, capabilities: {{memoryGB: {memory}}}, resources: [{{name: nvidia.com/x, divisible: {divisible}}}]{rest}}}}}"
        )
    };
    let device = class("a100-40gb", "NVIDIA-A100-SXM4-40GB", "40Gi", false, ", cost: {perHour: '2'}");
    let mut supply = fixture(&[&device, &class(name, name, memory, true, cost)]).supply;
    complete_partitions(&mut supply);
    assert_eq!(supply.class(name).unwrap().cost.per_hour, expect);
    assert_eq!(supply.class("a100-40gb").unwrap().cost.per_hour, Some(2.0));
}

/// Bandwidth follows from the share of the memory, throughput from the share of the streaming multiprocessors.
#[rstest]
#[case::profile("a100-40gb-mig-3g.20gb", "20Gi", "", (Some(778.0), Some(135.0)))]
#[case::product("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "5Gi", "", (Some(194.5), Some(45.0)))]
#[case::shared("A100-SXM4-40GB-SHARED", "20Gi", "", (Some(778.0), Some(157.5)))]
#[case::stated("a100-40gb-mig-1g.5gb", "5Gi", ", memoryBandwidthGBps: '200', performance: {fp16TFLOPS: 40}", (Some(200.0), Some(40.0)))]
fn partitions_have_a_share_of_the_performance(
    #[case] name: &str,
    #[case] memory: &str,
    #[case] figures: &str,
    #[case] expect: (Option<f64>, Option<f64>),
) {
    let class = |name: &str, product: &str, divisible: bool, capabilities: &str| {
        format!(
            "{{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {{name: {name}}}, spec: {{vendor: nvidia, discovery: {{nodeSelector: {{nvidia.com/gpu.product: {product}}}}}, capabilities: {{{capabilities}}}, resources: [{{name: nvidia.com/x, divisible: {divisible}}}]}}}}"
        )
    };
    let figures_of_device = "memoryGB: 40Gi, memoryBandwidthGBps: '1556', performance: {fp16TFLOPS: 315}";
    let device = class("a100-40gb", "NVIDIA-A100-SXM4-40GB", false, figures_of_device);
    let mut supply = fixture(&[&device, &class(name, name, true, &format!("memoryGB: {memory}{figures}"))]).supply;
    complete_partitions(&mut supply);
    let partition = supply.class(name).unwrap();
    assert_eq!((partition.bandwidth, partition.performance.fp16), expect);
}

/// Slices of a device cannot be combined: a copy of the model uses one.
#[rstest]
#[case::one("", "", 1)]
#[case::copies("args: [--dp-size=2]", "", 2)]
#[case::tensor_parallelism("args: [--tp-size=2]", "", 0)]
#[case::tensor_parallelism_of_the_service("", "args: [--tp-size=2]", 0)]
#[case::stages("args: [--pp-size=2]", "", 0)]
#[case::resources("", "resources: {limits: {nvidia.com/mig-3g.20gb: 2}}", 0)]
#[case::copies_on_resources("args: [--dp-size=2]", "resources: {limits: {nvidia.com/mig-3g.20gb: 2}}", 2)]
#[case::script("", "command: [sh, -c, 'vllm serve m --tp-size 2']", 1)]
fn a_copy_of_the_model_uses_one_slice(#[case] runtime: &str, #[case] runner: &str, #[case] expected: u32) {
    let slice = "{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {name: slice}, spec: {vendor: nvidia, discovery: {nodeSelector: {gpu: slice}}, capabilities: {memoryGB: 20Gi, features: [tensor-cores]}, resources: [{name: nvidia.com/mig-3g.20gb, divisible: true}]}}";
    let model = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: m}, spec: {modelFormat: {name: safetensors}, modelParameterSize: 3B}}";
    let runtime = RUNTIME.replace("image: i", &format!("image: i, {runtime}"));
    let spec = format!("acceleratorSelector: {{preferredClasses: [slice]}}, engine: {{runner: {{{runner}}}}}");
    let decision = fixture(&[slice, model, &runtime, &service(&spec, "")]).decide();
    assert_eq!(selection(&decision).2, expected, "{}", decision.message);
    if expected == 0 {
        let rejection = decision.candidates[0].accelerators[0].evaluation.to_string();
        assert!(rejection.ends_with("; partitions of a device cannot be combined"), "{rejection}");
    }
}
