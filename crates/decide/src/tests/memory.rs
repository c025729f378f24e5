//! Tests of the memory that an engine requires: weights, KV cache and activations.

use rstest::rstest;

use super::class_code;
use super::fixture::{RUNTIME, fixture_with_classes, selection, service, warning_codes};
use crate::*;

const LLAMA_8B: &str = "num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, hidden_size: 4096, intermediate_size: 14336, vocab_size: 128256, max_position_embeddings: 131072, tie_word_embeddings: false";
const LLAMA_3_70B: &str = "num_hidden_layers: 80, num_attention_heads: 64, num_key_value_heads: 8, hidden_size: 8192, intermediate_size: 28672, vocab_size: 128256, max_position_embeddings: 8192, tie_word_embeddings: false";
const QWEN_72B: &str = "num_hidden_layers: 80, num_attention_heads: 64, num_key_value_heads: 8, hidden_size: 8192, intermediate_size: 29568, vocab_size: 152064, max_position_embeddings: 32768, tie_word_embeddings: false";
const DEEPSEEK_V3: &str = "num_hidden_layers: 61, num_attention_heads: 128, num_key_value_heads: 128, hidden_size: 7168, intermediate_size: 18432, kv_lora_rank: 512, qk_rope_head_dim: 64, vocab_size: 129280, max_position_embeddings: 163840, tie_word_embeddings: false";

/// A class with this memory.
fn class(name: &str, memory: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {{name: {name}}}, spec: {{vendor: nvidia, discovery: {{nodeSelector: {{gpu: {name}}}}}, capabilities: {{memoryGB: {memory}, features: [tensor-cores]}}}}}}"
    )
}

/// A model with these contents of its `config.json`.
fn model(size: &str, quantization: &str, config: &str, fields: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: m}}, spec: {{modelFormat: {{name: safetensors}}, modelParameterSize: {size}, quantization: \"{quantization}\", modelConfiguration: {{{config}}}, {fields}}}}}"
    )
}

fn decide_on(class_name: &str, memory: &str, model: &str, runner: &str, quantization: &str) -> Decision {
    let runtime = RUNTIME
        .replace("image: i", runner)
        .replace("autoSelect", &format!("quantization: \"{quantization}\", autoSelect"));
    let selector = format!("acceleratorSelector: {{preferredClasses: [{class_name}]}}");
    fixture_with_classes(&[&class(class_name, memory), model, &runtime, &service(&selector, "")]).decide()
}

/// The model has a maximum of 131,072 tokens.
#[rstest]
#[case::shorter("image: vllm, args: [--max-model-len=8192]", None)]
#[case::automatic("image: vllm, args: [--max-model-len=-1]", None)]
#[case::longer(
    "image: vllm, args: [--max-model-len=256K]",
    Some(
        "The engine: --max-model-len 256K exceeds the 131072 tokens of the model, so that the engine does not start unless its rope scaling is set as well"
    )
)]
#[case::longer_with_sglang(
    "image: sglang, args: [--context-length, '200000']",
    Some(
        "The engine: --context-length 200000 exceeds the 131072 tokens of the model, so that the engine does not start unless its rope scaling is set as well"
    )
)]
#[case::negative(
    "image: vllm, args: [--max-model-len=-5]",
    Some("The engine: --max-model-len -5 is not a number of tokens, so that the engine does not start")
)]
#[case::automatic_with_sglang(
    "image: sglang, args: [--context-length, auto]",
    Some("The engine: --context-length auto is not a number of tokens, so that the engine does not start")
)]
#[case::permitted(
    "image: vllm, args: [--max-model-len=200000], env: [{name: VLLM_ALLOW_LONG_MAX_MODEL_LEN, value: '1'}]",
    None
)]
#[case::not_permitted(
    "image: vllm, args: [--max-model-len=200000], env: [{name: VLLM_ALLOW_LONG_MAX_MODEL_LEN, value: '0'}]",
    Some(
        "The engine: --max-model-len 200000 exceeds the 131072 tokens of the model, so that the engine does not start unless its rope scaling is set as well"
    )
)]
#[case::replaced_configuration(
    "image: vllm, args: ['--hf-overrides={\"max_position_embeddings\": 262144}', --max-model-len=200000]",
    None
)]
#[case::variable_of_a_script("image: vllm, command: [sh, -c, 'vllm serve m --max-model-len ${LEN}']", None)]
fn rejected_context_lengths_are_reported(#[case] runner: &str, #[case] expected: Option<&str>) {
    let decision = decide_on("h100", "80Gi", &model("8.03B", "", LLAMA_8B, ""), runner, "");
    let warning = decision.warnings.iter().find(|warning| warning.code.as_str() == "ContextLengthRejected");
    assert_eq!(warning.map(|warning| warning.message.as_str()), expected, "{:?}", decision.warnings);
}

/// Number of accelerators that a model requires; 0 if none suffices.
#[rstest]
// The KV cache of 131,072 tokens has 17.2 GB.
#[case::models_own_maximum("l4", "24Gi", "8.03B", "", LLAMA_8B, "image: vllm/vllm-openai", 2)]
#[case::shorter_context(
    "l4",
    "24Gi",
    "8.03B",
    "",
    LLAMA_8B,
    "image: vllm/vllm-openai, args: [--max-model-len=8192]",
    1
)]
#[case::half_the_context("l4", "24Gi", "8.03B", "", LLAMA_8B, "image: vllm, args: [--max-model-len, 64K]", 2)]
#[case::quantized_cache(
    "l4",
    "24Gi",
    "8.03B",
    "",
    LLAMA_8B,
    "image: vllm, args: [--max-model-len, 64K, --kv-cache-dtype, fp8]",
    1
)]
#[case::cache_of_the_checkpoint(
    "l4",
    "24Gi",
    "8.03B",
    "",
    "num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, hidden_size: 4096, intermediate_size: 14336, vocab_size: 128256, max_position_embeddings: 131072, quantization_config: {quant_method: modelopt, kv_cache_quant_algo: FP8}",
    "image: vllm, args: [--max-model-len, 64K]",
    1
)]
#[case::reduced_by_the_engine("l4", "24Gi", "8.03B", "", LLAMA_8B, "image: vllm, args: [--max-model-len=auto]", 1)]
// The complete context fits, but less than 20 % of the weights is free.
#[case::complete_context("h100", "80Gi", "70.6B", "", LLAMA_3_70B, "image: vllm, args: [--max-model-len=auto]", 2)]
// Of 32,768 tokens, 8,000 would fit on 2.
#[case::reduced_context("h100", "80Gi", "72.7B", "", QWEN_72B, "image: vllm, args: [--max-model-len=auto]", 4)]
#[case::sglang_limits_requests("l4", "24Gi", "8.03B", "", LLAMA_8B, "image: sglang", 1)]
#[case::sglang_with_context("l4", "24Gi", "8.03B", "", LLAMA_8B, "image: sglang, args: [--context-length=131072]", 2)]
#[case::unknown_engine("l4", "24Gi", "8.03B", "", LLAMA_8B, "image: engine", 1)]
#[case::part_of_the_memory(
    "l4",
    "24Gi",
    "8.03B",
    "",
    LLAMA_8B,
    "image: vllm, args: [--max-model-len=8192, --gpu-memory-utilization=0.7]",
    2
)]
#[case::context_in_a_variable(
    "l4",
    "24Gi",
    "8.03B",
    "",
    LLAMA_8B,
    "image: vllm, args: [--max-model-len=$(MAX_MODEL_LEN)], env: [{name: MAX_MODEL_LEN, value: \"16384\"}]",
    1
)]
#[case::quantized_without_facts("l40s", "48Gi", "72.7B", "awq", "", "image: vllm", 2)]
#[case::quantized("l40s", "48Gi", "72.7B", "awq", QWEN_72B, "image: vllm", 2)]
#[case::quantized_on_80_gigabytes("h100", "80Gi", "72.7B", "awq", QWEN_72B, "image: vllm", 1)]
// Every accelerator stores the whole compressed KV cache.
#[case::latent_attention("h200", "141Gi", "671B", "fp8", DEEPSEEK_V3, "image: vllm", 8)]
#[case::latent_attention_on_80_gigabytes("h100", "80Gi", "671B", "fp8", DEEPSEEK_V3, "image: vllm", 0)]
// spec: ACC-80
fn fits_engine_memory(
    #[case] class: &str,
    #[case] memory: &str,
    #[case] size: &str,
    #[case] quantization: &str,
    #[case] config: &str,
    #[case] runner: &str,
    #[case] expected: u32,
) {
    let decision = decide_on(class, memory, &model(size, quantization, config, ""), runner, quantization);
    assert_eq!(selection(&decision).2, expected, "{} {:?}", decision.message, decision.warnings);
}

/// A window limits the KV cache, and known files replace the estimate of the weights.
#[rstest]
#[case::without_window("", "image: vllm, args: [--max-model-len=65536]", 2)]
#[case::window("sliding_window: 4096", "image: vllm, args: [--max-model-len=65536]", 1)]
#[case::sglang_stores_the_context("sliding_window: 4096", "image: sglang, args: [--context-length=65536]", 2)]
fn windows_limit_the_cache(#[case] config: &str, #[case] runner: &str, #[case] expected: u32) {
    let decision = decide_on("l4", "24Gi", &model("8.03B", "", &format!("{LLAMA_8B}, {config}"), ""), runner, "");
    assert_eq!(selection(&decision).2, expected, "{}", decision.message);
}

#[rstest]
#[case::separate_cache("GptOssForCausalLM", 1)]
#[case::one_cache("Gemma3ForCausalLM", 2)]
fn windows_limit_the_cache_of_some_architectures_in_sglang(#[case] architecture: &str, #[case] expected: u32) {
    let config = format!("{LLAMA_8B}, sliding_window: 4096");
    let model = model("8.03B", "", &config, &format!("modelArchitecture: {architecture}"));
    let decision = decide_on("l4", "24Gi", &model, "image: sglang, args: [--context-length=65536]", "");
    assert_eq!(selection(&decision).2, expected, "{}", decision.message);
}

/// The weights of Llama 3.1 8B in 4 bits, of which 1.34 billion parameters are attention.
#[rstest]
#[case::quantized("", 6_027_217_656)]
#[case::excluded(", exclude_modules: [\"*.self_attn*\"]", 7_956_597_496)]
#[case::one_layer_excluded(", exclude_modules: [model.layers.0.self_attn*]", 6_087_510_776)]
fn excluded_attention_has_16_bits(#[case] fields: &str, #[case] expected: u64) {
    let config = format!("{LLAMA_8B}, quantization_config: {{quant_method: modelopt, quant_algo: NVFP4{fields}}}");
    let decision = decide_on("b200", "179Gi", &model("8.03B", "nvfp4", &config, ""), "image: vllm", "nvfp4");
    let class = decision.candidates[0].accelerators.iter().find(|candidate| candidate.class == "b200").unwrap();
    let ClassEvaluation::Eligible(eligibility) = &class.evaluation else { panic!("{decision:?}") };
    assert_eq!(eligibility.memory.unwrap().weights, expected);
}

#[rstest]
#[case::estimated("", 1)]
#[case::known("additionalMetadata: {total_size: \"32121044992\"}", 2)]
#[case::unusable("additionalMetadata: {total_size: large}", 1)]
fn known_size_replaces_the_estimate(#[case] fields: &str, #[case] expected: u32) {
    let decision = decide_on("l4", "24Gi", &model("8.03B", "", "", fields), "image: vllm", "");
    assert_eq!(selection(&decision).2, expected, "{}", decision.message);
}

/// The rejection names each part, and the context that would fit.
#[test]
fn rejection_names_the_parts() {
    let runner = "image: vllm/vllm-openai, resources: {limits: {nvidia.com/gpu: 1}}";
    let decision = fixture_with_classes(&[
        &class("l4", "24Gi"),
        &model("8.03B", "", LLAMA_8B, ""),
        &RUNTIME.replace("image: i", "image: vllm/vllm-openai"),
        &service(&format!("acceleratorSelector: {{preferredClasses: [l4]}}, engine: {{runner: {{{runner}}}}}"), ""),
    ])
    .decide();
    assert_eq!(class_code(&decision, "l4"), "ModelDoesNotFit");
    let l4 = decision.candidates[0].accelerators.iter().find(|candidate| candidate.class == "l4").unwrap();
    insta::assert_snapshot!(l4.evaluation.to_string(), @"one accelerator requires 34.6 GB: 16.1 GB for weights, 17.2 GB for the KV cache of 131072 tokens, 1.4 GB for activations; 23.2 GB are usable (the service sets nvidia.com/gpu to 1); a context of 44073 tokens would fit");
}

/// An engine would start with a shorter context than the rule permits it to choose by itself, if a flag states it.
#[test]
fn rejection_of_a_reduced_context_names_one_that_fits() {
    let runner = "image: vllm/vllm-openai, args: [--max-model-len=auto], resources: {limits: {nvidia.com/gpu: 2}}";
    let decision = fixture_with_classes(&[
        &class("h100", "80Gi"),
        &model("72.7B", "", QWEN_72B, ""),
        &RUNTIME.replace("image: i", "image: vllm/vllm-openai"),
        &service(&format!("acceleratorSelector: {{preferredClasses: [h100]}}, engine: {{runner: {{{runner}}}}}"), ""),
    ])
    .decide();
    let h100 = decision.candidates[0].accelerators.iter().find(|candidate| candidate.class == "h100").unwrap();
    insta::assert_snapshot!(h100.evaluation.to_string(), @"the model requires 174.5 GB of accelerator memory, with 20 % of the weights for KV cache and activations; 2 × 77.3 GB are usable (the service sets nvidia.com/gpu to 2); a context of 13183 tokens would fit");
}

/// The parts of the budget of one L4 add up to its memory.
#[test]
fn budget_lists_all_parts() {
    let runner = "image: vllm, args: [--max-model-len=auto]";
    let decision = decide_on("l4", "24Gi", &model("8.03B", "", LLAMA_8B, ""), runner, "");
    let l4 = decision.candidates[0].accelerators.iter().find(|candidate| candidate.class == "l4").unwrap();
    let ClassEvaluation::Eligible(eligibility) = &l4.evaluation else { panic!("{decision:?}") };
    let budget = eligibility.memory.unwrap();
    let parts = budget.parts();
    assert_eq!(parts.iter().map(|(bytes, _)| bytes).sum::<u64>(), budget.memory);
    let lines: Vec<String> = parts.iter().map(|(bytes, purpose)| format!("{bytes} {purpose}")).collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    16060000000 weights
    5776736256 KV cache of a sequence of 44073 tokens; the engine reduces the context of 131072 to these
    1356070912 activations, CUDA graphs and buffers, estimated
    16230 free for the KV cache of 0.0 further sequences
    2576980378 outside of the engine's memory fraction
    ");
    assert!(!warning_codes(&decision).contains(&"ModelSizeUnstated"));
}

const QWEN_7B: &str = "num_hidden_layers: 28, num_attention_heads: 28, num_key_value_heads: 4, hidden_size: 3584, intermediate_size: 18944, vocab_size: 152064, max_position_embeddings: 32768, tie_word_embeddings: false";
const QWEN_14B: &str = "num_hidden_layers: 48, num_attention_heads: 40, num_key_value_heads: 8, hidden_size: 5120, intermediate_size: 13824, vocab_size: 152064, max_position_embeddings: 32768, tie_word_embeddings: false";

/// A number that does not divide the attention heads causes a warning.
#[rstest]
#[case::divides(QWEN_14B, "14.8B", "--max-model-len=8192", 4, false)]
#[case::stated_number_divides(QWEN_7B, "7.6B", "--tensor-parallel-size=4", 4, false)]
#[case::stated_number_does_not_divide(QWEN_7B, "7.6B", "--tensor-parallel-size=8", 8, true)]
#[case::pipeline(QWEN_7B, "7.6B", "--pp=2", 2, false)]
#[case::heads_of_three(LLAMA_8B_OF_24_HEADS, "8.03B", "--tp=16", 16, true)]
#[case::unknown_heads("", "7B", "--tp=3", 3, false)]
// spec: ACC-84
fn tensor_parallelism_divides_the_heads(
    #[case] config: &str,
    #[case] size: &str,
    #[case] flag: &str,
    #[case] expected: u32,
    #[case] warns: bool,
) {
    let runner = format!("image: vllm, args: [{flag}]");
    let decision = decide_on("small", "12Gi", &model(size, "", config, ""), &runner, "");
    assert_eq!(selection(&decision).2, expected, "{}", decision.message);
    assert_eq!(warning_codes(&decision).contains(&"AttentionHeadsNotDivisible"), warns, "{:?}", decision.warnings);
}

const LLAMA_8B_OF_24_HEADS: &str = "num_hidden_layers: 32, num_attention_heads: 24, num_key_value_heads: 8, hidden_size: 3072, vocab_size: 128256, max_position_embeddings: 4096";
