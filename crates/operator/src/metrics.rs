//! What the operator counts, for Prometheus.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use decide::inventory::Numbers;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Classes with series of their own; what comes after them, by name, is summed up as `other`.
const MOST_CLASSES: usize = 200;
const OTHER: &str = "other";

type Labels = Vec<(&'static str, String)>;

/// Counters and gauges of one operator.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    selections: Family<Labels, Counter>,
    durations: Histogram,
    accelerators: Family<Labels, Gauge>,
    classes: Mutex<BTreeMap<String, Numbers>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let selections = Family::default();
        // 50 µs to 13 s
        let durations = Histogram::new(exponential_buckets(0.000_05, 4.0, 10));
        let accelerators = Family::default();
        registry.register(
            "ostler_accelerator_selection",
            "Decisions for services, by their reason code: Selected, Kept, or why nothing was",
            selections.clone(),
        );
        registry.register("ostler_decision_duration_seconds", "Time that one decision took", durations.clone());
        registry.register(
            "ostler_accelerators",
            "Accelerators of a class, by state: total or free",
            accelerators.clone(),
        );
        Self { registry, selections, durations, accelerators, classes: Mutex::default() }
    }
}

// === impl Metrics ===

impl Metrics {
    /// A decision was taken. `outcome` is its reason code.
    pub(crate) fn count_decision(&self, outcome: &str, took: Duration) {
        self.selections.get_or_create(&vec![("outcome", outcome.to_owned())]).inc();
        self.durations.observe(took.as_secs_f64());
    }

    pub(crate) fn count_class(&self, name: &str, numbers: Numbers) {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), numbers);
    }

    pub(crate) fn forget_class(&self, name: &str) {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Everything in the OpenMetrics text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.accelerators.clear();
        let classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (place, (name, numbers)) in classes.iter().enumerate() {
            let class = if place < MOST_CLASSES { name.as_str() } else { OTHER };
            for (state, count) in [("total", numbers.total), ("free", numbers.free)] {
                let gauge =
                    self.accelerators.get_or_create(&vec![("class", class.to_owned()), ("state", state.to_owned())]);
                gauge.inc_by(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("metrics cannot be written");
        }
        text
    }
}

/// Answers `GET /metrics` until `stop` is cancelled.
///
/// # Errors
/// What makes the listener unusable.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, stop: CancellationToken) -> io::Result<()> {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let scrape = move || {
        let text = metrics.render();
        async move { ([(CONTENT_TYPE, OPEN_METRICS)], text) }
    };
    let router = Router::new().route("/metrics", get(scrape));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(free: u64) -> Numbers {
        Numbers { nodes: 1, available_nodes: 1, total: 8, free }
    }

    // spec: ACC-126
    #[test]
    fn what_is_counted() {
        let metrics = Metrics::default();
        metrics.count_decision("Selected", Duration::from_micros(300));
        metrics.count_decision("Selected", Duration::from_micros(300));
        metrics.count_decision("NoCompatibleRuntime", Duration::from_micros(80));
        metrics.count_class("h100", numbers(8));
        metrics.count_class("h100", numbers(3));
        metrics.count_class("gone", numbers(1));
        metrics.forget_class("gone");
        let text = metrics.render();
        for line in [
            "ostler_accelerator_selection_total{outcome=\"Selected\"} 2",
            "ostler_accelerator_selection_total{outcome=\"NoCompatibleRuntime\"} 1",
            "ostler_decision_duration_seconds_count 3",
            "ostler_accelerators{class=\"h100\",state=\"total\"} 8",
            "ostler_accelerators{class=\"h100\",state=\"free\"} 3",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
        assert!(!text.contains("gone"));
        assert_eq!(metrics.render(), text, "a scrape changes nothing");
    }

    // spec: ACC-126
    #[test]
    fn labels_are_bounded() {
        let metrics = Metrics::default();
        (0..1000).for_each(|number| metrics.count_class(&format!("class-{number:04}"), numbers(1)));
        let text = metrics.render();
        assert_eq!(
            text.lines().filter(|line| line.starts_with("ostler_accelerators{")).count(),
            2 * (MOST_CLASSES + 1)
        );
        assert!(text.contains("ostler_accelerators{class=\"other\",state=\"free\"} 800"), "{text}");
    }
}
