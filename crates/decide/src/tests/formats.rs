//! Tests of format entries of runtimes.

use rstest::rstest;

use super::fixture::fixture;
use crate::*;

fn decide_entry(entry: &str, model: &str, runtime: &str) -> Decision {
    let runtime = format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: r}}, spec: {{supportedModelFormats: [{{{entry}, autoSelect: true}}], {runtime}}}}}"
    );
    let model = format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: m}}, spec: {{{model}}}}}\n---\n{runtime}"
    );
    fixture(&[&model]).decide()
}

fn code(decision: &Decision) -> &str {
    decision.candidates[0].rejected.as_ref().map_or("", |rejection| rejection.code().as_str())
}

const LLAMA: &str = "modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, modelParameterSize: 7B";
const FORMAT: &str = "modelFormat: {name: safetensors}";

#[rstest]
// spec: RT-11
#[case::old_name_only("name: safetensors", FORMAT, "")]
#[case::new_name_differs("name: safetensors, modelFormat: {name: ONNX}", FORMAT, "FormatMismatch")]
#[case::old_name_is_ignored("name: ONNX, modelFormat: {name: safetensors}", FORMAT, "")]
// spec: RT-12
#[case::blanks("modelFormat: {name: TensorFlow SavedModel}", "modelFormat: {name: TensorFlow SavedModel}", "")]
#[case::other_case("modelFormat: {name: SafeTensors}", FORMAT, "")]
#[case::old_name_in_other_case("name: SAFETENSORS", FORMAT, "")]
#[case::partial_name("modelFormat: {name: TensorFlow}", "modelFormat: {name: TensorFlow SavedModel}", "FormatMismatch")]
// spec: RT-57
#[case::architecture("modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM", LLAMA, "")]
#[case::other_architecture(
    "modelFormat: {name: safetensors}, modelArchitecture: GemmaForCausalLM",
    LLAMA,
    "ArchitectureMismatch"
)]
#[case::model_without_architecture(
    "modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM",
    FORMAT,
    "ArchitectureMismatch"
)]
// spec: RT-58
#[case::quantized_model(FORMAT, "modelFormat: {name: safetensors}, quantization: fp8", "QuantizationMismatch")]
// spec: RT-58
#[case::quantized_entry("modelFormat: {name: safetensors}, quantization: fp8", FORMAT, "QuantizationMismatch")]
// spec: RT-58
#[case::both_quantized(
    "modelFormat: {name: safetensors}, quantization: fp8",
    "modelFormat: {name: safetensors}, quantization: fp8",
    ""
)]
fn evaluates_format_entry(#[case] entry: &str, #[case] model: &str, #[case] expected: &str) {
    assert_eq!(code(&decide_entry(entry, model, "engineConfig: {runner: {image: i}}")), expected);
}

// spec: RT-60
#[rstest]
#[case::no_range(LLAMA, "", "")]
#[case::no_size(FORMAT, "modelSizeRange: {min: 1B, max: 2B}", "")]
#[case::both(LLAMA, "modelSizeRange: {min: 1B, max: 2B}", "SizeOutOfRange")]
fn evaluates_missing_sizes(#[case] model: &str, #[case] range: &str, #[case] expected: &str) {
    assert_eq!(code(&decide_entry(FORMAT, model, range)), expected);
}

/// The bounds are inclusive, and the reason contains the numbers.
// spec: RT-59
#[rstest]
#[case("5B", "")]
#[case("9B", "")]
#[case("4.9B", "SizeOutOfRange: the model has 4.9B parameters; the runtime supports 5B–9B")]
#[case("9.1B", "SizeOutOfRange: the model has 9.1B parameters; the runtime supports 5B–9B")]
fn size_bounds_are_inclusive(#[case] size: &str, #[case] expected: &str) {
    let decision =
        decide_entry(FORMAT, &format!("{FORMAT}, modelParameterSize: {size}"), "modelSizeRange: {min: 5B, max: 9B}");
    let rejection = decision.candidates[0].rejected.as_ref();
    let message = rejection.map(|rejection| format!("{}: {rejection}", rejection.code()));
    assert_eq!(message.unwrap_or_default(), expected);
}

// All checks fail at first; after each correction, the next failing check is reported.
// spec: RT-54
#[test]
fn checks_run_in_order() {
    let corrections = [
        ("disabled: true", "", "Disabled"),
        ("modelFormat: {name: ONNX, version: 2.0.0}", FORMAT, "FormatMismatch"),
        ("name: safetensors, version: 2.0.0", "name: safetensors, version: 1.0.0", "FormatVersionMismatch"),
        (
            "modelFramework: {name: PyTorch, version: 9.0.0}",
            "modelFramework: {name: transformers, version: 9.0.0}",
            "FrameworkMismatch",
        ),
        ("name: transformers, version: 9.0.0", "name: transformers, version: 4.0.0", "FrameworkVersionMismatch"),
        ("modelArchitecture: GemmaForCausalLM", "modelArchitecture: LlamaForCausalLM", "ArchitectureMismatch"),
        ("quantization: fp8", "modelType: x", "QuantizationMismatch"),
        ("modelSizeRange: {max: 2B}", "modelSizeRange: {max: 9B}", "SizeOutOfRange"),
        ("protocolVersions: [cohere]", "protocolVersions: [openAI]", "ProtocolUnsupported"),
        ("autoSelect: false", "autoSelect: true", "AutoSelectDisabled"),
    ];
    let mut text = "{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {name: r}, spec: {disabled: true, supportedModelFormats: [{modelFormat: {name: ONNX, version: 2.0.0}, modelFramework: {name: PyTorch, version: 9.0.0}, modelArchitecture: GemmaForCausalLM, quantization: fp8, autoSelect: false}], modelSizeRange: {max: 2B}, protocolVersions: [cohere]}}".to_owned();
    let model = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: m}, spec: {modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers, version: 4.0.0}, modelArchitecture: LlamaForCausalLM, modelParameterSize: 7B}}";
    for (wrong, correct, expected) in corrections {
        assert_eq!(code(&fixture(&[&format!("{model}\n---\n{text}")]).decide()), expected);
        let correct = match expected {
            "Disabled" => "disabled: false",
            "FormatMismatch" => "modelFormat: {name: safetensors, version: 2.0.0}",
            _ => correct,
        };
        text = text.replacen(wrong, correct, 1);
    }
    assert!(fixture(&[&format!("{model}\n---\n{text}")]).decide().feasible, "{text}");
}
