//! Prometheus metrics of the scheduling core, with the names that all endpoint pickers use.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use cluster::NamespacedName;
use http::StatusCode;
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;

use crate::{endpoint::Endpoint, request_queue::QueuedFlow, snapshot::Pool, use_case::NONCRITICAL};

/// Maximum number of models with their own series. Clients choose model names, so further models are aggregated.
const MAX_MODELS: usize = 1_000;
const OTHER_MODELS: &str = "other";

/// Buckets of the durations of requests in seconds.
const REQUEST_SECONDS: [f64; 17] =
    [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 6.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0];

/// Buckets of the times in a queue in seconds.
const QUEUE_SECONDS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0];

/// Maximum length of a model name in characters; longer names are truncated.
const MAX_MODEL_NAME_CHARS: usize = 253;

type MetricLabels = Vec<(&'static str, String)>;
type FloatGauge = Gauge<f64, AtomicU64>;

/// Metrics of one process.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Namespace whose pools have labels without it.
    default_namespace: String,
    registry: Registry,
    requests: Family<MetricLabels, Counter>,
    errors: Family<MetricLabels, Counter>,
    running_requests: Family<MetricLabels, Gauge>,
    request_sizes: Family<MetricLabels, Histogram>,
    request_durations: Family<MetricLabels, Histogram>,
    scheduling_durations: Histogram,
    hit_ratios: Histogram,
    hit_bytes: Histogram,
    queue_durations: Family<MetricLabels, Histogram>,
    dropped_access_log_lines: Counter,
    pools: PoolGauges,
    /// Messages of other replicas that were not used.
    pub(crate) rejected_peer_messages: Counter,
    models: Mutex<BTreeSet<String>>,
    /// Held while the gauges are updated and encoded.
    rendering: Mutex<()>,
}

/// Gauges that are updated each time the metrics are rendered.
#[derive(Debug, Default)]
struct PoolGauges {
    ready_endpoints: Family<MetricLabels, Gauge>,
    kv_usage: Family<MetricLabels, FloatGauge>,
    queue: Family<MetricLabels, FloatGauge>,
    queue_per_pod: Family<MetricLabels, Gauge>,
    saturation: Family<MetricLabels, FloatGauge>,
    queued_requests: Family<MetricLabels, Gauge>,
    queued_bytes: Family<MetricLabels, Gauge>,
    objectives: Family<MetricLabels, FloatGauge>,
    latencies: Family<MetricLabels, FloatGauge>,
    attainments: Family<MetricLabels, FloatGauge>,
    noncritical_shares: Family<MetricLabels, FloatGauge>,
    peers: Gauge,
    peer_ages: Family<MetricLabels, FloatGauge>,
}

/// What is known about other replicas.
#[derive(Debug, Default)]
pub(crate) struct PeerSummary {
    /// Number of those whose states are used.
    pub(crate) count: usize,
    /// Ages of the last states, by replica.
    pub(crate) ages: Vec<(String, Duration)>,
}

/// Guard that counts a request as running until the guard is dropped, and then records its duration.
#[derive(Debug)]
pub(crate) struct RunningRequest {
    running: Gauge,
    durations: Histogram,
    start: Instant,
    /// How long the admission took, with the time in a queue.
    pub(crate) queue_time: Duration,
}

/// How the wait of a request in the queue of a pool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueOutcome {
    /// An engine was selected.
    Dispatched,
    /// The queue was full.
    RejectedCapacity,
    /// The timeout expired.
    EvictedTimeout,
    /// The client left.
    EvictedCancelled,
    /// Another request took its place, or the pool was deleted.
    EvictedOther,
}

/// A request that waits in the queue of a pool. When it is dropped, its wait is recorded.
#[derive(Debug)]
pub(crate) struct QueuedRequestTimer<'a> {
    metrics: &'a Metrics,
    pool: &'a NamespacedName,
    flow: String,
    priority: i32,
    start: Instant,
    /// How the wait has ended.
    pub(crate) outcome: QueueOutcome,
}

// === impl Metrics ===

impl Metrics {
    /// Returns metrics without records. Pools of other namespaces than `default_namespace` are named `NAMESPACE/NAME`.
    pub(crate) fn new(default_namespace: &str) -> Self {
        let mut metrics = Self {
            default_namespace: default_namespace.to_owned(),
            registry: Registry::default(),
            requests: Family::default(),
            errors: Family::default(),
            running_requests: Family::default(),
            // Buckets from 64 bytes to 64 MiB.
            request_sizes: Family::new_with_constructor(|| Histogram::new((6..=26).map(|power| f64::from(1 << power)))),
            request_durations: Family::new_with_constructor(|| Histogram::new(REQUEST_SECONDS)),
            queue_durations: Family::new_with_constructor(|| Histogram::new(QUEUE_SECONDS)),
            dropped_access_log_lines: Counter::default(),
            scheduling_durations: Histogram::new(
                [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000].map(|tenths| f64::from(tenths) * 1e-4),
            ),
            hit_ratios: Histogram::new((0..=10).map(|tenths| f64::from(tenths) / 10.0)),
            hit_bytes: Histogram::new([0.0].into_iter().chain((4..=16).map(|power| f64::from(1 << power)))),
            pools: PoolGauges::default(),
            rejected_peer_messages: Counter::default(),
            models: Mutex::default(),
            rendering: Mutex::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("inference_objective_request", "Requests by model and target model", self.requests.clone());
        registry.register(
            "inference_objective_request_error",
            "Requests that were rejected before an endpoint was selected, by error code",
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
            "inference_objective_request_duration_seconds",
            "Time from the complete request to the end of its response in seconds",
            self.request_durations.clone(),
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
        registry.register(
            "inference_extension_flow_control_request_queue_duration_seconds",
            "Time that requests waited for an engine in seconds; requests that did not wait are not counted",
            self.queue_durations.clone(),
        );
        registry.register(
            "ostler_access_log_dropped_lines",
            "Lines of the access log that were not written",
            self.dropped_access_log_lines.clone(),
        );
        let pool = &self.pools;
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
        registry.register(
            "inference_extension_flow_control_pool_saturation",
            "Requests in flight, as a fraction of those that the engines run at the same time",
            pool.saturation.clone(),
        );
        registry.register(
            "inference_extension_flow_control_queue_size",
            "Requests that wait for an engine",
            pool.queued_requests.clone(),
        );
        registry.register(
            "inference_extension_flow_control_queue_bytes",
            "Size of the bodies of the requests that wait for an engine in bytes",
            pool.queued_bytes.clone(),
        );
        registry.register(
            "ostler_use_case_objective_seconds",
            "Desired end-to-end latency per output token at the 95th percentile in seconds",
            pool.objectives.clone(),
        );
        registry.register(
            "ostler_use_case_output_token_latency_p95_seconds",
            "Measured end-to-end latency per output token at the 95th percentile in seconds; absent with fewer than 50 requests",
            pool.latencies.clone(),
        );
        registry.register(
            "ostler_use_case_objective_attainment",
            "Desired latency divided by the measured one; the objective is met from 1 on",
            pool.attainments.clone(),
        );
        registry.register(
            "ostler_pool_noncritical_share",
            "Fraction of the requests that an engine runs at the same time up to which noncritical ones are admitted",
            pool.noncritical_shares.clone(),
        );
        registry.register("ostler_peers", "Other replicas whose requests are counted", pool.peers.clone());
        registry.register(
            "ostler_peer_message_age_seconds",
            "Time since the last message of another replica in seconds; absent after ten minutes",
            pool.peer_ages.clone(),
        );
        registry.register(
            "ostler_peer_rejected_messages",
            "Messages of other replicas that were invalid",
            self.rejected_peer_messages.clone(),
        );
    }

    /// Counts a scheduled request that was received at `start`. It counts as running until the returned guard is dropped.
    pub(crate) fn record_request(&self, model: &str, target: &str, bytes: usize, start: Instant) -> RunningRequest {
        let models = self.model_labels(model, target);
        let running = self.running_requests.get_or_create(&vec![models[0].clone()]).clone();
        self.requests.get_or_create(&models).inc();
        self.request_sizes.get_or_create(&models).observe(bytes as f64);
        running.inc();
        let durations = self.request_durations.get_or_create(&models).clone();
        RunningRequest { running, durations, start, queue_time: start.elapsed() }
    }

    /// Returns a timer of a request that waits in the queue of `pool` from now on.
    pub(crate) fn time_queued_request<'a>(
        &'a self,
        pool: &'a NamespacedName,
        flow: &str,
        priority: i32,
    ) -> QueuedRequestTimer<'a> {
        let (flow, start, outcome) = (self.label_value(flow), Instant::now(), QueueOutcome::EvictedCancelled);
        QueuedRequestTimer { metrics: self, pool, flow, priority, start, outcome }
    }

    /// Counts a request that is rejected with an HTTP status before an endpoint is selected.
    pub(crate) fn record_rejection(&self, model: &str, target: &str, status: StatusCode) {
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

    /// Records a scheduling decision: its duration in seconds, and the cached bytes of the prompt.
    pub(crate) fn record_decision(&self, seconds: f64, cached_bytes: usize, prompt_bytes: usize) {
        self.scheduling_durations.observe(seconds);
        if prompt_bytes > 0 {
            self.hit_ratios.observe(cached_bytes as f64 / prompt_bytes as f64);
            self.hit_bytes.observe(cached_bytes as f64);
        }
    }

    /// Sets the number of lines of the access log that were not written.
    pub(crate) fn set_dropped_access_log_lines(&self, lines: u64) {
        self.dropped_access_log_lines.inner().fetch_max(lines, Relaxed);
    }

    /// Returns all metrics in the OpenMetrics text format, with the gauges of `pools`, of the requests in their queues, and of other
    /// replicas.
    pub(crate) fn render<'a>(
        &self,
        pools: impl Iterator<Item = &'a Arc<Pool>>,
        queued: &[QueuedFlow],
        peers: &PeerSummary,
    ) -> String {
        let _rendering = self.rendering.lock().unwrap_or_else(PoisonError::into_inner);
        self.pools.clear();
        for pool in pools {
            let label = self.pool_label(&pool.key);
            self.pools.update(&label, pool);
            self.pools.update_objectives(&label, pool, Instant::now());
        }
        for QueuedFlow { pool, priority, name, requests, bytes } in queued {
            let labels = queue_labels(self.pool_label(pool), self.label_value(name), *priority);
            self.pools.queued_requests.get_or_create(&labels).inc_by(saturating(*requests));
            self.pools.queued_bytes.get_or_create(&labels).inc_by(saturating(*bytes));
        }
        self.pools.peers.set(saturating(peers.count));
        for (name, age) in &peers.ages {
            self.pools.peer_ages.get_or_create(&vec![("peer", name.clone())]).set(age.as_secs_f64());
        }
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("failed to render metrics");
        }
        text
    }

    fn model_labels(&self, model: &str, target: &str) -> MetricLabels {
        [("model_name", model), ("target_model_name", target)]
            .map(|(label, name)| (label, self.label_value(name)))
            .into()
    }

    fn pool_label(&self, pool: &NamespacedName) -> String {
        if pool.namespace == self.default_namespace { pool.name.clone() } else { pool.to_string() }
    }

    /// Returns the label value for a model name: truncated, and [`OTHER_MODELS`] beyond the maximum number of models.
    fn label_value(&self, name: &str) -> String {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let name: String = name.chars().take(MAX_MODEL_NAME_CHARS).collect();
        if !models.contains(&name) {
            if models.len() >= MAX_MODELS {
                return OTHER_MODELS.to_owned();
            }
            models.insert(name.clone());
        }
        name
    }
}

/// Returns the labels of a flow in the queue of a pool.
fn queue_labels(pool: String, flow: String, priority: i32) -> MetricLabels {
    vec![("fairness_id", flow), ("priority", priority.to_string()), ("inference_pool", pool)]
}

fn saturating<T: TryInto<i64>>(number: T) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

// === impl PoolGauges ===

impl PoolGauges {
    /// Removes the series of deleted pools and Pods.
    fn clear(&self) {
        let Self { ready_endpoints, kv_usage, queue, queue_per_pod, saturation, queued_requests, queued_bytes, .. } =
            self;
        let Self { objectives, latencies, attainments, noncritical_shares, peer_ages, .. } = self;
        [ready_endpoints, queue_per_pod, queued_requests, queued_bytes].into_iter().for_each(Family::clear);
        [kv_usage, queue, saturation].into_iter().for_each(Family::clear);
        [objectives, latencies, attainments, noncritical_shares, peer_ages].into_iter().for_each(Family::clear);
    }

    /// Updates the gauges of the use cases with an objective.
    fn update_objectives(&self, label: &str, pool: &Pool, now: Instant) {
        for (model, window) in pool.objectives.windows() {
            let labels = vec![("inference_pool", label.to_owned()), ("model_name", model.to_owned())];
            self.objectives.get_or_create(&labels).set(window.objective.as_secs_f64());
            let Some(attainment) = window.attainment(now) else { continue };
            self.latencies.get_or_create(&labels).set(attainment.p95.as_secs_f64());
            self.attainments.get_or_create(&labels).set(attainment.ratio());
        }
        if !pool.objectives.is_empty() {
            let labels = vec![("inference_pool", label.to_owned())];
            self.noncritical_shares.get_or_create(&labels).set(pool.objectives.share(NONCRITICAL, now));
        }
    }

    fn update(&self, label: &str, pool: &Pool) {
        let labels = || vec![("name", label.to_owned())];
        let endpoints: Vec<&Endpoint> = pool.ready_endpoints.iter().map(Arc::as_ref).collect();
        let reports: Vec<_> = endpoints.iter().map(|endpoint| endpoint.state.last_report()).collect();
        let metrics = || reports.iter().flatten().map(|report| &report.metrics);
        let ready = endpoints.iter().filter(|endpoint| !endpoint.state.is_unreachable()).count();
        self.ready_endpoints.get_or_create(&labels()).set(saturating(ready));
        let kv_usage = mean(metrics().filter_map(|metrics| metrics.kv_cache_usage));
        self.kv_usage.get_or_create(&labels()).set(kv_usage);
        self.queue.get_or_create(&labels()).set(mean(metrics().filter_map(|metrics| metrics.waiting)));
        if let Some(saturation) = pool.saturation() {
            self.saturation.get_or_create(&vec![("inference_pool", label.to_owned())]).set(saturation);
        }
        for (endpoint, report) in endpoints.iter().zip(&reports) {
            let Some(waiting) = report.as_ref().and_then(|report| report.metrics.waiting) else { continue };
            let shares_pod = endpoints.iter().filter(|other| other.pod == endpoint.pod).count() > 1;
            let port = endpoint.address.port();
            let pod = if shares_pod { format!("{}:{port}", endpoint.pod) } else { endpoint.pod.clone() };
            let labels = vec![("name", label.to_owned()), ("model_server_pod", pod)];
            self.queue_per_pod.get_or_create(&labels).set(waiting as i64);
        }
    }
}

/// Returns the mean, 0 without values.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

// === impl QueueOutcome ===

impl QueueOutcome {
    /// Returns the value of the label `outcome`, as in upstream's `QueueOutcome`.
    fn label(self) -> &'static str {
        match self {
            Self::Dispatched => "Dispatched",
            Self::RejectedCapacity => "RejectedCapacity",
            Self::EvictedTimeout => "EvictedTTL",
            Self::EvictedCancelled => "EvictedContextCancelled",
            Self::EvictedOther => "EvictedOther",
        }
    }
}

// === impl QueuedRequestTimer ===

impl Drop for QueuedRequestTimer<'_> {
    fn drop(&mut self) {
        let pool = self.metrics.pool_label(self.pool);
        let mut labels = queue_labels(pool, std::mem::take(&mut self.flow), self.priority);
        labels.push(("outcome", self.outcome.label().to_owned()));
        self.metrics.queue_durations.get_or_create(&labels).observe(self.start.elapsed().as_secs_f64());
    }
}

// === impl RunningRequest ===

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.running.dec();
        self.durations.observe(self.start.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{endpoint::tests::endpoint, engine_metrics::EngineMetrics, snapshot};

    #[test]
    fn renders_metrics() {
        let metrics = Metrics::new("ns");
        let start = Instant::now();
        let running = metrics.record_request("chat", "chat-v2", 1_000, start);
        metrics.record_rejection("chat", "chat", StatusCode::SERVICE_UNAVAILABLE);
        metrics.record_decision(300e-6, 64, 256);
        let key = NamespacedName::new("ns", "pool");
        let mut timer = metrics.time_queued_request(&key, "chat", -10);
        timer.outcome = QueueOutcome::EvictedTimeout;
        drop(timer);
        let engine_metrics = EngineMetrics {
            waiting: Some(3.0),
            kv_cache_usage: Some(0.5),
            running: Some(8.0),
            ..EngineMetrics::default()
        };
        let endpoints = [endpoint(1), endpoint(2)].map(Arc::new);
        let _requests: Vec<_> = (0..11).map(|_| endpoints[0].state.begin(1)).collect();
        for _ in 0..2 {
            endpoints[0].state.record_metrics(engine_metrics.clone(), start);
        }
        endpoints[1].state.record_unreachable(true);
        let pool = Arc::new(snapshot::tests::pool(key.clone(), endpoints.into()));
        let other = NamespacedName::new("team-b", "pool");
        let other = Arc::new(snapshot::tests::pool(other, Vec::new()));
        let queued = QueuedFlow { pool: key, priority: 100, name: "vip".to_owned(), requests: 2, bytes: 300 };
        let peers = PeerSummary { count: 1, ages: vec![("gateway-1".to_owned(), Duration::from_millis(250))] };
        metrics.rejected_peer_messages.inc();
        let text = metrics.render([&pool, &other].into_iter(), &[queued], &peers);
        for line in [
            r#"inference_objective_request_total{model_name="chat",target_model_name="chat-v2"} 1"#,
            r#"inference_objective_request_error_total{model_name="chat",target_model_name="chat",error_code="ServiceUnavailable"} 1"#,
            r#"inference_objective_running_requests{model_name="chat"} 1"#,
            r#"inference_objective_request_sizes_bucket{le="1024.0",model_name="chat",target_model_name="chat-v2"} 1"#,
            r#"inference_extension_scheduler_e2e_duration_seconds_bucket{le="0.0005"} 1"#,
            r#"inference_extension_prefix_indexer_hit_ratio_sum 0.25"#,
            r#"inference_pool_ready_pods{name="pool"} 1"#,
            r#"inference_pool_ready_pods{name="team-b/pool"} 0"#,
            r#"inference_pool_average_kv_cache_utilization{name="pool"} 0.5"#,
            r#"inference_pool_average_queue_size{name="pool"} 3.0"#,
            r#"inference_pool_per_pod_queue_size{name="pool",model_server_pod="pod-1"} 3"#,
            r#"inference_extension_flow_control_pool_saturation{inference_pool="pool"} 1.375"#,
            r#"inference_extension_flow_control_queue_size{fairness_id="vip",priority="100",inference_pool="pool"} 2"#,
            r#"inference_extension_flow_control_queue_bytes{fairness_id="vip",priority="100",inference_pool="pool"} 300"#,
            r#"inference_extension_flow_control_request_queue_duration_seconds_count{fairness_id="chat",priority="-10",inference_pool="pool",outcome="EvictedTTL"} 1"#,
            r#"ostler_peers 1"#,
            r#"ostler_peer_message_age_seconds{peer="gateway-1"} 0.25"#,
            r#"ostler_peer_rejected_messages_total 1"#,
        ] {
            assert!(text.lines().any(|rendered| rendered == line), "{line}\n{text}");
        }
        drop(running);
        let text = metrics.render([].into_iter(), &[], &PeerSummary::default());
        assert!(text.contains(r#"running_requests{model_name="chat"} 0"#));
        assert!(text.contains(r#"request_duration_seconds_count{model_name="chat",target_model_name="chat-v2"} 1"#));
        assert!(
            !text.contains("pod-1") && !text.contains("vip"),
            "series of deleted Pods and of empty queues are removed"
        );
    }

    #[test]
    fn number_of_models_is_bounded() {
        let metrics = Metrics::new("ns");
        for number in 0..3 * MAX_MODELS {
            drop(metrics.record_request(&format!("model-{number}"), &"x".repeat(9_000), 1, Instant::now()));
        }
        let text = metrics.render([].into_iter(), &[], &PeerSummary::default());
        let series = text.lines().filter(|line| line.starts_with("inference_objective_request_total")).count();
        assert!((MAX_MODELS - 1..=MAX_MODELS + 1).contains(&series), "{series}");
        assert!(text.contains(r#"model_name="other""#) && text.lines().all(|line| line.len() < 1_000));
    }
}
