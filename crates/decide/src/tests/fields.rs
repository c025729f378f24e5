//! What each field of runtimes, models and services is compared with, field by field.

use rstest::rstest;
use serde_json::{Value, json};

use super::fixture::{CLASSES, Fixture, chosen, world};
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

fn case(documents: &[&str]) -> Fixture {
    world(&[CLASSES, &documents.join("\n---\n")])
}

/// The code by which a runtime with that entry refuses the model; empty if it takes it.
fn code(of_model: &str, of_entry: &str) -> String {
    rejection(&case(&[&model(of_model), &runtime("a", &entry(of_entry))]).decide())
}

fn rejection(decision: &Decision) -> String {
    let rejected = decision.candidates.first().and_then(|one| one.rejected.as_ref());
    rejected.map_or(String::new(), |rejection| rejection.code().to_owned())
}

#[rstest]
// spec: RT-11
#[case::the_old_name_alone("modelFormat: {name: safetensors}", "name: safetensors", "")]
#[case::the_old_name_is_compared("modelFormat: {name: safetensors}", "name: ONNX", "FormatMismatch")]
#[case::the_new_name_counts("modelFormat: {name: safetensors}", "name: ONNX, modelFormat: {name: safetensors}", "")]
#[case::the_old_name_does_not_help(
    "modelFormat: {name: safetensors}",
    "name: safetensors, modelFormat: {name: ONNX}",
    "FormatMismatch"
)]
#[case::the_old_version(
    "modelFormat: {name: safetensors, version: 1.0.0}",
    "name: safetensors, version: 2.0.0",
    "FormatVersionMismatch"
)]
// spec: RT-12
#[case::safetensors("modelFormat: {name: safetensors}", "modelFormat: {name: safetensors}", "")]
#[case::onnx("modelFormat: {name: ONNX}", "modelFormat: {name: ONNX}", "")]
#[case::blanks("modelFormat: {name: TensorFlow SavedModel}", "modelFormat: {name: TensorFlow SavedModel}", "")]
#[case::a_part("modelFormat: {name: TensorFlow SavedModel}", "modelFormat: {name: TensorFlow}", "FormatMismatch")]
#[case::a_longer_one("modelFormat: {name: TensorFlow}", "modelFormat: {name: TensorFlow SavedModel}", "FormatMismatch")]
// spec: RT-13
#[case::major("modelFormat: {name: f, version: \"1\"}", "modelFormat: {name: f, version: \"1\"}", "")]
#[case::minor("modelFormat: {name: f, version: \"2.0\"}", "modelFormat: {name: f, version: \"2.0\"}", "")]
#[case::patch("modelFormat: {name: f, version: 1.0.0}", "modelFormat: {name: f, version: 1.0.0}", "")]
#[case::another(
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
#[case::a_name_alone("modelFramework: {name: ONNX, version: 4.36.2}", "modelFramework: {name: ONNX}", "")]
// spec: RT-15
#[case::known("modelArchitecture: GemmaForCausalLM", "modelArchitecture: GemmaForCausalLM", "")]
#[case::nobody_knows("modelArchitecture: My own 7", "modelArchitecture: My own 7", "")]
#[case::exactly("modelArchitecture: llamaForCausalLM", "modelArchitecture: LlamaForCausalLM", "ArchitectureMismatch")]
// spec: RT-57
#[case::of_another(
    "modelArchitecture: LlamaForCausalLM",
    "modelArchitecture: GemmaForCausalLM",
    "ArchitectureMismatch"
)]
#[case::of_none("modelFormat: {name: f}", "modelArchitecture: GemmaForCausalLM", "ArchitectureMismatch")]
#[case::not_asked_for("modelFormat: {name: f}, modelArchitecture: LlamaForCausalLM", "modelFormat: {name: f}", "")]
// spec: RT-16
#[case::fp8("quantization: fp8", "quantization: fp8", "")]
#[case::int4("quantization: int4", "quantization: int4", "")]
#[case::free_text("quantization: my-own", "quantization: my-own", "")]
#[case::not_the_same("quantization: fp8", "quantization: fbgemm_fp8", "QuantizationMismatch")]
#[case::nor_the_other_way("quantization: fbgemm_fp8", "quantization: fp8", "QuantizationMismatch")]
fn an_entry(#[case] of_model: &str, #[case] of_entry: &str, #[case] expect: &str) {
    assert_eq!(code(of_model, of_entry), expect);
}

// spec: RT-13
#[rstest]
#[case::runtime(json!({"supportedModelFormats": [{"name": "a"}, {"modelFormat": {"name": "f", "version": "one"}}]}), "spec.supportedModelFormats[1].modelFormat.version")]
#[case::the_old_field(json!({"supportedModelFormats": [{"name": "f", "version": "1.x"}]}), "spec.supportedModelFormats[0].modelFormat.version")]
#[case::framework(json!({"supportedModelFormats": [{"modelFramework": {"name": "f", "version": ""}}]}), "spec.supportedModelFormats[0].modelFramework.version")]
fn what_is_no_version_is_an_error(#[case] spec: Value, #[case] path: &str) {
    let spec = serde_json::from_value(spec).unwrap();
    assert_eq!(Runtime::from_api("a", Scope::Cluster, "", None, &spec).unwrap_err().path, path);
    let model = serde_json::from_value(json!({"modelFormat": {"name": "f", "version": "one"}})).unwrap();
    assert_eq!(Model::from_api("m", &model).unwrap_err().path, "spec.modelFormat.version");
}

#[rstest]
// spec: RT-60
#[case::no_range("modelParameterSize: 7B", "", "")]
#[case::no_range_for_the_largest("modelParameterSize: 2T", "", "")]
#[case::no_size("modelType: x", ", modelSizeRange: {min: 5B, max: 9B}", "")]
#[case::neither("modelType: x", "", "")]
// spec: RT-21
#[case::lower_case("modelParameterSize: 7b", ", modelSizeRange: {min: 6.9 b, max: 7100m}", "")]
#[case::blank("modelParameterSize: 7 B", ", modelSizeRange: {min: 7000000000, max: 7B}", "")]
#[case::decimals("modelParameterSize: 1.5B", ", modelSizeRange: {min: 1.4B, max: 0.0016T}", "")]
#[case::thousands("modelParameterSize: 1500000K", ", modelSizeRange: {min: 1.5B, max: 1.5B}", "")]
#[case::a_plain_count_is_no_byte("modelParameterSize: 7000000000", ", modelSizeRange: {min: 8B}", "SizeOutOfRange")]
fn sizes(#[case] of_model: &str, #[case] range: &str, #[case] expect: &str) {
    let any = format!("{}{range}", entry("modelFormat: {name: f}"));
    let model = model(&format!("modelFormat: {{name: f}}, {of_model}"));
    assert_eq!(rejection(&case(&[&model, &runtime("a", &any)]).decide()), expect);
}

// spec: RT-21
#[rstest]
#[case("7Bx")]
#[case("")]
#[case("seven")]
#[case("-7B")]
fn what_is_no_size_is_never_zero(#[case] text: &str) {
    let range = json!({"modelSizeRange": {"max": text}});
    assert!(serde_json::from_value::<api::ome::ServingRuntimeSpec>(range).is_err());
    assert!(serde_json::from_value::<api::ome::BaseModelSpec>(json!({"modelParameterSize": text})).is_err());
}

// spec: RT-50
#[rstest]
#[case::beside_the_engine("engine: {minReplicas: 1}, runtime: {name: b}", "b")]
#[case::before_the_engine("runtime: {name: b}, engine: {}", "b")]
#[case::nowhere_else("predictor: {minReplicas: 1, runtime: {name: b}}", "a")]
fn where_a_runtime_is_named(#[case] spec: &str, #[case] expect: &str) {
    let service = format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s}}, spec: {{model: {{name: m}}, {spec}}}}}"
    );
    let (model, any) = (model("modelFormat: {name: f}"), entry("modelFormat: {name: f}"));
    let decision = case(&[&model, &runtime("a", &any), &runtime("b", &any), &service]).decide();
    assert_eq!(chosen(&decision).0, expect);
}

/// Everything about this runtime is wrong; each step of the ladder mends one thing more.
const WRONG: &str = "disabled: true, supportedModelFormats: [{modelFormat: {name: ONNX, version: \"2\"}, modelFramework: {name: PyTorch, version: \"2\"}, modelArchitecture: X, quantization: fp8, diffusionPipeline: {className: P}}], modelSizeRange: {max: 1B}, protocolVersions: [cohere], acceleratorRequirements: {requiredCapabilities: {memoryGB: 900}}";

const LADDER: [(&str, &str, &str); 12] = [
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
fn the_first_check_that_fails_is_the_reason() {
    let mut spec = WRONG.to_owned();
    for (wrong, right, expect) in LADDER {
        assert_eq!(rejection(&case(&[&model(LLAMA), &runtime("a", &spec)]).decide()), expect);
        assert!(spec.contains(wrong), "{wrong} in {spec}");
        // The entry's last field is followed by its brace once quantization and pipeline are gone.
        spec = spec.replace(wrong, right).replace(", }", "}");
    }
    assert_eq!(rejection(&case(&[&model(LLAMA), &runtime("a", &spec)]).decide()), "");
}

// spec: RT-54
#[rstest]
#[case::first(&["modelFormat: {name: safetensors}, modelArchitecture: X", "modelFormat: {name: ONNX}"], "ArchitectureMismatch")]
#[case::last(&["modelFormat: {name: ONNX}", "modelFormat: {name: safetensors}, quantization: fp8"], "QuantizationMismatch")]
#[case::between(&["name: a", "modelFramework: {name: PyTorch}", "modelFormat: {name: safetensors, version: \"2\"}"], "FrameworkMismatch")]
#[case::one_matches(&["name: a", "modelFormat: {name: safetensors}"], "AutoSelectDisabled")]
#[case::none_at_all(&[], "FormatMismatch")]
fn the_entry_that_got_furthest_speaks(#[case] entries: &[&str], #[case] expect: &str) {
    let entries: Vec<String> = entries.iter().map(|entry| format!("{{{entry}}}")).collect();
    let spec = format!("supportedModelFormats: [{}]", entries.join(", "));
    assert_eq!(rejection(&case(&[&model(LLAMA), &runtime("a", &spec)]).decide()), expect);
}

/// A model that says nothing is told every field that is missing, and what each would have to say.
#[rstest]
#[case::nothing(
    "modelType: x",
    "FormatMismatch: the model does not say what the runtime asks for; spec.modelFormat.name: safetensors, spec.modelFormat.version: \"1.0.0\", spec.modelFramework.name: transformers, spec.modelFramework.version: \"4.36.2\", spec.modelArchitecture: LlamaForCausalLM",
    true
)]
#[case::a_part(
    "modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers}",
    "FrameworkVersionMismatch: the model does not say what the runtime asks for; spec.modelFramework.version: \"4.36.2\", spec.modelArchitecture: LlamaForCausalLM",
    true
)]
#[case::contradicted_before(
    "modelFormat: {name: ONNX}",
    "FormatMismatch: model format ONNX, runtime safetensors",
    false
)]
#[case::contradicted_after(
    "modelArchitecture: GemmaForCausalLM",
    "FormatMismatch: the model does not say what the runtime asks for; spec.modelFormat.name: safetensors, spec.modelFormat.version: \"1.0.0\", spec.modelFramework.name: transformers, spec.modelFramework.version: \"4.36.2\"; besides, ArchitectureMismatch: model architecture GemmaForCausalLM, runtime LlamaForCausalLM",
    false
)]
fn what_a_model_leaves_out(#[case] of_model: &str, #[case] expect: &str, #[case] helps: bool) {
    let spec = entry(
        "modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers, version: 4.36.2}, modelArchitecture: LlamaForCausalLM",
    );
    let named = "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: s}, spec: {model: {name: m}, runtime: {name: a}}}";
    for service in [named, ""] {
        let world = case(&[&model(of_model), &runtime("a", &spec), service]);
        let decision = world.decide();
        let rejection = decision.candidates[0].rejected.as_ref().unwrap();
        assert_eq!(format!("{}: {rejection}", rejection.code()), expect);
        let fields = expect.split_once("; ").map(|(_, fields)| fields).unwrap_or_default();
        let change = format!("fill in what model m is, if it is what runtime a is for: {fields}: a");
        let remedies: Vec<String> =
            remedy::find_remedies(&world.demand, &world.supply).iter().map(ToString::to_string).collect();
        assert_eq!(remedies.contains(&change), helps, "{remedies:?}");
    }
}
