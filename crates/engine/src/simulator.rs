//! The state all requests of one engine share.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use xxhash_rust::xxh64::xxh64;

use crate::{
    Config,
    answer::Head,
    batch::Batch,
    cache::PrefixCache,
    failure::Failure,
    metrics::Metrics,
    request::{Call, Request},
};

/// One engine: configuration, batch, cache, counters.
pub(crate) struct Simulator {
    pub(crate) config: Config,
    pub(crate) batch: Arc<Batch>,
    pub(crate) metrics: Metrics,
    cache: Mutex<PrefixCache>,
    answers: AtomicU64,
    /// Unix seconds at start.
    pub(crate) started: i64,
}

impl Simulator {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new(Self {
            batch: Batch::new(config.max_num_seqs),
            metrics: Metrics::new(),
            cache: Mutex::new(PrefixCache::new(config.block_size, config.kv_blocks)),
            answers: AtomicU64::new(0),
            started: now(),
            config,
        })
    }

    /// Names and time for a new answer; a client's `x-request-id` becomes part of the id.
    pub(crate) fn head(&self, call: Call, model: Option<&str>, request_id: Option<&str>) -> Head {
        let prefix = match call {
            Call::Chat => "chatcmpl",
            Call::Completion => "cmpl",
        };
        let number = self.answers.fetch_add(1, Relaxed);
        let own = || format!("{:016x}", xxh64(&number.to_le_bytes(), self.config.seed ^ self.started as u64));
        Head {
            call,
            id: format!("{prefix}-{}", request_id.map_or_else(own, str::to_owned)),
            created: now(),
            model: model.unwrap_or(self.config.base_name()).to_owned(),
            fingerprint: format!(
                "vllm-{}-{:08x}",
                crate::http_api::VERSION,
                xxh64(self.config.model.as_bytes(), 0) as u32
            ),
        }
    }

    /// Refuses what vLLM would refuse after reading the body.
    pub(crate) fn check(&self, request: &Request, prompt_tokens: usize) -> Result<usize, Failure> {
        let limit = self.config.max_model_len;
        if request.n.unwrap_or(1) != 1 {
            return Err(Failure::bad_request(Some("n"), "Only n=1 is simulated."));
        }
        if prompt_tokens >= limit {
            let message = format!(
                "This model's maximum context length is {limit} tokens. However, your request has {prompt_tokens} input tokens. \
                 Please reduce the length of the input messages."
            );
            return Err(Failure::bad_request(Some("input_tokens"), message));
        }
        let room = limit - prompt_tokens;
        match request.max_completion_tokens.or(request.max_tokens) {
            Some(0) => Err(Failure::bad_request(Some("max_tokens"), "max_tokens must be at least 1, got 0.")),
            Some(asked) if asked > room => {
                let message = format!(
                    "'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is \
                     {limit} tokens and your request has {prompt_tokens} input tokens ({asked} > {limit} - {prompt_tokens})."
                );
                Err(Failure::bad_request(Some("max_tokens"), message))
            }
            Some(asked) => Ok(asked),
            // vLLM: 16 for completions, whatever fits for chat.
            None if request.messages.is_none() => Ok(room.min(16)),
            None => Ok(room),
        }
    }

    pub(crate) fn cached_tokens(&self, prompt: &[u32]) -> usize {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).cached_tokens(prompt)
    }

    pub(crate) fn remember(&self, prompt: &[u32]) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).insert(prompt);
    }

    /// The share of KV cache blocks that running sequences use, 0 to 1.
    pub(crate) fn kv_cache_usage(&self) -> f64 {
        let tokens = (self.config.block_size * self.config.kv_blocks).max(1);
        (self.batch.kv_tokens() as f64 / tokens as f64).min(1.0)
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
