//! Prometheus metrics of the controller.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::call::{CallError, CallErrorKind, Request};
use crate::node::EngineState;

type Labels = Vec<(&'static str, &'static str)>;

/// Metrics of one controller.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    actuations: Family<Labels, Histogram, fn() -> Histogram>,
    calls: Family<Labels, Histogram, fn() -> Histogram>,
    engines: Family<Labels, Gauge>,
    errors: Family<Labels, Counter>,
}

/// How a requester got its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActuationPath {
    /// A provider was created.
    Cold,
    /// A launcher that existed started an engine.
    Warm,
    /// A sleeping engine was woken.
    Hot,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        // Buckets from 62 ms to 34 min.
        let actuations: Family<Labels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.062_5, 2.0, 16)));
        // Buckets from 1 ms to 16 s.
        let calls: Family<Labels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 15)));
        let (engines, errors) = (Family::default(), Family::default());
        registry.register(
            "ostler_actuation_seconds",
            "Time from the start of a requester's container until readiness is relayed to it, by path (hot, warm or cold)",
            actuations.clone(),
        );
        registry.register(
            "ostler_actuation_http_seconds",
            "Duration of HTTP calls to requesters and engines by purpose and result",
            calls.clone(),
        );
        registry.register("ostler_actuation_engines", "Engines of providers by state", engines.clone());
        registry.register("ostler_actuation_errors", "New problems of requesters by code", errors.clone());
        Self { registry, actuations, calls, engines, errors }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Records that a requester got its engine.
    pub(crate) fn record_actuation(&self, path: ActuationPath, duration: Duration) {
        let path = match path {
            ActuationPath::Cold => "cold",
            ActuationPath::Warm => "warm",
            ActuationPath::Hot => "hot",
        };
        self.actuations.get_or_create(&vec![("path", path)]).observe(duration.as_secs_f64());
    }

    /// Records a call.
    pub(crate) fn record_call(&self, request: &Request, error: Option<&CallError>, duration: Duration) {
        let result = match error.map(|error| error.kind) {
            None => "ok",
            Some(CallErrorKind::NotDelivered) => "not_delivered",
            Some(CallErrorKind::Rejected) => "rejected",
            Some(CallErrorKind::NoResponse) => "no_response",
        };
        let labels = vec![("purpose", request.purpose()), ("result", result)];
        self.calls.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Counts a new problem of a requester.
    pub(crate) fn count_problem(&self, code: &'static str) {
        self.errors.get_or_create(&vec![("code", code)]).inc();
    }

    /// Replaces the numbers of engines.
    pub(crate) fn set_engines(&self, states: impl Iterator<Item = EngineState>) {
        let mut counts = EngineState::ALL.map(|state| (state, 0_i64));
        for state in states {
            counts
                .iter_mut()
                .filter(|(counted, _)| *counted == state)
                .for_each(|(_, count)| *count = count.saturating_add(1));
        }
        for (state, count) in counts {
            self.engines.get_or_create(&vec![("state", state.as_str())]).set(count);
        }
    }

    /// Removes the numbers of engines, which a replica that does not lead does not know.
    pub(crate) fn remove_engines(&self) {
        self.engines.clear();
    }

    /// Renders all metrics in the OpenMetrics text format.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("failed to encode metrics");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_all_metrics() {
        let metrics = Metrics::default();
        metrics.record_actuation(ActuationPath::Hot, Duration::from_millis(400));
        metrics.record_actuation(ActuationPath::Cold, Duration::from_secs(40));
        let error = CallError { kind: CallErrorKind::NoResponse, message: String::new() };
        metrics.record_call(&Request::WakeUp, Some(&error), Duration::from_secs(10));
        metrics.record_call(&Request::WakeUp, None, Duration::from_secs(1));
        metrics.count_problem("GpuMapMissing");
        metrics.set_engines([EngineState::Awake, EngineState::Asleep, EngineState::Asleep].into_iter());
        let text = metrics.render();
        for line in [
            "ostler_actuation_seconds_sum{path=\"hot\"} 0.4",
            "ostler_actuation_seconds_count{path=\"cold\"} 1",
            "ostler_actuation_http_seconds_count{purpose=\"wake\",result=\"no_response\"} 1",
            "ostler_actuation_http_seconds_count{purpose=\"wake\",result=\"ok\"} 1",
            "ostler_actuation_engines{state=\"asleep\"} 2",
            "ostler_actuation_engines{state=\"dead\"} 0",
            "ostler_actuation_errors_total{code=\"GpuMapMissing\"} 1",
        ] {
            assert!(text.lines().any(|rendered| rendered == line), "{line} in\n{text}");
        }
        metrics.remove_engines();
        assert!(!metrics.render().contains("ostler_actuation_engines{"));
    }
}
