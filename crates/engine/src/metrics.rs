//! Records counters and histograms with vLLM's metric names.

pub(crate) mod families;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use families::{FAMILIES, Family};
use tokio::time::Instant;

/// Counters and histograms since the start.
pub(crate) struct Metrics(Mutex<MetricValues>);

/// Recorded values; families without a record are absent.
#[derive(Default)]
pub(crate) struct MetricValues {
    /// Sleep-mode operations by name; vLLM has the series of an operation from its first call.
    pub(crate) sleep_operations: BTreeMap<&'static str, SleepOperations>,
    /// Counters by metric family and value of its additional label (`""` if it has none).
    pub(crate) counters: BTreeMap<(&'static str, &'static str), f64>,
    /// Histograms by metric family.
    pub(crate) histograms: BTreeMap<&'static str, Histogram>,
}

/// Observations of a histogram.
#[derive(Default, Clone)]
pub(crate) struct Histogram {
    /// Observations per bucket, not cumulative; the last one is `+Inf`.
    pub(crate) buckets: Vec<u64>,
    /// Number of observations.
    pub(crate) count: u64,
    /// Sum of the observed values.
    pub(crate) sum: f64,
}

/// An operation of sleep mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SleepOperation {
    /// `/sleep`.
    Sleep,
    /// `/wake_up`.
    Wake,
}

/// Calls of a sleep-mode operation.
pub(crate) struct SleepOperations {
    /// Number of calls that have not ended.
    pub(crate) in_flight: usize,
    /// Durations in seconds.
    pub(crate) durations: Histogram,
    /// Unix seconds of the first call.
    pub(crate) created: i64,
}

/// Records the duration of a sleep-mode operation when it is dropped.
pub(crate) struct SleepOperationGuard<'a> {
    metrics: &'a Metrics,
    name: &'static str,
    started: Instant,
}

/// Bucket bounds of the durations of sleep-mode operations in seconds.
pub(crate) const SLEEP_OPERATION_BUCKETS: &[f64] = &[0.01, 0.1, 1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

// === impl Metrics ===

impl Metrics {
    /// Returns metrics without records.
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Returns the recorded values. Requests wait to record values until the guard is dropped.
    pub(crate) fn values(&self) -> MutexGuard<'_, MetricValues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the prefill of `prompt` tokens, of which `cached` came from the prefix cache.
    pub(crate) fn record_prefill(&self, prompt: usize, cached: usize) {
        let (total, hits) = (prompt as f64, cached as f64);
        for (name, label, value) in [
            ("vllm:prompt_tokens_total", "", total),
            ("vllm:prefix_cache_queries_total", "", total),
            ("vllm:prefix_cache_hits_total", "", hits),
            ("vllm:prompt_tokens_cached_total", "", hits),
            ("vllm:prompt_tokens_cached_by_source_total", "device", hits),
            ("vllm:prompt_tokens_by_source_total", "local_cache_hit", hits),
            ("vllm:prompt_tokens_by_source_total", "local_compute", total - hits),
        ] {
            self.add(name, label, value);
        }
        self.observe("vllm:request_prefill_kv_computed_tokens", total - hits);
    }

    /// Records one generated token.
    pub(crate) fn record_token(&self) {
        self.add("vllm:generation_tokens_total", "", 1.0);
    }

    /// Records a request that finished with `reason`.
    pub(crate) fn record_finished(&self, reason: &'static str) {
        self.add("vllm:request_success_total", reason, 1.0);
    }

    /// Adds an observation to a histogram; unknown names are ignored.
    pub(crate) fn observe(&self, name: &'static str, value: f64) {
        let Some(bounds) = FAMILIES.iter().find(|family| family.name == name).and_then(Family::bounds) else { return };
        self.values().histograms.entry(name).or_default().observe(bounds, value);
    }

    /// Records the start of a sleep-mode operation.
    pub(crate) fn start_sleep_operation(&self, operation: SleepOperation) -> SleepOperationGuard<'_> {
        let name = operation.name();
        let new = || SleepOperations {
            in_flight: 0,
            durations: Histogram::default(),
            created: jiff::Timestamp::now().as_second(),
        };
        self.values().sleep_operations.entry(name).or_insert_with(new).in_flight += 1;
        SleepOperationGuard { metrics: self, name, started: Instant::now() }
    }

    fn add(&self, name: &'static str, label: &'static str, value: f64) {
        let mut values = self.values();
        *values.counters.entry((name, label)).or_default() += value;
    }
}

// === impl Histogram ===

impl Histogram {
    /// Adds an observation. `bounds` are the upper bounds of the buckets without `+Inf`.
    fn observe(&mut self, bounds: &[f64], value: f64) {
        self.buckets.resize(bounds.len() + 1, 0);
        let bucket = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += value;
    }
}

// === impl SleepOperation ===

impl SleepOperation {
    /// Returns the value of the label `operation`.
    fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Wake => "wake",
        }
    }
}

// === impl SleepOperationGuard ===

impl Drop for SleepOperationGuard<'_> {
    fn drop(&mut self) {
        if let Some(operations) = self.metrics.values().sleep_operations.get_mut(self.name) {
            operations.in_flight -= 1;
            operations.durations.observe(SLEEP_OPERATION_BUCKETS, self.started.elapsed().as_secs_f64());
        }
    }
}
