//! An engine with continuous batching and chunked prefill, as vLLM schedules: in each step every running request computes one
//! token, or the next part of its prompt within the token budget of the step; waiting requests start in order of arrival while
//! budget, KV blocks and the limit of running requests allow. The durations are those of a model with 8 billion parameters in
//! bf16 on an accelerator with 1.55 TB/s, 156 TFLOP/s (half of its peak) and 40 GB.

use std::{collections::VecDeque, time::Duration};

use crate::{
    kv_cache::{BLOCK_TOKENS, BlockTable, KvCache},
    trace::{Request, adapter_name},
};

/// Maximum number of tokens per step (default of vLLM's API server).
const STEP_TOKENS: usize = 2_048;

/// Maximum number of running requests (default of vLLM).
const MAX_RUNNING: usize = 256;

/// KV blocks: 18 GB that the weights leave, of 128 KiB per token.
pub(crate) const KV_BLOCKS: usize = 8_750;

/// Slots for LoRA adapters.
pub(crate) const ADAPTER_SLOTS: usize = 4;

/// Work of a step beside the model: scheduling, sampling, sending.
const STEP_OVERHEAD: f64 = 0.002;

/// Seconds to read the weights: the minimum of a step.
pub(crate) const WEIGHTS: f64 = 0.010_3;

/// Seconds of computation per token of a step.
pub(crate) const TOKEN: f64 = 0.000_102;

/// Seconds to read the keys and values of one token of the context of a decoded token.
const CONTEXT_TOKEN: f64 = 0.000_000_084;

/// Length of a context at which attention to it takes as long as the rest of the computation of a prompt's token.
const ATTENTION_TOKENS: f64 = 30_000.0;

/// Seconds to load a LoRA adapter of rank 16, during which the engine computes nothing.
const ADAPTER_LOAD: f64 = 0.1;

/// One engine.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Duration of a step relative to that of a normal engine.
    slowdown: f64,
    cache: KvCache,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    /// Loaded adapters, the least recently used first.
    adapters: Vec<usize>,
    is_stepping: bool,
    /// What the metrics page shows, as of the last step.
    gauges: Gauges,
}

/// A request in the engine.
#[derive(Debug)]
struct Sequence {
    request: usize,
    adapter: Option<usize>,
    prompt_tokens: usize,
    output_tokens: usize,
    /// Number of tokens whose keys and values are computed.
    computed: usize,
    /// Number of output tokens.
    generated: usize,
    /// Number of tokens that the current step computes.
    scheduled: usize,
    /// Number of allocated blocks.
    blocks: usize,
    table: BlockTable,
}

/// Metrics of an engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauges {
    pub(crate) waiting: usize,
    pub(crate) running: usize,
    pub(crate) kv_cache_usage: f64,
    pub(crate) running_adapters: Vec<usize>,
    pub(crate) waiting_adapters: Vec<usize>,
}

/// What a step produced for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    FirstToken(usize),
    Finished(usize),
}

// === impl Engine ===

impl Engine {
    pub(crate) fn new(slowdown: f64) -> Self {
        let cache = KvCache::new(KV_BLOCKS);
        let (waiting, running, adapters) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { slowdown, cache, waiting, running, adapters, is_stepping: false, gauges: Gauges::default() }
    }

    /// Returns the number of KV blocks, which engines expose with their metrics.
    pub(crate) fn kv_blocks(&self) -> usize {
        self.cache.capacity()
    }

    pub(crate) fn gauges(&self) -> Gauges {
        self.gauges.clone()
    }

    pub(crate) fn enqueue(&mut self, index: usize, request: &Request) {
        self.waiting.push_back(Sequence {
            request: index,
            adapter: request.adapter,
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            computed: 0,
            generated: 0,
            scheduled: 0,
            blocks: 0,
            table: BlockTable::default(),
        });
    }

    /// Starts a step unless one is in progress or nothing is to be done. Returns its duration.
    pub(crate) fn start_step(&mut self, requests: &[Request]) -> Option<Duration> {
        if self.is_stepping {
            return None;
        }
        let mut budget = STEP_TOKENS;
        let has_preempted = self.schedule_running(requests, &mut budget);
        let loads = if has_preempted { 0 } else { self.admit_waiting(requests, &mut budget) };
        if self.running.is_empty() {
            return None;
        }
        self.is_stepping = true;
        let (mut tokens, mut attention) = (0, 0.0);
        for sequence in &self.running {
            tokens += sequence.scheduled;
            let context = sequence.computed as f64;
            attention += match sequence.scheduled {
                1 => context * CONTEXT_TOKEN,
                prompt => prompt as f64 * TOKEN * (context + prompt as f64 / 2.0) / ATTENTION_TOKENS,
            };
        }
        let compute = WEIGHTS.max(tokens as f64 * TOKEN);
        let seconds = STEP_OVERHEAD + compute + attention + loads as f64 * ADAPTER_LOAD;
        Some(Duration::from_secs_f64(seconds * self.slowdown))
    }

    /// Ends the step that is in progress.
    pub(crate) fn finish_step(&mut self) -> Vec<Output> {
        self.is_stepping = false;
        let mut outputs = Vec::new();
        for mut sequence in std::mem::take(&mut self.running) {
            sequence.computed += std::mem::take(&mut sequence.scheduled);
            if sequence.computed >= sequence.target_tokens() {
                sequence.generated += 1;
                if sequence.generated == 1 {
                    outputs.push(Output::FirstToken(sequence.request));
                }
            }
            if sequence.generated < sequence.output_tokens {
                self.running.push(sequence);
            } else {
                outputs.push(Output::Finished(sequence.request));
                self.cache.release(sequence.table);
            }
        }
        self.gauges = Gauges {
            waiting: self.waiting.len(),
            running: self.running.len(),
            kv_cache_usage: self.cache.usage(),
            running_adapters: distinct_adapters(&self.running),
            waiting_adapters: distinct_adapters(&self.waiting),
        };
        outputs
    }

    /// Schedules the running requests. If blocks are missing, the most recent ones are preempted: they compute everything
    /// again later. Returns whether that happened.
    fn schedule_running(&mut self, requests: &[Request], budget: &mut usize) -> bool {
        let mut has_preempted = false;
        let mut index = 0;
        while index < self.running.len() {
            let tokens = self.running[index].remaining_tokens().min(*budget);
            if self.running[index].schedule(tokens, requests, &mut self.cache) {
                *budget -= tokens;
                index += 1;
                continue;
            }
            let Some(mut preempted) = self.running.pop() else { break };
            has_preempted = true;
            self.cache.release(std::mem::take(&mut preempted.table));
            (preempted.computed, preempted.blocks, preempted.scheduled) = (0, 0, 0);
            self.waiting.push_front(preempted);
        }
        has_preempted
    }

    /// Starts waiting requests. Returns the number of adapters that must be loaded.
    fn admit_waiting(&mut self, requests: &[Request], budget: &mut usize) -> usize {
        let (mut loads, mut skipped) = (0, VecDeque::new());
        while *budget > 0 && self.running.len() < MAX_RUNNING {
            let Some(mut sequence) = self.waiting.pop_front() else { break };
            if !self.has_slot(&sequence) {
                skipped.push_back(sequence);
                continue;
            }
            let chain = &requests[sequence.request].block_hashes;
            // The last token of the prompt is always computed.
            let usable = (sequence.target_tokens() - 1) / BLOCK_TOKENS;
            let cached = self.cache.cached_prefix(&chain[..usable.min(chain.len())]);
            let tokens = (sequence.target_tokens() - cached * BLOCK_TOKENS).min(*budget);
            let blocks = (cached * BLOCK_TOKENS + tokens).div_ceil(BLOCK_TOKENS) - cached;
            if !self.cache.allocate(&mut sequence.table, &chain[..cached], blocks) {
                self.waiting.push_front(sequence);
                break;
            }
            (sequence.computed, sequence.blocks) = (cached * BLOCK_TOKENS, cached + blocks);
            sequence.scheduled = tokens;
            sequence.complete_blocks(requests, &mut self.cache);
            *budget -= tokens;
            loads += usize::from(self.use_adapter(sequence.adapter));
            self.running.push(sequence);
        }
        while let Some(sequence) = skipped.pop_back() {
            self.waiting.push_front(sequence);
        }
        loads
    }

    /// Returns whether the adapter of the request is in use, or a slot is free for it.
    fn has_slot(&self, sequence: &Sequence) -> bool {
        let Some(adapter) = sequence.adapter else { return true };
        let used = distinct_adapters(&self.running);
        used.contains(&adapter) || used.len() < ADAPTER_SLOTS
    }

    /// Marks the adapter as most recently used. Returns whether it must be loaded.
    fn use_adapter(&mut self, adapter: Option<usize>) -> bool {
        let Some(adapter) = adapter else { return false };
        let position = self.adapters.iter().position(|loaded| *loaded == adapter);
        match position {
            Some(position) => drop(self.adapters.remove(position)),
            None if self.adapters.len() == ADAPTER_SLOTS => {
                let used = distinct_adapters(&self.running);
                let oldest = self.adapters.iter().position(|loaded| !used.contains(loaded)).unwrap_or(0);
                self.adapters.remove(oldest);
            }
            None => {}
        }
        self.adapters.push(adapter);
        position.is_none()
    }
}

fn distinct_adapters<'a>(sequences: impl IntoIterator<Item = &'a Sequence>) -> Vec<usize> {
    let mut adapters: Vec<usize> = sequences.into_iter().filter_map(|sequence| sequence.adapter).collect();
    adapters.sort_unstable();
    adapters.dedup();
    adapters
}

// === impl Sequence ===

impl Sequence {
    /// Returns the number of tokens to compute before the next output token.
    fn target_tokens(&self) -> usize {
        self.prompt_tokens + self.generated
    }

    fn remaining_tokens(&self) -> usize {
        self.target_tokens() - self.computed
    }

    /// Schedules `tokens`. Returns whether blocks are available for them.
    fn schedule(&mut self, tokens: usize, requests: &[Request], cache: &mut KvCache) -> bool {
        let blocks = (self.computed + tokens).div_ceil(BLOCK_TOKENS).saturating_sub(self.blocks);
        if blocks > 0 && !cache.allocate(&mut self.table, &[], blocks) {
            return false;
        }
        self.blocks += blocks;
        self.scheduled = tokens;
        self.complete_blocks(requests, cache);
        true
    }

    /// Adds the blocks that the scheduled tokens complete to the prefix cache.
    fn complete_blocks(&mut self, requests: &[Request], cache: &mut KvCache) {
        let chain = &requests[self.request].block_hashes;
        let complete = self.computed / BLOCK_TOKENS..(self.computed + self.scheduled) / BLOCK_TOKENS;
        for hash in chain.get(complete).unwrap_or_default() {
            cache.complete_block(&mut self.table, *hash);
        }
    }
}

// === impl Gauges ===

impl Gauges {
    /// Returns the metrics page of vLLM, as far as schedulers read it.
    pub(crate) fn page(&self) -> String {
        let names =
            |adapters: &[usize]| adapters.iter().map(|adapter| adapter_name(*adapter)).collect::<Vec<_>>().join(",");
        let Self { waiting, running, kv_cache_usage, .. } = self;
        let (running_adapters, waiting_adapters) = (names(&self.running_adapters), names(&self.waiting_adapters));
        format!(
            "vllm:num_requests_running{{engine=\"0\",model_name=\"base\"}} {running}\n\
             vllm:num_requests_waiting{{engine=\"0\",model_name=\"base\"}} {waiting}\n\
             vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"base\"}} {kv_cache_usage}\n\
             vllm:lora_requests_info{{max_lora=\"{ADAPTER_SLOTS}\",running_lora_adapters=\"{running_adapters}\",\
             waiting_lora_adapters=\"{waiting_adapters}\"}} 1\n"
        )
    }
}
