//! Records counters and histograms with vLLM's metric names.

pub(crate) mod families;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use families::{FAMILIES, Family};

/// Counters and histograms since the start.
pub(crate) struct Metrics(Mutex<MetricValues>);

/// Recorded values; families without a record are absent.
#[derive(Default)]
pub(crate) struct MetricValues {
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
        let mut values = self.values();
        let histogram = values.histograms.entry(name).or_default();
        histogram.buckets.resize(bounds.len() + 1, 0);
        let bucket = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        histogram.buckets[bucket] += 1;
        histogram.count += 1;
        histogram.sum += value;
    }

    fn add(&self, name: &'static str, label: &'static str, value: f64) {
        let mut values = self.values();
        *values.counters.entry((name, label)).or_default() += value;
    }
}
