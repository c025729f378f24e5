//! What the picker counts, under the names that endpoint pickers share.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::member::Member;

/// Models with series of their own. Clients choose these names, so what comes after them is summed up.
const MOST_MODELS: usize = 1_000;
const OTHER: &str = "other";

/// Longer names are cut.
const LONGEST_NAME: usize = 253;

type Labels = Vec<(&'static str, String)>;
type Fraction = Gauge<f64, AtomicU64>;

/// Counters and gauges of one picker.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    errors: Family<Labels, Counter>,
    running: Family<Labels, Gauge>,
    sizes: Family<Labels, Histogram>,
    durations: Histogram,
    hit_ratios: Histogram,
    hit_bytes: Histogram,
    pool: PoolGauges,
    models: Mutex<BTreeSet<String>>,
}

/// What is looked up when the page is asked for.
#[derive(Debug, Default)]
struct PoolGauges {
    ready: Family<Labels, Gauge>,
    kv_usage: Family<Labels, Fraction>,
    queue: Family<Labels, Fraction>,
    queue_of: Family<Labels, Gauge>,
}

/// One request until it ends.
#[derive(Debug)]
pub(super) struct Running(Gauge);

impl Metrics {
    pub(super) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            errors: Family::default(),
            running: Family::default(),
            // 64 bytes to 64 MiB
            sizes: Family::new_with_constructor(|| Histogram::new((6..=26).map(|power| f64::from(1 << power)))),
            durations: Histogram::new(
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
        let all = &mut self.registry;
        all.register("inference_objective_request", "Requests by model and target model", self.requests.clone());
        all.register(
            "inference_objective_request_error",
            "Requests that were answered here, by error code",
            self.errors.clone(),
        );
        all.register("inference_objective_running_requests", "Requests under way by model", self.running.clone());
        all.register("inference_objective_request_sizes", "Bytes of request bodies", self.sizes.clone());
        all.register(
            "inference_extension_scheduler_e2e_duration_seconds",
            "Time of one choice",
            self.durations.clone(),
        );
        all.register(
            "inference_extension_prefix_indexer_hit_ratio",
            "Share of the prompt that the chosen endpoint had",
            self.hit_ratios.clone(),
        );
        all.register(
            "inference_extension_prefix_indexer_hit_bytes",
            "Bytes of the prompt that the chosen endpoint had",
            self.hit_bytes.clone(),
        );
        let pool = &self.pool;
        all.register("inference_pool_ready_pods", "Endpoints that may be chosen", pool.ready.clone());
        all.register(
            "inference_pool_average_kv_cache_utilization",
            "Mean share of the KV caches in use, of the endpoints that say it",
            pool.kv_usage.clone(),
        );
        all.register(
            "inference_pool_average_queue_size",
            "Mean number of requests that wait at an engine, of the endpoints that say it",
            pool.queue.clone(),
        );
        all.register(
            "inference_pool_per_pod_queue_size",
            "Requests that wait at the engine, as it said last",
            pool.queue_of.clone(),
        );
    }

    /// A request is sent on; it runs until the result is dropped.
    pub(super) fn sent(&self, model: &str, target: &str, bytes: usize) -> Running {
        let models = self.models(model, target);
        let running = self.running.get_or_create(&vec![models[0].clone()]).clone();
        self.requests.get_or_create(&models).inc();
        self.sizes.get_or_create(&models).observe(bytes as f64);
        running.inc();
        Running(running)
    }

    /// A request is answered with an error of our own.
    pub(super) fn refused(&self, model: &str, target: &str, status: i32) {
        let code = match status {
            503 => "ServiceUnavailable",
            429 => "InferencePoolResourceExhausted",
            500.. => "Internal",
            _ => "BadRequest",
        };
        let mut labels = self.models(model, target);
        self.requests.get_or_create(&labels).inc();
        labels.push(("error_code", code.to_owned()));
        self.errors.get_or_create(&labels).inc();
    }

    /// A choice was made; of a prompt of `bytes` the chosen endpoint had `known`.
    pub(super) fn chosen(&self, took: Duration, known: usize, bytes: usize) {
        self.durations.observe(took.as_secs_f64());
        if bytes > 0 {
            self.hit_ratios.observe(known as f64 / bytes as f64);
            self.hit_bytes.observe(known as f64);
        }
    }

    /// Everything in the OpenMetrics text format.
    pub(super) fn render(&self, pool: &str, members: &[Member]) -> String {
        self.pool.look(pool, members);
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("metrics cannot be written");
        }
        text
    }

    fn models(&self, model: &str, target: &str) -> Labels {
        let mut known = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let names = [("model_name", model), ("target_model_name", target)];
        let named = names.map(|(label, name)| (label, named(&mut known, name)));
        named.into()
    }
}

fn named(known: &mut BTreeSet<String>, name: &str) -> String {
    let name: String = name.chars().take(LONGEST_NAME).collect();
    if known.len() >= MOST_MODELS && !known.contains(&name) {
        return OTHER.to_owned();
    }
    known.insert(name.clone());
    name
}

impl PoolGauges {
    fn look(&self, pool: &str, members: &[Member]) {
        let of_pool = || vec![("name", pool.to_owned())];
        let mean = |value: &dyn Fn(&Member) -> Option<f64>| {
            let values: Vec<f64> = members.iter().filter_map(value).collect();
            if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
        };
        let waiting = |member: &Member| member.reading.as_ref()?.gauges.waiting;
        let able = members.iter().filter(|member| !member.refuses).count();
        self.ready.get_or_create(&of_pool()).set(i64::try_from(able).unwrap_or(i64::MAX));
        self.kv_usage.get_or_create(&of_pool()).set(mean(&|member| member.reading.as_ref()?.gauges.kv_usage));
        self.queue.get_or_create(&of_pool()).set(mean(&waiting));
        // Pods that are gone have no queue any more.
        self.queue_of.clear();
        for member in members {
            let shared = members.iter().filter(|other| other.endpoint.pod == member.endpoint.pod).count() > 1;
            let pod = &member.endpoint.pod;
            let pod = if shared { format!("{pod}:{}", member.endpoint.address.port()) } else { pod.clone() };
            let mut labels = of_pool();
            labels.push(("model_server_pod", pod));
            if let Some(waiting) = waiting(member) {
                self.queue_of.get_or_create(&labels).set(waiting as i64);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{member::tests::member, reading::Gauges};

    #[test]
    fn a_page() {
        let metrics = Metrics::new();
        let running = metrics.sent("chat", "chat-v2", 1_000);
        metrics.refused("chat", "chat", 503);
        metrics.chosen(Duration::from_micros(300), 64, 256);
        let gauges = Gauges { waiting: Some(3.0), kv_usage: Some(0.5), ..Gauges::default() };
        let mut members = [member(1, Some((gauges, 0))), member(2, None)];
        members[1].refuses = true;
        let page = metrics.render("pool", &members);
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
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        drop(running);
        assert!(metrics.render("pool", &[]).contains(r#"running_requests{model_name="chat"} 0"#));
        assert!(!metrics.render("pool", &[]).contains("pod-1"), "a Pod that is gone has no queue");
    }

    #[test]
    fn names_that_clients_invent_are_bounded() {
        let metrics = Metrics::new();
        for number in 0..3 * MOST_MODELS {
            drop(metrics.sent(&format!("model-{number}"), &"x".repeat(9_000), 1));
        }
        let page = metrics.render("pool", &[]);
        let series = page.lines().filter(|line| line.starts_with("inference_objective_request_total")).count();
        assert!((MOST_MODELS - 1..=MOST_MODELS + 1).contains(&series), "{series}");
        assert!(page.contains(r#"model_name="other""#) && page.lines().all(|line| line.len() < 1_000));
    }
}
