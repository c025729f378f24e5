//! Prometheus metrics of the picker, with the names that all endpoint pickers use.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use http::StatusCode;
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::candidate::Candidate;

/// Maximum number of models with their own series. Clients choose model names, so further models are aggregated.
const MAX_MODELS: usize = 1_000;
const OTHER_MODELS: &str = "other";

/// Maximum length of a model name in characters; longer names are truncated.
const MAX_MODEL_NAME_CHARS: usize = 253;

type MetricLabels = Vec<(&'static str, String)>;
type FloatGauge = Gauge<f64, AtomicU64>;

/// Metrics of one picker.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<MetricLabels, Counter>,
    errors: Family<MetricLabels, Counter>,
    running_requests: Family<MetricLabels, Gauge>,
    request_sizes: Family<MetricLabels, Histogram>,
    scheduling_durations: Histogram,
    hit_ratios: Histogram,
    hit_bytes: Histogram,
    pool: PoolGauges,
    models: Mutex<BTreeSet<String>>,
}

/// Gauges that are updated each time the metrics are rendered.
#[derive(Debug, Default)]
struct PoolGauges {
    ready_endpoints: Family<MetricLabels, Gauge>,
    kv_usage: Family<MetricLabels, FloatGauge>,
    queue: Family<MetricLabels, FloatGauge>,
    queue_per_pod: Family<MetricLabels, Gauge>,
}

/// Guard that counts a request as running until the guard is dropped.
#[derive(Debug)]
pub(super) struct RunningRequest(Gauge);

// === impl Metrics ===

impl Metrics {
    /// Returns metrics without records.
    pub(super) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            errors: Family::default(),
            running_requests: Family::default(),
            // Buckets from 64 bytes to 64 MiB.
            request_sizes: Family::new_with_constructor(|| Histogram::new((6..=26).map(|power| f64::from(1 << power)))),
            scheduling_durations: Histogram::new(
                [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000].map(|tenths| f64::from(tenths) * 1e-4),
            ),
            hit_ratios: Histogram::new((0..=10).map(|tenths| f64::from(tenths) / 10.0)),
            hit_bytes: Histogram::new([0.0].into_iter().chain((4..=16).map(|power| f64::from(1 << power)))),
            pool: PoolGauges::default(),
            models: Mutex::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("inference_objective_request", "Requests by model and target model", self.requests.clone());
        registry.register(
            "inference_objective_request_error",
            "Requests rejected by the picker, by error code",
            self.errors.clone(),
        );
        registry.register(
            "inference_objective_running_requests",
            "Requests in flight by model",
            self.running_requests.clone(),
        );
        registry.register(
            "inference_objective_request_sizes",
            "Size of request bodies in bytes",
            self.request_sizes.clone(),
        );
        registry.register(
            "inference_extension_scheduler_e2e_duration_seconds",
            "Duration of scheduling decisions in seconds",
            self.scheduling_durations.clone(),
        );
        registry.register(
            "inference_extension_prefix_indexer_hit_ratio",
            "Fraction of the prompt that the selected endpoint has cached",
            self.hit_ratios.clone(),
        );
        registry.register(
            "inference_extension_prefix_indexer_hit_bytes",
            "Number of bytes of the prompt that the selected endpoint has cached",
            self.hit_bytes.clone(),
        );
        let pool = &self.pool;
        registry.register("inference_pool_ready_pods", "Number of ready endpoints", pool.ready_endpoints.clone());
        registry.register(
            "inference_pool_average_kv_cache_utilization",
            "Mean fraction of the KV cache in use, over endpoints with metrics",
            pool.kv_usage.clone(),
        );
        registry.register(
            "inference_pool_average_queue_size",
            "Mean number of queued requests, over endpoints with metrics",
            pool.queue.clone(),
        );
        registry.register(
            "inference_pool_per_pod_queue_size",
            "Number of queued requests of the endpoint at the last scrape",
            pool.queue_per_pod.clone(),
        );
    }

    /// Counts a scheduled request. It counts as running until the returned guard is dropped.
    pub(super) fn record_request(&self, model: &str, target: &str, bytes: usize) -> RunningRequest {
        let models = self.model_labels(model, target);
        let running = self.running_requests.get_or_create(&vec![models[0].clone()]).clone();
        self.requests.get_or_create(&models).inc();
        self.request_sizes.get_or_create(&models).observe(bytes as f64);
        running.inc();
        RunningRequest(running)
    }

    /// Counts a request that the picker rejects with an HTTP status.
    pub(super) fn record_rejection(&self, model: &str, target: &str, status: StatusCode) {
        let code = match status.as_u16() {
            503 => "ServiceUnavailable",
            429 => "InferencePoolResourceExhausted",
            500.. => "Internal",
            _ => "BadRequest",
        };
        let mut labels = self.model_labels(model, target);
        self.requests.get_or_create(&labels).inc();
        labels.push(("error_code", code.to_owned()));
        self.errors.get_or_create(&labels).inc();
    }

    /// Records a scheduling decision: its duration, and the cached bytes of the prompt.
    pub(super) fn record_decision(&self, duration: Duration, cached_bytes: usize, prompt_bytes: usize) {
        self.scheduling_durations.observe(duration.as_secs_f64());
        if prompt_bytes > 0 {
            self.hit_ratios.observe(cached_bytes as f64 / prompt_bytes as f64);
            self.hit_bytes.observe(cached_bytes as f64);
        }
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub(super) fn render(&self, pool: &str, candidates: &[Candidate<'_>]) -> String {
        self.pool.update(pool, candidates);
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("failed to render metrics");
        }
        text
    }

    fn model_labels(&self, model: &str, target: &str) -> MetricLabels {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let names = [("model_name", model), ("target_model_name", target)];
        names.map(|(label, name)| (label, label_value(&mut models, name))).into()
    }
}

/// Returns the label value for a model name: truncated, and [`OTHER_MODELS`] beyond the maximum number of models.
fn label_value(models: &mut BTreeSet<String>, name: &str) -> String {
    let name: String = name.chars().take(MAX_MODEL_NAME_CHARS).collect();
    if models.len() >= MAX_MODELS && !models.contains(&name) {
        return OTHER_MODELS.to_owned();
    }
    models.insert(name.clone());
    name
}

// === impl PoolGauges ===

impl PoolGauges {
    fn update(&self, pool: &str, candidates: &[Candidate<'_>]) {
        let pool_labels = || vec![("name", pool.to_owned())];
        let mean = |value: &dyn Fn(&Candidate) -> Option<f64>| {
            let values: Vec<f64> = candidates.iter().filter_map(value).collect();
            if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
        };
        let waiting = |candidate: &Candidate| candidate.metrics.as_ref()?.metrics.waiting;
        let ready = candidates.iter().filter(|candidate| !candidate.is_unreachable).count();
        self.ready_endpoints.get_or_create(&pool_labels()).set(i64::try_from(ready).unwrap_or(i64::MAX));
        self.kv_usage
            .get_or_create(&pool_labels())
            .set(mean(&|candidate| candidate.metrics.as_ref()?.metrics.kv_cache_usage));
        self.queue.get_or_create(&pool_labels()).set(mean(&waiting));
        // Remove the series of deleted Pods.
        self.queue_per_pod.clear();
        for candidate in candidates {
            let shares_pod = candidates.iter().filter(|other| other.endpoint.pod == candidate.endpoint.pod).count() > 1;
            let pod = &candidate.endpoint.pod;
            let pod = if shares_pod { format!("{pod}:{}", candidate.endpoint.address.port()) } else { pod.clone() };
            let mut labels = pool_labels();
            labels.push(("model_server_pod", pod));
            if let Some(waiting) = waiting(candidate) {
                self.queue_per_pod.get_or_create(&labels).set(waiting as i64);
            }
        }
    }
}

// === impl RunningRequest ===

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{candidate::tests::candidate, engine_metrics::EngineMetrics};

    #[test]
    fn renders_metrics() {
        let metrics = Metrics::new();
        let running = metrics.record_request("chat", "chat-v2", 1_000);
        metrics.record_rejection("chat", "chat", StatusCode::SERVICE_UNAVAILABLE);
        metrics.record_decision(Duration::from_micros(300), 64, 256);
        let engine_metrics =
            EngineMetrics { waiting: Some(3.0), kv_cache_usage: Some(0.5), ..EngineMetrics::default() };
        let mut candidates = [candidate(1, Some((engine_metrics, 0))), candidate(2, None)];
        candidates[1].is_unreachable = true;
        let text = metrics.render("pool", &candidates);
        for line in [
            r#"inference_objective_request_total{model_name="chat",target_model_name="chat-v2"} 1"#,
            r#"inference_objective_request_error_total{model_name="chat",target_model_name="chat",error_code="ServiceUnavailable"} 1"#,
            r#"inference_objective_running_requests{model_name="chat"} 1"#,
            r#"inference_objective_request_sizes_bucket{le="1024.0",model_name="chat",target_model_name="chat-v2"} 1"#,
            r#"inference_extension_scheduler_e2e_duration_seconds_bucket{le="0.0005"} 1"#,
            r#"inference_extension_prefix_indexer_hit_ratio_sum 0.25"#,
            r#"inference_pool_ready_pods{name="pool"} 1"#,
            r#"inference_pool_average_kv_cache_utilization{name="pool"} 0.5"#,
            r#"inference_pool_average_queue_size{name="pool"} 3.0"#,
            r#"inference_pool_per_pod_queue_size{name="pool",model_server_pod="pod-1"} 3"#,
        ] {
            assert!(text.lines().any(|rendered| rendered == line), "{line}\n{text}");
        }
        drop(running);
        assert!(metrics.render("pool", &[]).contains(r#"running_requests{model_name="chat"} 0"#));
        assert!(!metrics.render("pool", &[]).contains("pod-1"), "series of deleted Pods are removed");
    }

    #[test]
    fn number_of_models_is_bounded() {
        let metrics = Metrics::new();
        for number in 0..3 * MAX_MODELS {
            drop(metrics.record_request(&format!("model-{number}"), &"x".repeat(9_000), 1));
        }
        let text = metrics.render("pool", &[]);
        let series = text.lines().filter(|line| line.starts_with("inference_objective_request_total")).count();
        assert!((MAX_MODELS - 1..=MAX_MODELS + 1).contains(&series), "{series}");
        assert!(text.contains(r#"model_name="other""#) && text.lines().all(|line| line.len() < 1_000));
    }
}
