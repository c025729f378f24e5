//! State that all requests of one engine share.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use xxhash_rust::xxh64::xxh64;

use crate::{
    Config,
    api_error::ApiError,
    batch::Batch,
    metrics::Metrics,
    prefix_cache::PrefixCache,
    request::{Endpoint, GenerationRequest},
    request_body::RequestMemory,
    response::{ResponseMetadata, VLLM_VERSION},
    sleep::SleepMode,
};

/// A simulated engine: configuration, batch, prefix cache and metrics.
pub(crate) struct Simulator {
    /// Configuration of the engine.
    pub(crate) config: Config,
    /// Running and waiting sequences.
    pub(crate) batch: Arc<Batch>,
    /// Counters and histograms since the start.
    pub(crate) metrics: Metrics,
    /// Memory for requests, which other engines may share.
    pub(crate) request_memory: RequestMemory,
    /// Whether the engine sleeps.
    pub(crate) sleep_mode: Arc<SleepMode>,
    prefix_cache: Mutex<PrefixCache>,
    response_count: AtomicU64,
    /// Start time in Unix seconds.
    pub(crate) started_at: i64,
}

impl Simulator {
    /// Returns an idle engine with an empty prefix cache.
    pub(crate) fn new(config: Config, request_memory: RequestMemory) -> Arc<Self> {
        Arc::new(Self {
            batch: Batch::new(config.max_num_seqs),
            metrics: Metrics::new(),
            request_memory,
            sleep_mode: SleepMode::new(),
            prefix_cache: Mutex::new(PrefixCache::new(config.block_size, config.num_gpu_blocks)),
            response_count: AtomicU64::new(0),
            started_at: unix_seconds(),
            config,
        })
    }

    /// Returns the metadata of a new response. A client's `x-request-id` becomes part of the id.
    pub(crate) fn response_metadata(
        &self,
        endpoint: Endpoint,
        model: Option<&str>,
        request_id: Option<&str>,
    ) -> ResponseMetadata {
        let prefix = match endpoint {
            Endpoint::Chat => "chatcmpl",
            Endpoint::Completion => "cmpl",
        };
        let number = self.response_count.fetch_add(1, Relaxed);
        let generated_id =
            || format!("{:016x}", xxh64(&number.to_le_bytes(), self.config.seed ^ self.started_at as u64));
        ResponseMetadata {
            endpoint,
            id: format!("{prefix}-{}", request_id.map_or_else(generated_id, str::to_owned)),
            created: unix_seconds(),
            model: model.unwrap_or(self.config.default_model_name()).to_owned(),
            fingerprint: format!("vllm-{VLLM_VERSION}-{:08x}", xxh64(self.config.model.as_bytes(), 0) as u32),
        }
    }

    /// Validates a parsed request and returns the maximum number of tokens to generate.
    ///
    /// # Errors
    /// The error that vLLM responds with.
    pub(crate) fn validate(&self, request: &GenerationRequest, prompt_tokens: usize) -> Result<usize, ApiError> {
        let limit = self.config.max_model_len;
        if request.n.unwrap_or(1) != 1 {
            return Err(ApiError::bad_request(Some("n"), "Only n=1 is simulated."));
        }
        if prompt_tokens >= limit {
            let message = format!(
                "This model's maximum context length is {limit} tokens. However, your request has {prompt_tokens} input tokens. \
                 Please reduce the length of the input messages."
            );
            return Err(ApiError::bad_request(Some("input_tokens"), message));
        }
        let available = limit - prompt_tokens;
        match request.max_completion_tokens.or(request.max_tokens) {
            Some(0) => Err(ApiError::bad_request(Some("max_tokens"), "max_tokens must be at least 1, got 0.")),
            Some(requested) if requested > available => {
                let message = format!(
                    "'max_tokens' or 'max_completion_tokens' is too large: {requested}. This model's maximum context length is \
                     {limit} tokens and your request has {prompt_tokens} input tokens ({requested} > {limit} - {prompt_tokens})."
                );
                Err(ApiError::bad_request(Some("max_tokens"), message))
            }
            Some(requested) => Ok(requested),
            // vLLM's defaults: 16 for completions, the rest of the context for chat.
            None if request.messages.is_none() => Ok(available.min(16)),
            None => Ok(available),
        }
    }

    /// Returns the number of tokens of `prompt` in the prefix cache.
    pub(crate) fn cached_tokens(&self, prompt: &[u32]) -> usize {
        self.prefix_cache.lock().unwrap_or_else(PoisonError::into_inner).cached_tokens(prompt)
    }

    /// Inserts `prompt` into the prefix cache.
    pub(crate) fn cache_prompt(&self, prompt: &[u32]) {
        self.prefix_cache.lock().unwrap_or_else(PoisonError::into_inner).insert(prompt);
    }

    /// Removes all prompts from the prefix cache.
    pub(crate) fn clear_prefix_cache(&self) {
        let (block_size, blocks) = (self.config.block_size, self.config.num_gpu_blocks);
        *self.prefix_cache.lock().unwrap_or_else(PoisonError::into_inner) = PrefixCache::new(block_size, blocks);
    }

    /// Returns the fraction of the KV cache that running sequences use, from 0 to 1.
    pub(crate) fn kv_cache_usage(&self) -> f64 {
        let tokens = self.config.kv_cache_tokens().max(1);
        (self.batch.kv_tokens() as f64 / tokens as f64).min(1.0)
    }
}

fn unix_seconds() -> i64 {
    jiff::Timestamp::now().as_second()
}
