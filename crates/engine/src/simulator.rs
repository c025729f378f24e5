//! State that all requests of one engine share.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::sync::{Semaphore, watch};
use xxhash_rust::xxh64::xxh64;

use crate::{
    Config,
    api_error::ApiError,
    batch::Batch,
    memory::{Allocation, MemoryError},
    metrics::Metrics,
    prefix_cache::PrefixCache,
    request::{Endpoint, GenerationRequest},
    request_body::RequestMemory,
    response::{ResponseMetadata, VLLM_VERSION},
    sleep::{InFlightPolicy, MemoryPart, SleepLevel, SleepMode},
};

/// Maximum number of calls that put the engine to sleep or wake it up, whose clients may have disconnected; further ones wait.
const MAX_TRANSITIONS: usize = 64;

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
    /// Permits of the calls that put the engine to sleep or wake it up.
    pub(crate) transitions: Arc<Semaphore>,
    /// Why the engine can no longer serve.
    failure: watch::Sender<Option<MemoryError>>,
    /// Simulated device memory.
    allocation: Mutex<Option<Allocation>>,
    prefix_cache: Mutex<PrefixCache>,
    response_count: AtomicU64,
    /// Start time in Unix seconds.
    pub(crate) started_at: i64,
}

impl Simulator {
    /// Returns an idle engine with an empty prefix cache and this device memory.
    pub(crate) fn new(config: Config, request_memory: RequestMemory, allocation: Option<Allocation>) -> Arc<Self> {
        Arc::new(Self {
            batch: Batch::new(config.max_num_seqs),
            metrics: Metrics::new(),
            request_memory,
            sleep_mode: SleepMode::new(),
            transitions: Arc::new(Semaphore::new(MAX_TRANSITIONS)),
            failure: watch::Sender::new(None),
            allocation: Mutex::new(allocation),
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

    /// Puts the engine to sleep, which fails the engine if the host has too little memory.
    pub(crate) async fn fall_asleep(&self, level: SleepLevel, policy: InFlightPolicy) {
        let release = || {
            if level > SleepLevel::Pause {
                self.clear_prefix_cache();
            }
            self.change_memory(|allocation| allocation.release(level))
        };
        let result = self.sleep_mode.fall_asleep(level, policy, release).await;
        self.record_failure(result);
    }

    /// Wakes the engine up, which fails the engine if a device has too little memory.
    pub(crate) async fn wake_up(&self, parts: Option<&[MemoryPart]>) {
        let restore = async |parts: &[MemoryPart]| {
            self.change_memory(|allocation| allocation.restore(parts))?;
            if parts.contains(&MemoryPart::Weights) {
                tokio::time::sleep(self.config.wake_time).await;
            }
            Ok(())
        };
        let result = self.sleep_mode.wake_up(parts, restore).await;
        self.record_failure(result);
    }

    /// Changes the memory of an engine that releases it while it sleeps.
    fn change_memory(&self, change: impl FnOnce(&Allocation) -> Result<(), MemoryError>) -> Result<(), MemoryError> {
        let allocation = self.allocation.lock().unwrap_or_else(PoisonError::into_inner);
        allocation.as_ref().filter(|_| self.config.enable_sleep_mode).map_or(Ok(()), change)
    }

    /// Frees the memory, as the end of the process does, although requests may still refer to the engine.
    pub(crate) fn free_memory(&self) {
        self.allocation.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn record_failure(&self, result: Result<(), MemoryError>) {
        if let Err(error) = result {
            self.failure.send_replace(Some(error));
        }
    }

    /// Whether the engine has failed and no longer serves.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// Returns why the engine has failed.
    pub(crate) fn failure(&self) -> Option<MemoryError> {
        self.failure.borrow().clone()
    }

    /// Waits until the engine fails.
    pub(crate) async fn failed(&self) {
        // It fails only without a sender, but `self` is one.
        let _ = self.failure.subscribe().wait_for(Option::is_some).await;
    }

    /// Removes all prompts from the prefix cache.
    fn clear_prefix_cache(&self) {
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
