//! Lifecycle of one request: queued, prefill, decode, finished.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    api_error::ApiError,
    batch::Sequence,
    prompt,
    request::{Endpoint, GenerationRequest},
    response::{Finish, ResponseMetadata, Usage},
    simulator::Simulator,
    sleep::{Aborted, Admission},
    stop_strings::{StopCheck, StopStrings},
    text_generator::TextGenerator,
};

/// Generation of one completion. Dropping the value frees its slot in the batch.
pub(crate) struct Generation {
    engine: Arc<Simulator>,
    prompt: Vec<u32>,
    text: TextGenerator,
    stop: StopStrings,
    max_tokens: usize,
    min_tokens: usize,
    ignore_eos: bool,
    generated_tokens: usize,
    timestamps: Timestamps,
    /// Present from the first step until the request finishes.
    admission: Option<Admission>,
    sequence: Option<Sequence>,
    is_finished: bool,
}

/// Times at which the request changed its state.
struct Timestamps {
    arrived: Instant,
    scheduled: Instant,
    first_token: Instant,
    last_token: Instant,
}

/// Text of one decode step, and the finish reason if it is the last step.
pub(crate) struct TokenOutput {
    /// Text to send, possibly empty.
    pub(crate) text: String,
    /// Finish reason; present in the last output.
    pub(crate) finish: Option<Finish>,
}

// === impl Generation ===

impl Generation {
    /// Validates `request`. The first call of [`Generation::next_output`] queues the request.
    ///
    /// # Errors
    /// The error that vLLM responds with.
    pub(crate) fn new(
        engine: Arc<Simulator>,
        mut request: GenerationRequest,
        endpoint: Endpoint,
        metadata: &ResponseMetadata,
    ) -> Result<Self, ApiError> {
        let prompt = prompt::prompt_tokens(&request, endpoint)?;
        let max_tokens = engine.validate(&request, prompt.len())?;
        let now = Instant::now();
        Ok(Self {
            text: TextGenerator::new(engine.config.seed, &metadata.model, &prompt),
            stop: StopStrings::new(request.take_stop_strings()),
            max_tokens,
            min_tokens: request.min_tokens,
            ignore_eos: request.ignore_eos,
            generated_tokens: 0,
            timestamps: Timestamps { arrived: now, scheduled: now, first_token: now, last_token: now },
            admission: None,
            sequence: None,
            is_finished: false,
            prompt,
            engine,
        })
    }

    /// Receives the KV cache of the prompt, which another engine has computed.
    pub(crate) fn receive_prompt(&self) {
        self.engine.cache_prompt(&self.prompt);
    }

    /// Returns the token counts so far.
    pub(crate) fn usage(&self) -> Usage {
        Usage::new(self.prompt.len(), self.generated_tokens)
    }

    /// Waits for the next decode step and returns its text; `None` after the last one.
    pub(crate) async fn next_output(&mut self) -> Option<TokenOutput> {
        if self.is_finished {
            return None;
        }
        if let Err(Aborted) = self.step().await {
            self.finish("abort");
            let finish = Some(Finish { reason: "abort", stop: None });
            return Some(TokenOutput { text: self.stop.take_pending(), finish });
        }
        self.generated_tokens += 1;
        let token = self.text.next_token();
        let output = self.process_token(&token);
        self.observe_token();
        if let Some(finish) = &output.finish {
            self.finish(finish.reason);
        }
        Some(output)
    }

    /// Waits for the end of the next prefill or decode step, also while the engine sleeps.
    async fn step(&mut self) -> Result<(), Aborted> {
        let mut admission = match self.admission.take() {
            Some(admission) => admission,
            None => self.engine.sleep_mode.enter().await,
        };
        let step = async {
            match self.generated_tokens {
                0 => self.prefill().await,
                _ => self.decode().await,
            }
        };
        tokio::select! {
            biased;
            aborted = admission.aborted() => return Err(aborted),
            () = step => {}
        }
        admission.runs().await?;
        self.admission = Some(admission);
        Ok(())
    }

    async fn prefill(&mut self) {
        let engine = Arc::clone(&self.engine);
        self.sequence = Some(engine.batch.admit(self.prompt.len()).await);
        self.timestamps.scheduled = Instant::now();
        let prefill_guard = engine.batch.lock_prefill().await;
        let cached_tokens = engine.cached_tokens(&self.prompt);
        let timing = &engine.config.timing;
        sleep_unless_zero(
            timing.prefill_duration(self.prompt.len() - cached_tokens, engine.config.tensor_parallel_size),
        )
        .await;
        engine.cache_prompt(&self.prompt);
        drop(prefill_guard);
        engine.metrics.record_prefill(self.prompt.len(), cached_tokens);
        sleep_unless_zero(timing.decode_duration(engine.batch.running(), engine.config.tensor_parallel_size)).await;
    }

    async fn decode(&mut self) {
        let step = self
            .engine
            .config
            .timing
            .decode_duration(self.engine.batch.running(), self.engine.config.tensor_parallel_size);
        match step.is_zero() {
            // Yield after each token even without delays, so that streams interleave.
            true => tokio::task::yield_now().await,
            false => sleep_until(self.timestamps.last_token + step).await,
        }
    }

    fn process_token(&mut self, token: &str) -> TokenOutput {
        match self.stop.push(token) {
            StopCheck::Text(text) => self.finish_or_continue(text),
            StopCheck::Stopped { text, stop_string } => {
                TokenOutput { text, finish: Some(Finish { reason: "stop", stop: Some(stop_string) }) }
            }
        }
    }

    /// Returns the output for `text`, with a finish reason if the token limit or the end of the text is reached.
    fn finish_or_continue(&mut self, mut text: String) -> TokenOutput {
        let is_complete = self.text.is_finished() && !self.ignore_eos && self.generated_tokens >= self.min_tokens;
        let reason = match (self.generated_tokens >= self.max_tokens, is_complete) {
            (_, true) => "stop",
            (true, false) => "length",
            (false, false) => return TokenOutput { text, finish: None },
        };
        text.push_str(&self.stop.take_pending());
        TokenOutput { text, finish: Some(Finish { reason, stop: None }) }
    }

    fn observe_token(&mut self) {
        let now = Instant::now();
        let metrics = &self.engine.metrics;
        if self.generated_tokens == 1 {
            self.timestamps.first_token = now;
            metrics.observe("vllm:time_to_first_token_seconds", (now - self.timestamps.arrived).as_secs_f64());
        } else {
            metrics.observe("vllm:inter_token_latency_seconds", (now - self.timestamps.last_token).as_secs_f64());
        }
        metrics.record_token();
        metrics.observe("vllm:iteration_tokens_total", self.engine.batch.running() as f64);
        self.timestamps.last_token = now;
        if let Some(sequence) = &mut self.sequence {
            sequence.append_token();
        }
    }

    fn finish(&mut self, reason: &'static str) {
        self.is_finished = true;
        self.sequence = None;
        self.admission = None;
        let Timestamps { arrived, scheduled, first_token, last_token } = self.timestamps;
        let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
        let seconds_per_token =
            seconds(first_token, last_token) / self.generated_tokens.saturating_sub(1).max(1) as f64;
        let metrics = &self.engine.metrics;
        metrics.record_finished(reason);
        for (name, value) in [
            ("vllm:request_prompt_tokens", self.prompt.len() as f64),
            ("vllm:request_generation_tokens", self.generated_tokens as f64),
            ("vllm:request_max_num_generation_tokens", self.generated_tokens as f64),
            ("vllm:request_params_n", 1.0),
            ("vllm:request_params_max_tokens", self.max_tokens as f64),
            ("vllm:request_time_per_output_token_seconds", seconds_per_token),
            ("vllm:e2e_request_latency_seconds", seconds(arrived, last_token)),
            ("vllm:request_queue_time_seconds", seconds(arrived, scheduled)),
            ("vllm:request_inference_time_seconds", seconds(scheduled, last_token)),
            ("vllm:request_prefill_time_seconds", seconds(scheduled, first_token)),
            ("vllm:request_decode_time_seconds", seconds(first_token, last_token)),
            ("vllm:request_num_preemptions", 0.0),
        ] {
            metrics.observe(name, value);
        }
    }
}

async fn sleep_unless_zero(duration: Duration) {
    if !duration.is_zero() {
        sleep(duration).await;
    }
}
