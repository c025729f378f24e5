//! One request's way through the engine: queue, prefill, decode, end.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    answer::{Finish, Head, Usage},
    batch::Seat,
    content::Words,
    failure::Failure,
    prompt,
    request::{Call, Request},
    simulator::Simulator,
    stop::{StopStrings, Watched},
};

/// A request being answered. Dropping it at any point frees its place.
pub(crate) struct Generation {
    engine: Arc<Simulator>,
    prompt: Vec<u32>,
    words: Words,
    stop: StopStrings,
    limit: usize,
    min_tokens: usize,
    ignore_eos: bool,
    produced: usize,
    times: Times,
    seat: Option<Seat>,
    finished: bool,
}

/// When what happened.
struct Times {
    arrived: Instant,
    seated: Instant,
    first_token: Instant,
    last_token: Instant,
}

/// The text of one step, and why it was the last one.
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) finish: Option<Finish>,
}

impl Generation {
    /// Checks `request`; nothing is queued before the first [`Generation::next`].
    ///
    /// # Errors
    /// What vLLM would answer instead of generating.
    pub(crate) fn new(engine: Arc<Simulator>, mut request: Request, call: Call, head: &Head) -> Result<Self, Failure> {
        let prompt = prompt::tokens_of(&request, call)?;
        let limit = engine.check(&request, prompt.len())?;
        let now = Instant::now();
        Ok(Self {
            words: Words::new(engine.config.seed, &head.model, &prompt),
            stop: StopStrings::new(request.stop_strings()),
            limit,
            min_tokens: request.min_tokens,
            ignore_eos: request.ignore_eos,
            produced: 0,
            times: Times { arrived: now, seated: now, first_token: now, last_token: now },
            seat: None,
            finished: false,
            prompt,
            engine,
        })
    }

    /// Tokens so far.
    pub(crate) fn usage(&self) -> Usage {
        Usage::new(self.prompt.len(), self.produced)
    }

    /// The next token's text, when its time has come; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Piece> {
        if self.finished {
            return None;
        }
        match self.produced {
            0 => self.prefill().await,
            _ => self.decode().await,
        }
        self.produced += 1;
        let word = self.words.next();
        let piece = self.piece(&word);
        self.observe_token();
        if let Some(finish) = &piece.finish {
            self.finish(finish.reason);
        }
        Some(piece)
    }

    async fn prefill(&mut self) {
        let engine = Arc::clone(&self.engine);
        self.seat = Some(engine.batch.seat(self.prompt.len()).await);
        self.times.seated = Instant::now();
        let lane = engine.batch.prefill().await;
        let cached = engine.cached_tokens(&self.prompt);
        let timing = &engine.config.timing;
        wait(timing.prefill(self.prompt.len() - cached, engine.config.tensor_parallel)).await;
        engine.remember(&self.prompt);
        drop(lane);
        engine.metrics.prefilled(self.prompt.len(), cached);
        wait(timing.decode(engine.batch.running(), engine.config.tensor_parallel)).await;
    }

    async fn decode(&mut self) {
        let step = self.engine.config.timing.decode(self.engine.batch.running(), self.engine.config.tensor_parallel);
        match step.is_zero() {
            // One token per turn even at full speed, so that streams interleave.
            true => tokio::task::yield_now().await,
            false => sleep_until(self.times.last_token + step).await,
        }
    }

    fn piece(&mut self, word: &str) -> Piece {
        match self.stop.push(word) {
            Watched::Text(text) => self.unless_ended(text),
            Watched::Stopped { text, by } => Piece { text, finish: Some(Finish { reason: "stop", stop: Some(by) }) },
        }
    }

    /// `text`, as the last one if the answer's length or the text's own end is reached.
    fn unless_ended(&mut self, mut text: String) -> Piece {
        let ended = self.words.at_end() && !self.ignore_eos && self.produced >= self.min_tokens;
        let reason = match (self.produced >= self.limit, ended) {
            (_, true) => "stop",
            (true, false) => "length",
            (false, false) => return Piece { text, finish: None },
        };
        text.push_str(&self.stop.rest());
        Piece { text, finish: Some(Finish { reason, stop: None }) }
    }

    fn observe_token(&mut self) {
        let now = Instant::now();
        let metrics = &self.engine.metrics;
        if self.produced == 1 {
            self.times.first_token = now;
            metrics.observe("vllm:time_to_first_token_seconds", (now - self.times.arrived).as_secs_f64());
        } else {
            metrics.observe("vllm:inter_token_latency_seconds", (now - self.times.last_token).as_secs_f64());
        }
        metrics.generated();
        metrics.observe("vllm:iteration_tokens_total", self.engine.batch.running() as f64);
        self.times.last_token = now;
        if let Some(seat) = &mut self.seat {
            seat.grow();
        }
    }

    fn finish(&mut self, reason: &'static str) {
        self.finished = true;
        self.seat = None;
        let Times { arrived, seated, first_token, last_token } = self.times;
        let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
        let per_token = seconds(first_token, last_token) / self.produced.saturating_sub(1).max(1) as f64;
        let metrics = &self.engine.metrics;
        metrics.succeeded(reason);
        for (name, value) in [
            ("vllm:request_prompt_tokens", self.prompt.len() as f64),
            ("vllm:request_generation_tokens", self.produced as f64),
            ("vllm:request_max_num_generation_tokens", self.produced as f64),
            ("vllm:request_params_n", 1.0),
            ("vllm:request_params_max_tokens", self.limit as f64),
            ("vllm:request_time_per_output_token_seconds", per_token),
            ("vllm:e2e_request_latency_seconds", seconds(arrived, last_token)),
            ("vllm:request_queue_time_seconds", seconds(arrived, seated)),
            ("vllm:request_inference_time_seconds", seconds(seated, last_token)),
            ("vllm:request_prefill_time_seconds", seconds(seated, first_token)),
            ("vllm:request_decode_time_seconds", seconds(first_token, last_token)),
            ("vllm:request_num_preemptions", 0.0),
        ] {
            metrics.observe(name, value);
        }
    }
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
