//! Computes the memory that an engine requires on each accelerator of a replica: weights, KV cache, activations and graphs.

use crate::demand::Model;
use crate::engine::{ContextLength, Engine, LayeredSettings};
use crate::memory_budget::{MemoryBudget, Reserve};
use crate::model_architecture::{KvCache, ModelArchitecture, ParallelSizes, WindowedCache};
use crate::quantization;

/// The memory that a model requires, independent of engine and accelerators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelMemory {
    /// Bytes of the weights.
    weights: u64,
    /// Bytes of weights, KV cache and activations without knowledge of the engine.
    estimate: u64,
    architecture: Option<ModelArchitecture>,
    /// Tokens of the longest context that engines use by default.
    max_context: Option<u64>,
    /// Tokens of the longest context that engines accept.
    context_limit: Option<u64>,
    /// Whether SGLang stores no more than the window in layers that have one.
    has_window_in_sglang: bool,
    /// Bytes of one element of the KV cache, unless a flag states its format.
    kv_cache_element: u64,
}

/// An engine on accelerators of a class.
#[derive(Clone, Copy)]
pub(crate) struct EngineOnClass<'a> {
    pub(crate) settings: &'a LayeredSettings<'a>,
    /// Bytes of one accelerator.
    pub(crate) memory: u64,
    /// Family of the class, such as `ampere`.
    pub(crate) family: Option<&'a str>,
}

const MEBIBYTE: u64 = 1 << 20;
const GIBIBYTE: u64 = 1 << 30;

/// Fraction of memory that engines use by default: that of vLLM before it was raised to 0.92 (vllm 0.32, config/cache.py), since
/// runtimes name images of earlier versions.
const DEFAULT_FRACTION: f64 = 0.9;

/// CUDA context, CUDA graphs and communication buffers of vLLM: an estimate.
const VLLM_BUFFERS: u64 = GIBIBYTE;

/// Architectures with a separate KV cache for layers with a window (sglang 0.5.23, configs/model_config.py,
/// `is_hybrid_swa_model`). SGLang stores the whole context in all layers of the others, such as Gemma 2 and 3.
const SGLANG_WINDOWED_ARCHITECTURES: [&str; 14] = [
    "DeepseekV4ForCausalLM",
    "Gemma4ForCausalLM",
    "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
    "GptOssForCausalLM",
    "GraniteMoeSWAForCausalLM",
    "GraniteSWAForCausalLM",
    "LagunaForCausalLM",
    "Llama4ForConditionalGeneration",
    "MellumForCausalLM",
    "MiMoV2FlashForCausalLM",
    "MiMoV2ForCausalLM",
    "Step3p5ForCausalLM",
    "Step3p7ForConditionalGeneration",
];

/// Context that an engine must at least hold if it reduces the context to what its memory holds. An assumption.
const MIN_REDUCED_CONTEXT: u64 = 4096;

// === impl ModelMemory ===

impl ModelMemory {
    /// Returns the memory of `model`; `None` if neither its size nor its number of parameters is known.
    pub(crate) fn of(model: &Model) -> Option<Self> {
        let architecture = model.memory.architecture;
        let (weights, estimate) = match (model.memory.stored_bytes, model.parameters) {
            (Some(bytes), _) => (bytes, with_reserve(u128::from(bytes))),
            (None, Some(parameters)) => {
                let millibits = weight_millibits(model, parameters);
                (saturate(millibits / 8000), saturate(millibits.saturating_mul(3) / 20_000))
            }
            (None, None) => return None,
        };
        let max_context = architecture.and_then(|architecture| architecture.max_context).or(model.memory.max_tokens);
        let context_limit = architecture.and_then(|architecture| architecture.context_limit).or(max_context);
        let name = model.architecture.as_deref().unwrap_or_default();
        Some(Self {
            weights,
            estimate,
            architecture,
            max_context,
            context_limit,
            has_window_in_sglang: SGLANG_WINDOWED_ARCHITECTURES.contains(&name),
            kv_cache_element: if model.memory.has_fp8_kv_cache { 1 } else { 2 },
        })
    }

    /// Returns the longest context that engines accept, if it is known.
    pub(crate) fn context_limit(&self) -> Option<u64> {
        self.context_limit
    }

    /// Returns the bytes of the weights and 20 % for KV cache and activations.
    pub(crate) fn estimate(&self) -> u64 {
        self.estimate
    }

    /// Returns the budget of one accelerator, if one copy of the model is distributed as `parallel`.
    pub(crate) fn budget(&self, engine: &EngineOnClass<'_>, parallel: ParallelSizes) -> MemoryBudget {
        let accelerators = parallel.tensor.saturating_mul(parallel.pipeline).max(1);
        let weights = self.weights.div_ceil(accelerators);
        let computed = self.architecture.zip(known_engine(engine.settings));
        let Some((architecture, kind)) = computed else {
            // The estimate contains activations, which the fraction of SGLang does not.
            let stated = engine.settings.memory_fraction();
            let fraction = stated.filter(|_| engine.settings.engine() != Some(Engine::Sglang));
            let usable = fraction_of(engine.memory, fraction.unwrap_or(DEFAULT_FRACTION));
            return self.estimated_budget(engine.memory, usable, accelerators);
        };
        let (usable, activations) = engine.usable_memory_and_activations(&architecture, kind, parallel);
        let cache = self.kv_cache(&architecture, engine, kind, parallel);
        let reserve = match engine.settings.context(self.max_context) {
            ContextLength::Tokens(tokens) => {
                Reserve::Computed { kv_cache: cache.bytes(tokens), tokens, reduced_from: None, activations }
            }
            ContextLength::Automatic => {
                let maximum = self.max_context.unwrap_or(MIN_REDUCED_CONTEXT);
                let minimum = cache.bytes(maximum.min(MIN_REDUCED_CONTEXT));
                let free = usable.saturating_sub(weights).saturating_sub(activations);
                // A complete context suffices, as where the context is stated. The engine would reduce a longer one to any length, so that
                // the rule without knowledge of the dimensions applies to it.
                let default = fraction_of(engine.memory, DEFAULT_FRACTION);
                let estimated = self.estimated_budget(engine.memory, usable.max(default), accelerators);
                let is_complete = self.max_context.is_some() && free >= cache.bytes(maximum);
                if free >= minimum && !is_complete && !estimated.fits() {
                    return estimated;
                }
                let tokens = cache.tokens(free.max(minimum)).map_or(maximum, |tokens| tokens.min(maximum));
                let kv_cache = if free < minimum { minimum } else { cache.bytes(tokens) };
                Reserve::Computed { kv_cache, tokens, reduced_from: (tokens < maximum).then_some(maximum), activations }
            }
        };
        MemoryBudget { memory: engine.memory, usable, weights, reserve }
    }

    /// Returns the budget with 20 % of the weights for KV cache and activations.
    fn estimated_budget(&self, memory: u64, usable: u64, accelerators: u64) -> MemoryBudget {
        let weights = self.weights.div_ceil(accelerators);
        let bytes = self.estimate.div_ceil(accelerators).saturating_sub(weights);
        MemoryBudget { memory, usable, weights, reserve: Reserve::Estimated { bytes } }
    }

    /// Returns the tokens of the longest sequence that fits; `None` if the dimensions of the model are unknown or the weights
    /// alone do not fit.
    pub(crate) fn fitting_tokens(&self, engine: &EngineOnClass<'_>, parallel: ParallelSizes) -> Option<u64> {
        let (architecture, kind) = (self.architecture?, known_engine(engine.settings)?);
        let (usable, activations) = engine.usable_memory_and_activations(&architecture, kind, parallel);
        let accelerators = parallel.tensor.saturating_mul(parallel.pipeline).max(1);
        let free = usable.checked_sub(self.weights.div_ceil(accelerators))?.checked_sub(activations)?;
        let cache = self.kv_cache(&architecture, engine, kind, parallel);
        cache.tokens(free).filter(|tokens| *tokens > 0)
    }

    /// Returns the KV cache of one sequence on one accelerator.
    fn kv_cache(
        &self,
        architecture: &ModelArchitecture,
        engine: &EngineOnClass<'_>,
        kind: Engine,
        parallel: ParallelSizes,
    ) -> KvCache {
        let windowed = match kind {
            Engine::Sglang if !self.has_window_in_sglang => WindowedCache::WholeContext,
            _ => WindowedCache::Window { batched_tokens: engine.batched_tokens(kind) },
        };
        let element = engine.settings.kv_cache_element().unwrap_or(self.kv_cache_element);
        architecture.kv_cache(&parallel, element, windowed)
    }
}

// === impl EngineOnClass ===

impl EngineOnClass<'_> {
    /// Returns whether the family of the class is Ampere, also with the name of the vendor.
    fn is_ampere(&self) -> bool {
        let family = self.family.unwrap_or_default().to_ascii_lowercase();
        family.strip_prefix("nvidia-").unwrap_or(&family) == "ampere"
    }

    /// Returns the tokens that the engine computes in one step: those that a flag states, otherwise the default of vLLM 0.32
    /// (engine/arg_utils.py, `get_batch_defaults`) or SGLang 0.5.23 (arg_groups/memory_hook.py).
    fn batched_tokens(&self, engine: Engine) -> u64 {
        self.settings.batched_tokens().unwrap_or(match engine {
            Engine::Sglang => match self.memory / MEBIBYTE {
                0..20_480 => 2048,
                20_480..61_440 => 4096,
                61_440..163_840 => 8192,
                _ => 16_384,
            },
            _ => match self.memory / GIBIBYTE {
                160.. => 16_384,
                70..160 if !self.is_ampere() => 8192,
                _ => 2048,
            },
        })
    }

    /// Returns the bytes that the engine may use, and its activations in them.
    fn usable_memory_and_activations(
        &self,
        architecture: &ModelArchitecture,
        kind: Engine,
        parallel: ParallelSizes,
    ) -> (u64, u64) {
        let batched_tokens = self.batched_tokens(kind);
        let activations = match kind {
            Engine::Sglang => 0,
            _ => vllm_activations(architecture, self, parallel, batched_tokens),
        };
        (self.usable_memory(kind, parallel, batched_tokens), activations)
    }

    /// Returns the bytes that the engine may use for weights, KV cache and, with vLLM, activations. SGLang subtracts activations
    /// and graphs from the memory, unless the flag states the fraction (sglang 0.5.23, arg_groups/memory_hook.py,
    /// `handle_gpu_memory_settings`). Its additions for prefill graphs, data-parallel attention, DeepEP and vision are omitted.
    fn usable_memory(&self, engine: Engine, parallel: ParallelSizes, batched_tokens: u64) -> u64 {
        match (self.settings.memory_fraction(), engine) {
            (Some(fraction), _) => fraction_of(self.memory, fraction),
            (None, Engine::Sglang) => {
                let accelerators = parallel.tensor.saturating_mul(parallel.pipeline);
                let batch = match (self.memory / MEBIBYTE, parallel.tensor) {
                    (..20_480, _) => 8,
                    (..35_840, ..4) => 48,
                    (..61_440, ..4) => 32,
                    (..61_440, _) => 160,
                    (..163_840, ..4) => 256,
                    _ => 512,
                };
                let activations = batched_tokens.max(2048).saturating_mul(3) / 2;
                let mebibytes =
                    activations.saturating_add(512 + batch * 2).saturating_add(accelerators.saturating_mul(128));
                let minimum = if self.memory > 60 * GIBIBYTE { 10 * 1024 } else { 0 };
                self.memory.saturating_sub(mebibytes.max(minimum).saturating_mul(MEBIBYTE))
            }
            (None, _) => fraction_of(self.memory, DEFAULT_FRACTION),
        }
    }
}

/// Returns the engine if its use of memory is known.
fn known_engine(settings: &LayeredSettings<'_>) -> Option<Engine> {
    settings.engine().filter(|engine| matches!(engine, Engine::Vllm | Engine::Sglang))
}

/// Estimates the activations of one step of vLLM: hidden states and feed-forward layer of all tokens, the logits of all
/// sequences, and buffers. vLLM measures them at start, so there is no exact value.
fn vllm_activations(
    architecture: &ModelArchitecture,
    engine: &EngineOnClass<'_>,
    parallel: ParallelSizes,
    batched_tokens: u64,
) -> u64 {
    const BYTES_PER_ELEMENT: u64 = 2;
    const BYTES_PER_LOGIT: u64 = 4;
    let feed_forward = architecture.intermediate_size.div_ceil(parallel.tensor.max(1));
    let elements_per_token = architecture.hidden_size.saturating_add(feed_forward).saturating_mul(2);
    let sequences = if engine.memory >= 70 * GIBIBYTE && !engine.is_ampere() { 1024 } else { 256 };
    let logits = architecture.vocabulary.saturating_mul(sequences * BYTES_PER_LOGIT);
    let hidden = batched_tokens.saturating_mul(elements_per_token).saturating_mul(BYTES_PER_ELEMENT);
    hidden.saturating_add(logits).saturating_add(VLLM_BUFFERS)
}

/// Returns the size of the weights in thousandths of a bit. Quantization methods for safetensors store scales, and embeddings,
/// the output head and the attention that they exclude in 16 bits; GGUF quantizes all tensors.
fn weight_millibits(model: &Model, parameters: u64) -> u128 {
    // Some methods, such as compressed-tensors, do not state the bits in their name.
    let names = [&model.memory.quantization, &model.quantization];
    let mut names = names.into_iter().filter_map(|name| name.as_deref());
    let name = names.find(|name| quantization::bits_per_parameter(Some(name)) != 16);
    let bits = u128::from(quantization::bits_per_parameter(name));
    let parameters = u128::from(parameters);
    if bits >= 16 || quantization::is_gguf(name) {
        return parameters * bits * 1000;
    }
    match model.memory.architecture {
        Some(architecture) => {
            let attention = architecture.attention_parameters_of(model.memory.unquantized_attention);
            let unquantized = architecture.embedding_parameters().saturating_add(attention);
            let unquantized = u128::from(unquantized).min(parameters);
            let scales = u128::from(quantization::scale_millibits(name, model.memory.group_size));
            (parameters - unquantized) * (bits * 1000 + scales) + unquantized * 16_000
        }
        // Scales and 16-bit embeddings add an eighth to weights of 4 bits: Llama 3.1 70B in AWQ has 4.5 bits per parameter.
        None if bits <= 4 => parameters * bits * 1125,
        None => parameters * bits * 1000,
    }
}

fn with_reserve(bytes: u128) -> u64 {
    saturate(bytes.saturating_mul(6) / 5)
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Returns a fraction of `memory` in whole thousandths, so that results do not depend on rounding.
fn fraction_of(memory: u64, fraction: f64) -> u64 {
    let thousandths = (fraction * 1000.0).round() as u64;
    memory / 1000 * thousandths + memory % 1000 * thousandths / 1000
}
