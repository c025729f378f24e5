//! Reads which parts of a model its `quantization_config` leaves in 16 bits, and the format of the KV cache.

use std::collections::BTreeSet;

use serde_json::Value;

/// Fields with the names of modules that stay in 16 bits, of ModelOpt, compressed-tensors and methods of transformers.
const UNQUANTIZED_MODULES: [&str; 3] = ["ignore", "exclude_modules", "modules_to_not_convert"];

/// Returns the number of layers whose attention the quantization excludes; `u64::MAX` if a pattern excludes that of all layers.
pub(super) fn unquantized_attention(quantization: &Value) -> u64 {
    let modules = UNQUANTIZED_MODULES.iter().filter_map(|field| quantization[*field].as_array()).flatten();
    let layers: BTreeSet<&str> = modules.filter_map(Value::as_str).filter_map(layer_of_attention).collect();
    match layers.contains(ALL_LAYERS) {
        true => u64::MAX,
        false => u64::try_from(layers.len()).unwrap_or(u64::MAX),
    }
}

const ALL_LAYERS: &str = "";

/// Returns the number of the layer whose attention, or its output projection, the name of a module or the pattern denotes;
/// [`ALL_LAYERS`] if the name has none. The output projection is excluded where all projections are.
fn layer_of_attention(module: &str) -> Option<&str> {
    let name = module.trim_end_matches(['*', '.', '$']);
    let is_attention = ["self_attn", "self_attn.o_proj", "mixer.o_proj"].iter().any(|suffix| name.ends_with(suffix));
    let number = || name.split('.').find(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    is_attention.then(|| number().unwrap_or(ALL_LAYERS))
}

/// Whether the checkpoint states an FP8 KV cache. Both engines then use it by default (vllm 0.32, utils/torch_utils.py,
/// `get_kv_cache_quant_algo_string`; sglang 0.5.23, configs/model_config.py).
pub(super) fn has_fp8_kv_cache(quantization: &Value) -> bool {
    let is_modelopt = quantization["quant_method"].as_str().is_some_and(|method| method.starts_with("modelopt"));
    let scheme = &quantization["kv_cache_scheme"];
    let is_fp8 = scheme["num_bits"] == 8 && scheme["type"] == "float" || quantization["kv_cache_quant_algo"] == "FP8";
    is_modelopt && is_fp8
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::each_layer(json!({"ignore": ["lm_head", "model.layers.0.self_attn*", "model.layers.10.self_attn*"]}), 2)]
    #[case::projections(
        json!({"exclude_modules": ["model.layers.3.self_attn.q_a_proj", "model.layers.3.self_attn.o_proj", "backbone.layers.5.mixer.o_proj"]}),
        2
    )]
    // DeepSeek-V3.1-NVFP4 quantizes the output projection.
    #[case::other_projections(json!({"exclude_modules": ["model.layers.3.self_attn.q_a_proj"]}), 0)]
    #[case::pattern(json!({"ignore": ["*.self_attn*"]}), u64::MAX)]
    #[case::expression(json!({"ignore": ["lm_head", "re:.*self_attn.*"]}), u64::MAX)]
    #[case::experts(json!({"modules_to_not_convert": ["model.layers.0.mlp.gate"]}), 0)]
    #[case::none(json!(null), 0)]
    fn counts_layers_with_unquantized_attention(#[case] quantization: Value, #[case] expected: u64) {
        assert_eq!(unquantized_attention(&quantization), expected);
    }

    #[rstest]
    #[case::scheme(json!({"quant_method": "modelopt", "kv_cache_scheme": {"dynamic": false, "num_bits": 8, "type": "float"}}), true)]
    #[case::algorithm(json!({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}), true)]
    #[case::integers(json!({"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 8, "type": "int"}}), false)]
    #[case::other_method(json!({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}), false)]
    #[case::none(json!({"quant_method": "modelopt"}), false)]
    fn reads_the_format_of_the_kv_cache(#[case] quantization: Value, #[case] expected: bool) {
        assert_eq!(has_fp8_kv_cache(&quantization), expected);
    }
}
