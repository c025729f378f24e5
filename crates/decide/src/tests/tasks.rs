//! Runtimes for the tasks of models, and formats without regard to case.

use rstest::rstest;

use super::fixture::{fixture, selection};

/// Returns a runtime whose engine has these flags.
fn runtime(name: &str, flags: &str, fields: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: {name}}}, spec: {{supportedModelFormats: \
         [{{modelFormat: {{name: safetensors}}, autoSelect: true, {fields}}}], engineConfig: {{runner: {{image: vllm, args: [{flags}]}}}}}}}}"
    )
}

fn selected(capabilities: &str, service_fields: &str, runtimes: &[String]) -> String {
    let model = format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: m}}, spec: {{modelFormat: {{name: SafeTensors}}, \
         modelParameterSize: 7B, modelCapabilities: [{capabilities}]}}}}"
    );
    let service = format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s}}, spec: {{model: {{name: m{service_fields}}}}}}}"
    );
    let documents: Vec<&str> = runtimes.iter().chain([&model, &service]).map(String::as_str).collect();
    selection(&fixture(&documents).decide()).0
}

// spec: RT-76
#[rstest]
#[case::embedding("TEXT_TO_EMBEDDING", "embed")]
#[case::chat("TEXT_TO_TEXT", "chat")]
#[case::reranking("text-rerank", "score")]
#[case::vision("IMAGE_TEXT_TO_TEXT", "vision")]
#[case::unknown("", "a-pool")]
fn selects_the_runtime_for_the_task(#[case] capabilities: &str, #[case] expected: &str) {
    let runtimes = [
        runtime("embed", "--runner=pooling, --convert=embed", ""),
        runtime("score", "--runner=pooling, --convert=classify", ""),
        runtime("vision", "--enable-multimodal", ""),
        runtime("chat", "", ""),
    ];
    let unknown = [runtime("a-pool", "--is-embedding", ""), runtime("b-chat", "", "")];
    let runtimes: &[String] = if capabilities.is_empty() { &unknown } else { &runtimes };
    assert_eq!(selected(capabilities, "", runtimes), expected);
}

#[rstest]
#[case::priority_ranks_after_the_task(2, "", "embed")]
#[case::the_only_one(1, "", "chat")]
#[case::named(2, "}, runtime: {name: chat", "chat")]
#[case::flag_of_the_service(2, "}, engine: {runner: {args: [--is-embedding]}", "chat")]
fn the_task_only_ranks(#[case] runtimes: usize, #[case] service_fields: &str, #[case] expected: &str) {
    let both = [runtime("chat", "", "priority: 9"), runtime("embed", "--is-embedding", "priority: 1")];
    assert_eq!(selected("TEXT_TO_EMBEDDING", service_fields, &both[..runtimes]), expected);
}

/// A runtime that cannot load adapters is not selected if another one can.
#[test]
fn selects_an_engine_with_lora() {
    let triton = runtime("a-triton", "", "priority: 9").replace("image: vllm", "image: tritonserver");
    let runtimes = [triton, runtime("vllm", "", "priority: 1")];
    assert_eq!(selected("", "", &runtimes), "a-triton");
    assert_eq!(selected("", ", fineTunedWeights: [sql]", &runtimes), "vllm");
}

/// vLLM on TPU only generates text.
#[rstest]
#[case::embedding("TEXT_TO_EMBEDDING", "")]
#[case::reranking("text-rerank", "")]
#[case::chat("text-to-text", "generation")]
fn engines_that_only_generate_text_serve_no_other_models(#[case] capability: &str, #[case] expected: &str) {
    assert_eq!(selected(capability, "", &[runtime("generation", "--runner=generate", "priority: 1")]), expected);
}
