//! The properties of a model that determine its memory, from its `config.json`.

use serde_json::{Map, Value};

/// Dimensions of a model, from `spec.modelConfiguration`: the contents of its `config.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelArchitecture {
    /// Attention layers with a KV cache for the whole context.
    pub full_layers: u64,
    /// Attention layers with a KV cache for `window` tokens.
    pub windowed_layers: u64,
    /// Tokens that windowed layers attend to.
    pub window: u64,
    /// Attention heads.
    pub attention_heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Elements of one head.
    pub head_size: u64,
    /// Heads of keys and values in layers that attend to the whole context.
    pub global_kv_heads: u64,
    /// Elements of one head in layers that attend to the whole context.
    pub global_head_size: u64,
    /// Parameters of the projections of all attention layers; 0 if a dimension is unknown.
    pub attention_parameters: u64,
    /// Elements per token and layer of the compressed KV cache of multi-head latent attention, which every accelerator stores.
    pub latent_size: Option<u64>,
    /// Size of the hidden state.
    pub hidden_size: u64,
    /// Size of the hidden state of the feed-forward layers.
    pub intermediate_size: u64,
    /// Tokens in the vocabulary.
    pub vocabulary: u64,
    /// Whether input embeddings and output head are the same tensor.
    pub tied_embeddings: bool,
    /// Tokens of the longest context that engines use by default.
    pub max_context: Option<u64>,
    /// Tokens of the longest context that engines accept.
    pub context_limit: Option<u64>,
}

/// Largest dimension that is accepted; larger ones count as unknown. Products saturate.
const MAX_DIMENSION: u64 = 1 << 32;
/// Fields with the configuration of the language model of a model with several modalities.
const LANGUAGE_MODEL_FIELDS: [&str; 3] = ["text_config", "llm_config", "language_config"];

// Names of the fields of one dimension; the first that is set counts.
const LAYERS: [&str; 4] = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
const HIDDEN_SIZE: [&str; 3] = ["hidden_size", "n_embd", "d_model"];
const INTERMEDIATE_SIZE: [&str; 2] = ["intermediate_size", "ffn_dim"];
const ATTENTION_HEADS: [&str; 3] = ["num_attention_heads", "n_head", "n_heads"];
const KV_HEADS: [&str; 3] = ["num_key_value_heads", "num_kv_heads", "n_head_kv"];
const WINDOW: [&str; 2] = ["sliding_window", "attention_chunk_size"];
const CONTEXT: [&str; 6] =
    ["max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx"];
const ROPE: [&str; 2] = ["rope_scaling", "rope_parameters"];
/// Fields with one name.
const OTHER_FIELDS: [&str; 20] = [
    "model_type",
    "head_dim",
    "multi_query",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "vocab_size",
    "tie_word_embeddings",
    "original_max_position_embeddings",
    "use_sliding_window",
    "max_window_layers",
    "sliding_window_pattern",
    "layer_types",
    "layers_block_type",
    "hybrid_override_pattern",
    "global_head_dim",
    "num_global_key_value_heads",
    "attention_k_eq_v",
    "q_lora_rank",
    "qk_nope_head_dim",
    "v_head_dim",
];

// === impl ModelArchitecture ===

impl ModelArchitecture {
    /// Reads the contents of a `config.json`; `None` without the dimensions that the KV cache depends on. Models with several
    /// modalities have the dimensions of the language model in `text_config`.
    #[must_use]
    pub fn from_config(config: &Value) -> Option<Self> {
        let nested =
            LANGUAGE_MODEL_FIELDS.iter().filter_map(|name| config.get(*name)).find(|nested| layers(nested).is_some());
        let config = nested.unwrap_or(config);
        let layers = layers(config)?;
        let hidden_size = number(config, &HIDDEN_SIZE)?;
        let attention_heads = number(config, &ATTENTION_HEADS)?;
        let derived_head_size = hidden_size.checked_div(attention_heads).filter(|size| *size > 0);
        let head_size = number(config, &["head_dim"]).or(derived_head_size)?;
        let kv_heads = number(config, &KV_HEADS);
        let is_multi_query = config["multi_query"].as_bool().unwrap_or(false);
        let latent = number(config, &["kv_lora_rank"]);
        let rope_part = number(config, &["qk_rope_head_dim"]).unwrap_or(0);
        let (windowed_layers, window) = windowed_layers(config, layers);
        let kv_heads = kv_heads.unwrap_or(if is_multi_query { 1 } else { attention_heads });
        let architecture = Self {
            full_layers: full_layers(config, layers).saturating_sub(windowed_layers),
            windowed_layers,
            window,
            attention_heads,
            kv_heads,
            head_size,
            global_kv_heads: global_kv_heads(config).unwrap_or(kv_heads),
            global_head_size: number(config, &["global_head_dim"]).unwrap_or(head_size),
            attention_parameters: 0,
            latent_size: latent.map(|rank| rank.saturating_add(rope_part)),
            hidden_size,
            intermediate_size: number(config, &INTERMEDIATE_SIZE).unwrap_or(hidden_size * 4),
            vocabulary: number(config, &["vocab_size"]).unwrap_or(0),
            tied_embeddings: config["tie_word_embeddings"].as_bool().unwrap_or(false),
            max_context: context_limit(config).map(|limit| default_context(config, limit)),
            context_limit: context_limit(config),
        };
        Some(Self { attention_parameters: attention_parameters(config, &architecture), ..architecture })
    }

    /// Returns the part of the contents of a `config.json` that [`from_config`](Self::from_config) reads.
    #[must_use]
    pub fn relevant_fields(config: &Value) -> Map<String, Value> {
        let select = |config: &Value| {
            let fields = config.as_object().into_iter().flatten();
            let fields = fields.filter(|(name, value)| is_relevant(name) && !value.is_null());
            fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>()
        };
        let nested = LANGUAGE_MODEL_FIELDS.iter().map(|name| ((*name).to_owned(), select(&config[*name])));
        let nested = nested.filter(|(_, fields)| !fields.is_empty());
        let nested = nested.map(|(name, fields)| (name, Value::Object(fields)));
        select(config).into_iter().chain(nested).collect()
    }

    /// Returns the number of parameters of input embeddings and output head, which quantization methods for safetensors do not
    /// quantize.
    pub(crate) fn embedding_parameters(&self) -> u64 {
        let tensors = if self.tied_embeddings { 1 } else { 2 };
        self.vocabulary.saturating_mul(self.hidden_size).saturating_mul(tensors)
    }

    /// Returns the number of parameters in the attention of `layers` layers, at most of all.
    pub(crate) fn attention_parameters_of(&self, layers: u64) -> u64 {
        let all = self.full_layers.saturating_add(self.windowed_layers).max(1);
        self.attention_parameters / all * layers.min(all)
    }

    /// Returns the bytes of the KV cache of one token in one layer on one of `tensor_parallel` accelerators. Engines replicate
    /// the heads if there are fewer than accelerators.
    fn bytes_per_token_and_layer(&self, (kv_heads, head_size): (u64, u64), tensor_parallel: u64, element: u64) -> u64 {
        match self.latent_size {
            Some(latent) => latent.saturating_mul(element),
            None => {
                let heads = kv_heads.div_ceil(tensor_parallel.max(1)).max(1);
                heads.saturating_mul(head_size).saturating_mul(2).saturating_mul(element)
            }
        }
    }

    /// Returns the KV cache of one sequence on one accelerator, with elements of `element` bytes.
    pub(crate) fn kv_cache(&self, parallel: &ParallelSizes, element: u64, windowed: WindowedCache) -> KvCache {
        let bytes = |heads| self.bytes_per_token_and_layer(heads, parallel.tensor, element);
        let stages = parallel.pipeline.max(1);
        let full_layers = self.full_layers.div_ceil(stages);
        KvCache {
            per_token: bytes((self.global_kv_heads, self.global_head_size)).saturating_mul(full_layers),
            per_windowed_token: bytes((self.kv_heads, self.head_size))
                .saturating_mul(self.windowed_layers.div_ceil(stages)),
            window: match windowed {
                // A windowed layer also stores the tokens of the current step (vllm 0.32, SlidingWindowSpec).
                WindowedCache::Window { batched_tokens } => self.window.saturating_add(batched_tokens),
                WindowedCache::WholeContext => u64::MAX,
            },
        }
    }
}

/// Accelerators over which one copy of a model is distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParallelSizes {
    pub(crate) tensor: u64,
    pub(crate) pipeline: u64,
}

/// Tokens that an engine stores in layers with a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowedCache {
    /// The window and the tokens of one step.
    Window { batched_tokens: u64 },
    /// All tokens, as in the other layers.
    WholeContext,
}

/// Size of the KV cache of one sequence on one accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvCache {
    /// Bytes per token of layers that store the whole context.
    per_token: u64,
    /// Bytes per token of windowed layers.
    per_windowed_token: u64,
    /// Tokens that windowed layers store.
    window: u64,
}

// === impl KvCache ===

impl KvCache {
    /// Returns the bytes for a sequence of `tokens`.
    pub(crate) fn bytes(&self, tokens: u64) -> u64 {
        let windowed = self.per_windowed_token.saturating_mul(tokens.min(self.window));
        self.per_token.saturating_mul(tokens).saturating_add(windowed)
    }

    /// Returns the tokens of the longest sequence that fits into `bytes`; `None` if any does.
    pub(crate) fn tokens(&self, bytes: u64) -> Option<u64> {
        let both = self.per_token.saturating_add(self.per_windowed_token);
        let within_window = bytes.checked_div(both)?;
        if within_window < self.window {
            return Some(within_window);
        }
        let windowed = self.per_windowed_token.saturating_mul(self.window);
        bytes.saturating_sub(windowed).checked_div(self.per_token)
    }
}

/// Returns whether the field is one of those that this file reads.
fn is_relevant(field: &str) -> bool {
    let names: [&[&str]; 9] = [
        &LAYERS,
        &HIDDEN_SIZE,
        &INTERMEDIATE_SIZE,
        &ATTENTION_HEADS,
        &KV_HEADS,
        &WINDOW,
        &CONTEXT,
        &ROPE,
        &OTHER_FIELDS,
    ];
    names.iter().any(|names| names.contains(&field))
}

fn number(config: &Value, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| config[*name].as_u64()).filter(|number| (1..=MAX_DIMENSION).contains(number))
}

fn layers(config: &Value) -> Option<u64> {
    number(config, &LAYERS)
        .or_else(|| Some(count(config["layers_block_type"].as_array()?.len())).filter(|count| *count > 0))
}

/// Returns the heads of keys and values in layers that attend to the whole context, if they differ (transformers 5.24,
/// configuration_gemma4.py).
fn global_kv_heads(config: &Value) -> Option<u64> {
    number(config, &["num_global_key_value_heads"]).filter(|_| config["attention_k_eq_v"] != false)
}

/// Returns the parameters of the projections of all attention layers; 0 if a dimension is unknown.
fn attention_parameters(config: &Value, architecture: &ModelArchitecture) -> u64 {
    let (hidden, heads) = (architecture.hidden_size, architecture.attention_heads);
    let layers = architecture.full_layers.saturating_add(architecture.windowed_layers);
    let Some(latent) = architecture.latent_size else {
        let per_layer = |kv_heads: u64, head_size: u64, kv_projections: u64| {
            let heads = heads.saturating_mul(2).saturating_add(kv_heads.saturating_mul(kv_projections));
            hidden.saturating_mul(head_size).saturating_mul(heads)
        };
        // Gemma 4 uses the keys as values in layers that attend to the whole context.
        let kv_projections = if config["attention_k_eq_v"] == true { 1 } else { 2 };
        let full = per_layer(architecture.global_kv_heads, architecture.global_head_size, kv_projections);
        let windowed = per_layer(architecture.kv_heads, architecture.head_size, 2);
        let full = full.saturating_mul(architecture.full_layers);
        return full.saturating_add(windowed.saturating_mul(architecture.windowed_layers));
    };
    latent_attention_parameters(config, hidden, heads, latent).unwrap_or(0).saturating_mul(layers)
}

/// Returns the parameters of one layer of multi-head latent attention.
fn latent_attention_parameters(config: &Value, hidden: u64, heads: u64, latent: u64) -> Option<u64> {
    let field = |name| number(config, &[name]);
    let (rank, value_size, plain_size) = (field("kv_lora_rank")?, field("v_head_dim")?, field("qk_nope_head_dim")?);
    let query_size = heads.saturating_mul(plain_size.saturating_add(latent.saturating_sub(rank)));
    let query = match field("q_lora_rank") {
        Some(query_rank) => query_rank.saturating_mul(hidden.saturating_add(query_size)),
        None => hidden.saturating_mul(query_size),
    };
    let key_value = rank.saturating_mul(heads).saturating_mul(plain_size.saturating_add(value_size));
    let output = heads.saturating_mul(value_size).saturating_mul(hidden);
    Some(query.saturating_add(hidden.saturating_mul(latent)).saturating_add(key_value).saturating_add(output))
}

/// Returns the attention layers with a KV cache. Layers of state space models and linear attention have none.
fn full_layers(config: &Value, layers: u64) -> u64 {
    if let Some(pattern) = config["hybrid_override_pattern"].as_str() {
        return count(pattern.chars().filter(|kind| *kind == '*').count());
    }
    match config["layer_types"].as_array().or(config["layers_block_type"].as_array()) {
        Some(kinds) => count(kinds.iter().filter(|kind| is_attention(kind)).count()),
        None => layers,
    }
}

fn is_attention(kind: &Value) -> bool {
    kind.as_str().is_none_or(|kind| kind.ends_with("attention") && kind != "linear_attention")
}

/// Returns the layers with a window, and its tokens.
fn windowed_layers(config: &Value, layers: u64) -> (u64, u64) {
    let window = number(config, &WINDOW);
    let Some(window) = window.filter(|_| config["use_sliding_window"] != false) else { return (0, 0) };
    let windowed = match (config["layer_types"].as_array(), number(config, &["sliding_window_pattern"])) {
        (Some(kinds), _) => {
            let is_windowed = |kind: &&Value| matches!(kind.as_str(), Some("sliding_attention" | "chunked_attention"));
            count(kinds.iter().filter(is_windowed).count())
        }
        // Every last layer of a group attends to the whole context (Gemma 3).
        (None, Some(pattern)) => layers - layers / pattern,
        (None, None) if config["model_type"] == "gemma2" => layers.div_ceil(2),
        (None, None) if config.get("sliding_window").is_some_and(Value::is_u64) => {
            layers.saturating_sub(number(config, &["max_window_layers"]).unwrap_or(0))
        }
        (None, None) => 0,
    };
    (windowed, window)
}

/// Returns the longest context that vLLM (0.32, config/model.py, `_get_and_verify_max_len`) and SGLang (0.5.23,
/// utils/hf_transformers/common.py, `get_context_length`) accept: scaled by a factor of linear or dynamic RoPE scaling; other kinds
/// state the scaled value, as does Gemma 3 for all kinds. SGLang scales by the factor of YaRN if the scaling does not state the
/// original value.
fn context_limit(config: &Value) -> Option<u64> {
    let stated = stated_context(config)?;
    let is_scaled = config["model_type"].as_str().is_some_and(|name| name.contains("gemma3"));
    let Some((rope, kind)) = rope_scaling(config).filter(|_| !is_scaled) else { return Some(stated) };
    let is_factor_applied = match kind {
        "linear" | "dynamic" => true,
        "yarn" => rope["original_max_position_embeddings"].is_null(),
        _ => false,
    };
    if !is_factor_applied {
        return Some(stated);
    }
    let factor = rope["factor"].as_f64().filter(|factor| *factor > 0.0 && *factor <= 1024.0).unwrap_or(1.0);
    Some((stated as f64 * factor) as u64)
}

fn stated_context(config: &Value) -> Option<u64> {
    CONTEXT.iter().filter_map(|name| number(config, &[name])).min()
}

/// Returns the context that vLLM uses by default: that before the scaling of LongRoPE, and for YaRN the stated one.
fn default_context(config: &Value, limit: u64) -> u64 {
    let default = match rope_scaling(config) {
        Some((_, "longrope" | "su")) => number(config, &["original_max_position_embeddings"]),
        Some((_, "yarn")) => stated_context(config),
        _ => None,
    };
    default.unwrap_or(limit)
}

/// Returns the scaling of RoPE with its kind.
fn rope_scaling(config: &Value) -> Option<(&Value, &str)> {
    let rope = ROPE.iter().map(|name| &config[*name]).find(|rope| rope.is_object())?;
    Some((rope, rope["rope_type"].as_str().or(rope["type"].as_str()).unwrap_or_default()))
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(MAX_DIMENSION)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const WINDOW_OF_2048_MORE: WindowedCache = WindowedCache::Window { batched_tokens: 2048 };

    fn kv_cache(config: &Value, tensor: u64, tokens: u64) -> u64 {
        let architecture = ModelArchitecture::from_config(config).unwrap();
        architecture.kv_cache(&ParallelSizes { tensor, pipeline: 1 }, 2, WINDOW_OF_2048_MORE).bytes(tokens)
    }

    fn llama_8b() -> Value {
        json!({"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096,
            "intermediate_size": 14336, "vocab_size": 128_256, "max_position_embeddings": 131_072,
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0}})
    }

    fn with(mut config: Value, fields: Value) -> Value {
        config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        config
    }

    #[rstest]
    #[case::grouped_query(llama_8b(), 1, 131_072, 17_179_869_184)]
    #[case::distributed(llama_8b(), 8, 131_072, 2_147_483_648)]
    #[case::heads_are_replicated(llama_8b(), 16, 131_072, 2_147_483_648)]
    #[case::multi_head(with(llama_8b(), json!({"num_key_value_heads": null})), 1, 1024, 536_870_912)]
    #[case::nested(json!({"text_config": llama_8b(), "vision_config": {"num_hidden_layers": 5}}), 1, 131_072, 17_179_869_184)]
    // DeepSeek-V3: 61 layers × (512 + 64) elements × 2 bytes, on every accelerator.
    #[case::latent(
        with(llama_8b(), json!({"num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64})),
        8, 1000, 70_272_000
    )]
    // All layers of Mistral 7B v0.1 have a window of 4,096 tokens.
    #[case::window(with(llama_8b(), json!({"sliding_window": 4096})), 1, 131_072, 131_072 * (4096 + 2048))]
    #[case::unused_window(with(llama_8b(), json!({"sliding_window": 4096, "use_sliding_window": false})), 1, 131_072, 17_179_869_184)]
    #[case::alternating_layers(
        with(llama_8b(), json!({"num_hidden_layers": 2, "sliding_window": 1024, "layer_types": ["sliding_attention", "full_attention"]})),
        1, 100_000, 4096 * 100_000 + 4096 * 3072
    )]
    // Gemma 4: 2 heads of 512 elements in layers that attend to the whole context.
    #[case::other_heads_in_full_layers(
        with(llama_8b(), json!({"num_hidden_layers": 2, "sliding_window": 1024, "layer_types": ["sliding_attention", "full_attention"],
            "global_head_dim": 512, "num_global_key_value_heads": 2, "attention_k_eq_v": true})),
        1, 100_000, 4096 * 100_000 + 4096 * 3072
    )]
    #[case::keys_differ_from_values(
        with(llama_8b(), json!({"num_hidden_layers": 1, "global_head_dim": 512, "num_global_key_value_heads": 2, "attention_k_eq_v": false})),
        1, 1000, 16_384_000
    )]
    #[case::linear_attention(
        with(llama_8b(), json!({"num_hidden_layers": 4, "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"]})),
        1, 1000, 4_096_000
    )]
    // Nemotron 3 Ultra states no number of layers.
    #[case::kinds_of_blocks(
        with(llama_8b(), json!({"num_hidden_layers": null, "layers_block_type": ["mamba", "moe", "attention", "moe"]})),
        1, 1000, 4_096_000
    )]
    fn sizes_the_kv_cache(#[case] config: Value, #[case] tensor: u64, #[case] tokens: u64, #[case] expected: u64) {
        assert_eq!(kv_cache(&config, tensor, tokens), expected);
        let relevant = Value::Object(ModelArchitecture::relevant_fields(&config));
        assert_eq!(ModelArchitecture::from_config(&relevant), ModelArchitecture::from_config(&config));
    }

    #[test]
    fn layers_with_a_window_may_store_the_whole_context() {
        let config = with(llama_8b(), json!({"sliding_window": 4096}));
        let architecture = ModelArchitecture::from_config(&config).unwrap();
        let cache = architecture.kv_cache(&ParallelSizes { tensor: 1, pipeline: 1 }, 2, WindowedCache::WholeContext);
        assert_eq!((cache.bytes(131_072), cache.tokens(17_179_869_184)), (17_179_869_184, Some(131_072)));
    }

    #[rstest]
    #[case::grouped_query(llama_8b(), 32 * 4096 * 128 * (32 * 2 + 8 * 2))]
    #[case::keys_are_values(
        with(llama_8b(), json!({"num_hidden_layers": 2, "sliding_window": 1024, "layer_types": ["sliding_attention", "full_attention"],
            "global_head_dim": 512, "num_global_key_value_heads": 2, "attention_k_eq_v": true})),
        4096 * 128 * (32 * 2 + 8 * 2) + 4096 * 512 * (32 * 2 + 2)
    )]
    // DeepSeek-V3 has 187 million per layer.
    #[case::latent(
        with(llama_8b(), json!({"num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "kv_lora_rank": 512,
            "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128})),
        61 * 187_105_280
    )]
    #[case::unknown_dimension(with(llama_8b(), json!({"kv_lora_rank": 512})), 0)]
    fn counts_the_parameters_of_attention(#[case] config: Value, #[case] expected: u64) {
        assert_eq!(ModelArchitecture::from_config(&config).unwrap().attention_parameters, expected);
    }

    #[test]
    fn relevant_fields_are_those_that_this_file_reads() {
        let source = include_str!("model_architecture.rs").split("mod tests").next().unwrap();
        let read: Vec<&str> = source
            .split("config[\"")
            .skip(1)
            .chain(source.split("config, &[\"").skip(1))
            .chain(source.split("config.get(\"").skip(1))
            .map(|rest| rest.split('"').next().unwrap())
            .collect();
        assert!(read.len() > 10, "{read:?}");
        for field in read {
            assert!(is_relevant(field), "{field}");
        }
    }

    #[rstest]
    #[case::scaled_value(json!({}), Some((131_072, 131_072)))]
    #[case::linear(json!({"rope_scaling": {"type": "linear", "factor": 2.0}}), Some((262_144, 262_144)))]
    #[case::gemma3(json!({"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}), Some((131_072, 131_072)))]
    #[case::yarn(json!({"rope_scaling": {"type": "yarn", "factor": 4.0}}), Some((131_072, 524_288)))]
    #[case::yarn_of_the_original_value(
        json!({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}}),
        Some((131_072, 131_072))
    )]
    #[case::longrope(
        json!({"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096}),
        Some((4096, 131_072))
    )]
    #[case::unknown(json!({"max_position_embeddings": null}), None)]
    fn derives_default_and_longest_context(#[case] fields: Value, #[case] expected: Option<(u64, u64)>) {
        let architecture = ModelArchitecture::from_config(&with(llama_8b(), fields)).unwrap();
        assert_eq!(architecture.max_context.zip(architecture.context_limit), expected);
    }

    #[rstest]
    #[case(json!({}))]
    #[case(json!({"num_hidden_layers": 0, "hidden_size": 1, "num_attention_heads": 1}))]
    #[case(json!({"num_hidden_layers": -1, "hidden_size": 1, "num_attention_heads": 1}))]
    #[case(json!({"num_hidden_layers": 32, "hidden_size": "4096", "num_attention_heads": 1}))]
    #[case(json!({"num_hidden_layers": 32, "hidden_size": 1, "num_attention_heads": 64}))]
    fn ignores_unusable_configurations(#[case] config: Value) {
        assert_eq!(ModelArchitecture::from_config(&config), None);
    }

    #[test]
    fn products_of_dimensions_saturate() {
        let config = json!({"num_hidden_layers": MAX_DIMENSION, "num_attention_heads": MAX_DIMENSION, "head_dim": MAX_DIMENSION,
            "hidden_size": MAX_DIMENSION, "vocab_size": MAX_DIMENSION});
        assert_eq!(kv_cache(&config, 1, MAX_DIMENSION), u64::MAX);
        assert_eq!(ModelArchitecture::from_config(&config).unwrap().embedding_parameters(), u64::MAX);
    }

    #[test]
    fn inverts_the_size_of_the_kv_cache() {
        let config = with(llama_8b(), json!({"sliding_window": 4096, "sliding_window_pattern": 2}));
        let architecture = ModelArchitecture::from_config(&config).unwrap();
        let cache = architecture.kv_cache(&ParallelSizes { tensor: 2, pipeline: 2 }, 2, WINDOW_OF_2048_MORE);
        for tokens in [1, 100, 6144, 6145, 100_000] {
            assert_eq!(cache.tokens(cache.bytes(tokens)), Some(tokens));
        }
    }
}
