//! Table tests of every compared field of runtimes, models and services.

use rstest::rstest;
use serde_json::{Value, json};

use super::fixture::{CLASSES, Fixture, fixture, selection};
use crate::*;

fn model(fields: &str) -> String {
    format!("{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: m}}, spec: {{{fields}}}}}")
}

fn runtime(name: &str, spec: &str) -> String {
    format!("{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: {name}}}, spec: {{{spec}}}}}")
}

fn entry(fields: &str) -> String {
    format!("supportedModelFormats: [{{{fields}, autoSelect: true}}]")
}

fn fixture_with_service(documents: &[&str]) -> Fixture {
    fixture(&[CLASSES, &documents.join("\n---\n")])
}

/// Returns the code with which a runtime with the entry rejects the model; empty if it is eligible.
fn rejection_code(model_fields: &str, entry_fields: &str) -> String {
    rejection(&fixture_with_service(&[&model(model_fields), &runtime("a", &entry(entry_fields))]).decide())
}

fn rejection(decision: &Decision) -> String {
    let rejected = decision.candidates.first().and_then(|candidate| candidate.rejected.as_ref());
    rejected.map_or(String::new(), |rejection| rejection.code().into())
}

#[rstest]
// spec: RT-11
#[case::old_name_only("modelFormat: {name: safetensors}", "name: safetensors", "")]
#[case::old_name_differs("modelFormat: {name: safetensors}", "name: ONNX", "FormatMismatch")]
#[case::new_name_takes_precedence(
    "modelFormat: {name: safetensors}",
    "name: ONNX, modelFormat: {name: safetensors}",
    ""
)]
#[case::new_name_differs(
    "modelFormat: {name: safetensors}",
    "name: safetensors, modelFormat: {name: ONNX}",
    "FormatMismatch"
)]
#[case::old_version(
    "modelFormat: {name: safetensors, version: 1.0.0}",
    "name: safetensors, version: 2.0.0",
    "FormatVersionMismatch"
)]
// spec: RT-12
#[case::safetensors("modelFormat: {name: safetensors}", "modelFormat: {name: safetensors}", "")]
#[case::onnx("modelFormat: {name: ONNX}", "modelFormat: {name: ONNX}", "")]
#[case::other_case("modelFormat: {name: ONNX}", "modelFormat: {name: onnx}", "")]
#[case::blanks("modelFormat: {name: TensorFlow SavedModel}", "modelFormat: {name: TensorFlow SavedModel}", "")]
#[case::partial_name("modelFormat: {name: TensorFlow SavedModel}", "modelFormat: {name: TensorFlow}", "FormatMismatch")]
#[case::longer_name("modelFormat: {name: TensorFlow}", "modelFormat: {name: TensorFlow SavedModel}", "FormatMismatch")]
// spec: RT-13
#[case::major("modelFormat: {name: f, version: \"1\"}", "modelFormat: {name: f, version: \"1\"}", "")]
#[case::minor("modelFormat: {name: f, version: \"2.0\"}", "modelFormat: {name: f, version: \"2.0\"}", "")]
#[case::patch("modelFormat: {name: f, version: 1.0.0}", "modelFormat: {name: f, version: 1.0.0}", "")]
#[case::other_version(
    "modelFormat: {name: f, version: \"2.1\"}",
    "modelFormat: {name: f, version: \"2.0\"}",
    "FormatVersionMismatch"
)]
// spec: RT-14
#[case::frameworks(
    "modelFramework: {name: TensorRTLLM, version: \"1\"}",
    "modelFramework: {name: TensorRTLLM, version: \"1\"}",
    ""
)]
#[case::framework(
    "modelFramework: {name: PyTorch, version: 4.36.2}",
    "modelFramework: {name: transformers, version: 4.36.2}",
    "FrameworkMismatch"
)]
#[case::framework_version(
    "modelFramework: {name: transformers, version: 4.37.0}",
    "modelFramework: {name: transformers, version: 4.36.2}",
    "FrameworkVersionMismatch"
)]
#[case::name_without_version("modelFramework: {name: ONNX, version: 4.36.2}", "modelFramework: {name: ONNX}", "")]
// spec: RT-15
#[case::known_architecture("modelArchitecture: GemmaForCausalLM", "modelArchitecture: GemmaForCausalLM", "")]
#[case::unknown_architecture("modelArchitecture: My own 7", "modelArchitecture: My own 7", "")]
#[case::case_sensitive(
    "modelArchitecture: llamaForCausalLM",
    "modelArchitecture: LlamaForCausalLM",
    "ArchitectureMismatch"
)]
// spec: RT-57
#[case::other_architecture(
    "modelArchitecture: LlamaForCausalLM",
    "modelArchitecture: GemmaForCausalLM",
    "ArchitectureMismatch"
)]
#[case::model_without_architecture(
    "modelFormat: {name: f}",
    "modelArchitecture: GemmaForCausalLM",
    "ArchitectureMismatch"
)]
#[case::entry_without_architecture(
    "modelFormat: {name: f}, modelArchitecture: LlamaForCausalLM",
    "modelFormat: {name: f}",
    ""
)]
// spec: RT-16
#[case::fp8("quantization: fp8", "quantization: fp8", "")]
#[case::int4("quantization: int4", "quantization: int4", "")]
#[case::free_text("quantization: my-own", "quantization: my-own", "")]
#[case::different_quantization("quantization: fp8", "quantization: fbgemm_fp8", "QuantizationMismatch")]
#[case::different_quantization_reversed("quantization: fbgemm_fp8", "quantization: fp8", "QuantizationMismatch")]
fn compares_format_fields(#[case] model_fields: &str, #[case] entry_fields: &str, #[case] expected: &str) {
    assert_eq!(rejection_code(model_fields, entry_fields), expected);
}

// spec: RT-13
#[rstest]
#[case::runtime(json!({"supportedModelFormats": [{"name": "a"}, {"modelFormat": {"name": "f", "version": "one"}}]}), "spec.supportedModelFormats[1].modelFormat.version")]
#[case::old_field(json!({"supportedModelFormats": [{"name": "f", "version": "1.x"}]}), "spec.supportedModelFormats[0].modelFormat.version")]
#[case::framework(json!({"supportedModelFormats": [{"modelFramework": {"name": "f", "version": ""}}]}), "spec.supportedModelFormats[0].modelFramework.version")]
fn rejects_invalid_versions(#[case] spec: Value, #[case] path: &str) {
    let spec = serde_json::from_value(spec).unwrap();
    assert_eq!(Runtime::from_api("a", Scope::Cluster, "", None, &spec).unwrap_err().path, path);
    let model = serde_json::from_value(json!({"modelFormat": {"name": "f", "version": "one"}})).unwrap();
    assert_eq!(Model::from_api("m", &model).unwrap_err().path, "spec.modelFormat.version");
}

#[rstest]
// spec: RT-60
#[case::no_range("modelParameterSize: 7B", "", "")]
#[case::no_range_for_large_model("modelParameterSize: 2T", "", "")]
#[case::no_size("modelType: x", ", modelSizeRange: {min: 5B, max: 9B}", "")]
#[case::neither_size_nor_range("modelType: x", "", "")]
// spec: RT-21
#[case::lower_case("modelParameterSize: 7b", ", modelSizeRange: {min: 6.9 b, max: 7100m}", "")]
#[case::blank("modelParameterSize: 7 B", ", modelSizeRange: {min: 7000000000, max: 7B}", "")]
#[case::decimals("modelParameterSize: 1.5B", ", modelSizeRange: {min: 1.4B, max: 0.0016T}", "")]
#[case::thousands("modelParameterSize: 1500000K", ", modelSizeRange: {min: 1.5B, max: 1.5B}", "")]
#[case::plain_count("modelParameterSize: 7000000000", ", modelSizeRange: {min: 8B}", "SizeOutOfRange")]
fn compares_sizes(#[case] model_fields: &str, #[case] range: &str, #[case] expected: &str) {
    let any_entry = format!("{}{range}", entry("modelFormat: {name: f}"));
    let model = model(&format!("modelFormat: {{name: f}}, {model_fields}"));
    assert_eq!(rejection(&fixture_with_service(&[&model, &runtime("a", &any_entry)]).decide()), expected);
}

// spec: RT-21
#[rstest]
#[case("7Bx")]
#[case("")]
#[case("seven")]
#[case("-7B")]
fn invalid_sizes_are_rejected(#[case] text: &str) {
    let range = json!({"modelSizeRange": {"max": text}});
    assert!(serde_json::from_value::<api::ome::ServingRuntimeSpec>(range).is_err());
    assert!(serde_json::from_value::<api::ome::BaseModelSpec>(json!({"modelParameterSize": text})).is_err());
}

// spec: RT-50
#[rstest]
#[case::after_engine("engine: {minReplicas: 1}, runtime: {name: b}", "b")]
#[case::before_engine("runtime: {name: b}, engine: {}", "b")]
#[case::not_in_component("predictor: {minReplicas: 1, runtime: {name: b}}", "a")]
fn reads_runtime_name(#[case] spec: &str, #[case] expected: &str) {
    let service = format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s}}, spec: {{model: {{name: m}}, {spec}}}}}"
    );
    let (model, any_entry) = (model("modelFormat: {name: f}"), entry("modelFormat: {name: f}"));
    let decision =
        fixture_with_service(&[&model, &runtime("a", &any_entry), &runtime("b", &any_entry), &service]).decide();
    assert_eq!(selection(&decision).0, expected);
}

/// A runtime that fails every check; each entry of `CORRECTIONS` fixes one more check.
const INCOMPATIBLE_RUNTIME: &str = "disabled: true, supportedModelFormats: [{modelFormat: {name: ONNX, version: \"2\"}, modelFramework: {name: PyTorch, version: \"2\"}, modelArchitecture: X, quantization: fp8, diffusionPipeline: {className: P}}], modelSizeRange: {max: 1B}, protocolVersions: [cohere], acceleratorRequirements: {requiredCapabilities: {memoryGB: 900}}";

/// Corrections in the order of the checks: incorrect text, corrected text, and the rejection code before the
/// correction.
const CORRECTIONS: [(&str, &str, &str); 12] = [
    ("disabled: true", "disabled: false", "Disabled"),
    ("name: ONNX", "name: safetensors", "FormatMismatch"),
    ("safetensors, version: \"2\"", "safetensors, version: \"1\"", "FormatVersionMismatch"),
    ("name: PyTorch", "name: transformers", "FrameworkMismatch"),
    ("transformers, version: \"2\"", "transformers, version: \"4\"", "FrameworkVersionMismatch"),
    ("modelArchitecture: X", "modelArchitecture: LlamaForCausalLM", "ArchitectureMismatch"),
    ("quantization: fp8, ", "", "QuantizationMismatch"),
    (", diffusionPipeline: {className: P}", "", "PipelineMismatch"),
    ("max: 1B", "max: 9B", "SizeOutOfRange"),
    ("[cohere]", "[cohere, openAI]", "ProtocolUnsupported"),
    ("LlamaForCausalLM}", "LlamaForCausalLM, autoSelect: true}", "AutoSelectDisabled"),
    ("memoryGB: 900", "memoryGB: 9", "NoEligibleAccelerator"),
];

const LLAMA: &str = "modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers, version: 4.36.2}, modelArchitecture: LlamaForCausalLM, modelParameterSize: 7B";

// spec: RT-54
#[test]
fn reports_first_failed_check() {
    let mut spec = INCOMPATIBLE_RUNTIME.to_owned();
    for (wrong, right, expected) in CORRECTIONS {
        assert_eq!(rejection(&fixture_with_service(&[&model(LLAMA), &runtime("a", &spec)]).decide()), expected);
        assert!(spec.contains(wrong), "{wrong} in {spec}");
        // Without quantization and pipeline, the last field of the entry precedes the closing brace.
        spec = spec.replace(wrong, right).replace(", }", "}");
    }
    assert_eq!(rejection(&fixture_with_service(&[&model(LLAMA), &runtime("a", &spec)]).decide()), "");
}

// spec: RT-54
#[rstest]
#[case::first_entry(&["modelFormat: {name: safetensors}, modelArchitecture: X", "modelFormat: {name: ONNX}"], "ArchitectureMismatch")]
#[case::last_entry(&["modelFormat: {name: ONNX}", "modelFormat: {name: safetensors}, quantization: fp8"], "QuantizationMismatch")]
#[case::middle_entry(&["name: a", "modelFramework: {name: PyTorch}", "modelFormat: {name: safetensors, version: \"2\"}"], "FrameworkMismatch")]
#[case::one_matches(&["name: a", "modelFormat: {name: safetensors}"], "AutoSelectDisabled")]
#[case::no_entries(&[], "FormatMismatch")]
fn reports_entry_that_passed_most_checks(#[case] entries: &[&str], #[case] expected: &str) {
    let entries: Vec<String> = entries.iter().map(|entry| format!("{{{entry}}}")).collect();
    let spec = format!("supportedModelFormats: [{}]", entries.join(", "));
    assert_eq!(rejection(&fixture_with_service(&[&model(LLAMA), &runtime("a", &spec)]).decide()), expected);
}

/// A model without fields is rejected with every missing field and its required value.
#[rstest]
#[case::all_fields(
    "modelType: x",
    "FormatMismatch: the model does not set fields that the runtime requires: spec.modelFormat.name: safetensors, spec.modelFormat.version: \"1.0.0\", spec.modelFramework.name: transformers, spec.modelFramework.version: \"4.36.2\", spec.modelArchitecture: LlamaForCausalLM",
    true
)]
#[case::some_fields(
    "modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers}",
    "FrameworkVersionMismatch: the model does not set fields that the runtime requires: spec.modelFramework.version: \"4.36.2\", spec.modelArchitecture: LlamaForCausalLM",
    true
)]
#[case::earlier_mismatch(
    "modelFormat: {name: ONNX}",
    "FormatMismatch: the model has format ONNX; the runtime supports safetensors",
    false
)]
#[case::later_mismatch(
    "modelArchitecture: GemmaForCausalLM",
    "FormatMismatch: the model does not set fields that the runtime requires: spec.modelFormat.name: safetensors, spec.modelFormat.version: \"1.0.0\", spec.modelFramework.name: transformers, spec.modelFramework.version: \"4.36.2\"; in addition, ArchitectureMismatch: the model has architecture GemmaForCausalLM; the runtime supports LlamaForCausalLM",
    false
)]
fn reports_missing_model_fields(#[case] model_fields: &str, #[case] expected: &str, #[case] helps: bool) {
    let spec = entry(
        "modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers, version: 4.36.2}, modelArchitecture: LlamaForCausalLM",
    );
    let service_with_runtime = "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: s}, spec: {model: {name: m}, runtime: {name: a}}}";
    for service in [service_with_runtime, ""] {
        let fixture = fixture_with_service(&[&model(model_fields), &runtime("a", &spec), service]);
        let decision = fixture.decide();
        let rejection = decision.candidates[0].rejected.as_ref().unwrap();
        assert_eq!(format!("{}: {rejection}", rejection.code()), expected);
        let fields = expected.split_once("requires: ").map(|(_, fields)| fields).unwrap_or_default();
        let change = format!("set the fields of model m that runtime a requires, if they apply: {fields}: a");
        let remedies: Vec<String> =
            remedy::find_remedies(&fixture.demand, &fixture.supply, None).iter().map(ToString::to_string).collect();
        assert_eq!(remedies.contains(&change), helps, "{remedies:?}");
    }
}
