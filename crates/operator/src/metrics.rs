//! Prometheus metrics of the operator.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decide::ClassTotals;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Maximum number of classes with their own series; further classes, by name, are summed up as `other`.
const MAX_CLASSES: usize = 200;
const OTHER_CLASSES: &str = "other";
type Labels = Vec<(&'static str, String)>;

/// Metrics of one operator.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    selections: Family<Labels, Counter>,
    durations: Histogram,
    accelerators: Family<Labels, Gauge>,
    panics: Family<Labels, Counter>,
    classes: Mutex<BTreeMap<String, ClassTotals>>,
}

/// Operation of the operator that may panic because of an internal error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// Handling the change of a watched object.
    Change,
    /// A reconcile.
    Reconcile,
    /// A review of the admission webhook.
    Review,
}

/// Gauges that describe the cluster. A replica exports them only while it reconciles: dropping this value removes them.
#[derive(Debug)]
pub(crate) struct ClusterGauges(Arc<Metrics>);

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let selections = Family::default();
        // Buckets from 50 µs to 13 s.
        let durations = Histogram::new(exponential_buckets(0.000_05, 4.0, 10));
        let accelerators = Family::default();
        registry.register("ostler_accelerator_selection", "Decisions for services by reason code", selections.clone());
        registry.register("ostler_decision_duration_seconds", "Duration of one decision", durations.clone());
        registry.register(
            "ostler_accelerators",
            "Accelerators of a class by state (total or free)",
            accelerators.clone(),
        );
        let panics = Family::default();
        registry.register(
            "ostler_panics",
            "Operations that an internal error has ended; changes and reconciles are retried",
            panics.clone(),
        );
        Self { registry, selections, durations, accelerators, panics, classes: Mutex::default() }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts a decision. `outcome` is its reason code.
    pub(crate) fn count_decision(&self, outcome: &str, duration: Duration) {
        self.selections.get_or_create(&vec![("outcome", outcome.to_owned())]).inc();
        self.durations.observe(duration.as_secs_f64());
    }

    /// Returns the number of operations that panicked.
    #[must_use]
    pub fn panics(&self) -> u64 {
        let operations = [Operation::Change, Operation::Reconcile, Operation::Review];
        operations.into_iter().map(|operation| self.panics_of(operation).get()).sum()
    }

    /// Counts an operation that panicked.
    pub(crate) fn count_panic(&self, operation: Operation) {
        self.panics_of(operation).inc();
    }

    fn panics_of(&self, operation: Operation) -> Counter {
        let operation = match operation {
            Operation::Change => "change",
            Operation::Reconcile => "reconcile",
            Operation::Review => "review",
        };
        self.panics.get_or_create(&vec![("operation", operation.to_owned())]).clone()
    }

    fn classes(&self) -> MutexGuard<'_, BTreeMap<String, ClassTotals>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders all metrics in the OpenMetrics text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.accelerators.clear();
        let classes = self.classes().clone();
        for (index, (name, totals)) in classes.iter().enumerate() {
            let class = if index < MAX_CLASSES { name.as_str() } else { OTHER_CLASSES };
            for (state, count) in [("total", totals.total), ("free", totals.free)] {
                let gauge =
                    self.accelerators.get_or_create(&vec![("class", class.to_owned()), ("state", state.to_owned())]);
                gauge.inc_by(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("failed to encode metrics");
        }
        text
    }
}

// === impl ClusterGauges ===

impl ClusterGauges {
    /// Returns the gauges of `metrics`, without values.
    pub(crate) fn new(metrics: Arc<Metrics>) -> ClusterGauges {
        ClusterGauges(metrics)
    }

    /// Sets the gauges of a class.
    pub(crate) fn set_class(&self, name: &str, totals: ClassTotals) {
        self.0.classes().insert(name.to_owned(), totals);
    }

    /// Removes the gauges of a class.
    pub(crate) fn remove_class(&self, name: &str) {
        self.0.classes().remove(name);
    }
}

impl Drop for ClusterGauges {
    fn drop(&mut self) {
        self.0.classes().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(free: u64) -> ClassTotals {
        ClassTotals { nodes: 1, available_nodes: 1, total: 8, free }
    }

    // spec: ACC-126
    #[test]
    fn renders_all_metrics() {
        let metrics = Arc::new(Metrics::default());
        let gauges = ClusterGauges::new(Arc::clone(&metrics));
        metrics.count_decision("Selected", Duration::from_micros(300));
        metrics.count_decision("Selected", Duration::from_micros(300));
        metrics.count_decision("NoCompatibleRuntime", Duration::from_micros(80));
        metrics.count_panic(Operation::Change);
        metrics.count_panic(Operation::Reconcile);
        metrics.count_panic(Operation::Reconcile);
        gauges.set_class("h100", totals(8));
        gauges.set_class("h100", totals(3));
        gauges.set_class("gone", totals(1));
        gauges.remove_class("gone");
        let text = metrics.render();
        for line in [
            "ostler_accelerator_selection_total{outcome=\"Selected\"} 2",
            "ostler_accelerator_selection_total{outcome=\"NoCompatibleRuntime\"} 1",
            "ostler_decision_duration_seconds_count 3",
            "ostler_panics_total{operation=\"change\"} 1",
            "ostler_panics_total{operation=\"reconcile\"} 2",
            "ostler_accelerators{class=\"h100\",state=\"total\"} 8",
            "ostler_accelerators{class=\"h100\",state=\"free\"} 3",
        ] {
            assert!(text.lines().any(|rendered_line| rendered_line == line), "{line} in\n{text}");
        }
        assert!(!text.contains("gone"));
        assert_eq!(metrics.render(), text, "a scrape changes nothing");
        drop(gauges);
        let text = metrics.render();
        assert!(!text.contains("ostler_accelerators{"), "{text}");
        assert!(text.contains("ostler_decision_duration_seconds_count 3"), "{text}");
    }

    // spec: ACC-126
    #[test]
    fn limits_the_number_of_classes() {
        let metrics = Arc::new(Metrics::default());
        let gauges = ClusterGauges::new(Arc::clone(&metrics));
        (0..1000).for_each(|number| gauges.set_class(&format!("class-{number:04}"), totals(1)));
        let text = metrics.render();
        assert_eq!(text.lines().filter(|line| line.starts_with("ostler_accelerators{")).count(), 2 * (MAX_CLASSES + 1));
        assert!(text.contains("ostler_accelerators{class=\"other\",state=\"free\"} 800"), "{text}");
    }
}
