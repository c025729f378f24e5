//! What a runtime's format entry means for a model.

use rstest::rstest;

use super::fixture::world;
use crate::*;

fn decided(entry: &str, model: &str, runtime: &str) -> Decision {
    let runtime = format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: r}}, spec: {{supportedModelFormats: [{{{entry}, autoSelect: true}}], {runtime}}}}}"
    );
    let model = format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: m}}, spec: {{{model}}}}}\n---\n{runtime}"
    );
    world(&[&model]).decide()
}

fn code(decision: &Decision) -> &str {
    decision.candidates[0].rejected.as_ref().map_or("", |rejection| rejection.code())
}

const LLAMA: &str = "modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, modelParameterSize: 7B";
const FORMAT: &str = "modelFormat: {name: safetensors}";

#[rstest]
// spec: RT-11
#[case::old_name_alone("name: safetensors", FORMAT, "")]
#[case::old_name_beside("name: safetensors, modelFormat: {name: ONNX}", FORMAT, "FormatMismatch")]
#[case::old_name_wrong("name: ONNX, modelFormat: {name: safetensors}", FORMAT, "")]
// spec: RT-12
#[case::blanks("modelFormat: {name: TensorFlow SavedModel}", "modelFormat: {name: TensorFlow SavedModel}", "")]
#[case::as_a_whole("modelFormat: {name: TensorFlow}", "modelFormat: {name: TensorFlow SavedModel}", "FormatMismatch")]
// spec: RT-57
#[case::architecture("modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM", LLAMA, "")]
#[case::another("modelFormat: {name: safetensors}, modelArchitecture: GemmaForCausalLM", LLAMA, "ArchitectureMismatch")]
#[case::model_states_none(
    "modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM",
    FORMAT,
    "ArchitectureMismatch"
)]
// spec: RT-58
#[case::quantized(FORMAT, "modelFormat: {name: safetensors}, quantization: fp8", "QuantizationMismatch")]
// spec: RT-58
#[case::for_quantized("modelFormat: {name: safetensors}, quantization: fp8", FORMAT, "QuantizationMismatch")]
// spec: RT-58
#[case::both_quantized(
    "modelFormat: {name: safetensors}, quantization: fp8",
    "modelFormat: {name: safetensors}, quantization: fp8",
    ""
)]
fn one_entry(#[case] entry: &str, #[case] model: &str, #[case] expect: &str) {
    assert_eq!(code(&decided(entry, model, "engineConfig: {runner: {image: i}}")), expect);
}

// spec: RT-60
#[rstest]
#[case::no_range(LLAMA, "", "")]
#[case::no_size(FORMAT, "modelSizeRange: {min: 1B, max: 2B}", "")]
#[case::both(LLAMA, "modelSizeRange: {min: 1B, max: 2B}", "SizeOutOfRange")]
fn sizes_that_are_not_stated(#[case] model: &str, #[case] range: &str, #[case] expect: &str) {
    assert_eq!(code(&decided(FORMAT, model, range)), expect);
}

/// The bounds are of the range, and the reason has the numbers.
// spec: RT-59
#[rstest]
#[case("5B", "")]
#[case("9B", "")]
#[case("4.9B", "SizeOutOfRange: model 4.9B, runtime 5B–9B")]
#[case("9.1B", "SizeOutOfRange: model 9.1B, runtime 5B–9B")]
fn bounds_of_a_range(#[case] size: &str, #[case] expect: &str) {
    let decision =
        decided(FORMAT, &format!("{FORMAT}, modelParameterSize: {size}"), "modelSizeRange: {min: 5B, max: 9B}");
    let told = decision.candidates[0].rejected.as_ref().map(|why| format!("{}: {why}", why.code()));
    assert_eq!(told.unwrap_or_default(), expect);
}

// Everything is wrong; mended check by check, the next one speaks.
// spec: RT-54
#[test]
fn checks_have_an_order() {
    let wrong = [
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
    for (bad, good, expect) in wrong {
        assert_eq!(code(&world(&[&format!("{model}\n---\n{text}")]).decide()), expect);
        let good = match expect {
            "Disabled" => "disabled: false",
            "FormatMismatch" => "modelFormat: {name: safetensors, version: 2.0.0}",
            _ => good,
        };
        text = text.replacen(bad, good, 1);
    }
    assert!(world(&[&format!("{model}\n---\n{text}")]).decide().feasible, "{text}");
}
