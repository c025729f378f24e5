//! Startup, readiness and liveness probes.
//!
//! They behave like the kubelet's probes with one exception: until a container has been ready once, it is also probed
//! early, within the first period: after 50 ms, then at doubling intervals. Failures of these early probes are ignored,
//! but successes count, so an engine becomes ready as soon as it responds rather than up to `periodSeconds` later.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, reason = "numbers of users enter every computation"))]

mod handler;
mod http_get;

use std::time::Duration;

use apimachinery::time;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};

pub(super) use handler::ProbeHandler;
pub(crate) use handler::ProbeTarget;

/// One probe, with the defaults of Kubernetes applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe {
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    /// Consecutive successes until the probe succeeds.
    success_threshold: u32,
    /// Consecutive failures until the probe fails.
    failure_threshold: u32,
    handler: ProbeHandler,
}

/// The probes of one container.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probes {
    startup: Option<Probe>,
    readiness: Option<Probe>,
    liveness: Option<Probe>,
}

/// A result that a probe reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeEvent {
    /// The startup probe has succeeded, or there is none.
    Started,
    /// The readiness probe has succeeded, or there is none.
    Ready,
    /// The readiness probe has reached its failure threshold.
    Unready,
    /// The probe has failed for the first time since its last success.
    Failed { probe: &'static str, message: String },
}

/// Reports a result; waits while the receiver has many results to handle.
pub(crate) type ReportFn<'a> = dyn Fn(ProbeEvent) -> BoxFuture<'a, ()> + Send + Sync + 'a;

/// Counts consecutive results.
#[derive(Debug, Default)]
struct ConsecutiveResults {
    successes: u32,
    failures: u32,
}

// === impl Probes ===

impl Probes {
    /// Reads the probes of a container; port names refer to its ports.
    pub(crate) fn new(container: &Value) -> Self {
        let probe = |field: &str| Probe::from_json(container.get(field)?, container);
        Self { startup: probe("startupProbe"), readiness: probe("readinessProbe"), liveness: probe("livenessProbe") }
    }

    /// Runs the probes until the startup or liveness probe fails; returns its name.
    pub(crate) async fn run(&self, target: &ProbeTarget, report: &ReportFn<'_>) -> &'static str {
        let started_at = Instant::now();
        if let Some(startup) = &self.startup
            && !startup.run_startup(target, started_at, report).await
        {
            return "startup";
        }
        report(ProbeEvent::Started).await;
        let liveness = async {
            match &self.liveness {
                Some(probe) => probe.run_liveness(target, started_at, report).await,
                None => std::future::pending().await,
            }
        };
        let readiness = async {
            match &self.readiness {
                Some(probe) => probe.run_readiness(target, started_at, report).await,
                None => report(ProbeEvent::Ready).await,
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = liveness => "liveness",
            () = readiness => "readiness",
        }
    }
}

// === impl Probe ===

impl Probe {
    fn from_json(spec: &Value, container: &Value) -> Option<Self> {
        let number = |field: &str, default: u32| {
            spec.get(field).and_then(Value::as_u64).map_or(default, |n| u32::try_from(n).unwrap_or(u32::MAX))
        };
        let seconds = |field, default| Duration::from_secs(u64::from(number(field, default)));
        Some(Self {
            initial_delay: seconds("initialDelaySeconds", 0),
            period: seconds("periodSeconds", 10).max(Duration::from_secs(1)),
            timeout: seconds("timeoutSeconds", 1).max(Duration::from_secs(1)),
            success_threshold: number("successThreshold", 1).max(1),
            failure_threshold: number("failureThreshold", 3).max(1),
            handler: ProbeHandler::from_json(spec, container)?,
        })
    }

    /// Runs the startup probe; returns `true` when it succeeds, `false` when it fails.
    async fn run_startup(&self, target: &ProbeTarget, started_at: Instant, report: &ReportFn<'_>) -> bool {
        if self.probe_early(target, started_at).await {
            return true;
        }
        let (mut results, mut period_index) = (ConsecutiveResults::default(), 1);
        loop {
            let result = self.probe_at(target, started_at, period_index).await;
            period_index = u32::saturating_add(period_index, 1);
            if let Err(message) = &result
                && results.failures == 0
            {
                report(ProbeEvent::Failed { probe: "Startup", message: message.clone() }).await;
            }
            results.record(result.is_ok());
            if results.successes >= self.success_threshold {
                return true;
            }
            if results.failures >= self.failure_threshold {
                return false;
            }
        }
    }

    /// Runs the liveness probe; returns when it fails.
    async fn run_liveness(&self, target: &ProbeTarget, started_at: Instant, report: &ReportFn<'_>) {
        let mut results = ConsecutiveResults::default();
        for period_index in current_period(self, started_at).. {
            let result = self.probe_at(target, started_at, period_index).await;
            if let Err(message) = &result
                && results.failures == 0
            {
                report(ProbeEvent::Failed { probe: "Liveness", message: message.clone() }).await;
            }
            results.record(result.is_ok());
            if results.failures >= self.failure_threshold {
                return;
            }
        }
    }

    /// Runs the readiness probe and reports every change.
    async fn run_readiness(&self, target: &ProbeTarget, started_at: Instant, report: &ReportFn<'_>) {
        let mut ready = self.probe_early(target, started_at).await;
        if ready {
            report(ProbeEvent::Ready).await;
        }
        let mut results = ConsecutiveResults::default();
        for period_index in current_period(self, started_at).saturating_add(u32::from(ready)).. {
            let result = self.probe_at(target, started_at, period_index).await;
            if let Err(message) = &result
                && results.failures == 0
            {
                report(ProbeEvent::Failed { probe: "Readiness", message: message.clone() }).await;
            }
            results.record(result.is_ok());
            if !ready && results.successes >= self.success_threshold {
                ready = true;
                report(ProbeEvent::Ready).await;
            } else if ready && results.failures >= self.failure_threshold {
                ready = false;
                report(ProbeEvent::Unready).await;
            }
        }
    }

    /// Probes early within the first period; returns `true` on the first success. Probes with a `successThreshold`
    /// above 1 are not run early.
    async fn probe_early(&self, target: &ProbeTarget, started_at: Instant) -> bool {
        let first_probe = Instant::now().max(self.start_of_period(started_at, 0));
        sleep_until(first_probe).await;
        let mut interval = Duration::from_millis(50);
        let mut delay = Duration::ZERO;
        while self.success_threshold == 1 && delay < self.period {
            sleep_until(instant_after(first_probe, delay)).await;
            if self.probe_once(target).await.is_ok() {
                return true;
            }
            delay = delay.saturating_add(interval);
            interval = interval.saturating_mul(2);
        }
        false
    }

    /// Waits for the start of a period, then probes.
    async fn probe_at(&self, target: &ProbeTarget, started_at: Instant, period_index: u32) -> Result<(), String> {
        sleep_until(self.start_of_period(started_at, period_index)).await;
        self.probe_once(target).await
    }

    fn start_of_period(&self, started_at: Instant, period_index: u32) -> Instant {
        instant_after(started_at, self.initial_delay.saturating_add(self.period.saturating_mul(period_index)))
    }

    async fn probe_once(&self, target: &ProbeTarget) -> Result<(), String> {
        let result = self.handler.run(target);
        timeout(self.timeout, result).await.unwrap_or_else(|_| Err(format!("no response within {:?}", self.timeout)))
    }
}

/// Returns the instant `delay` after `start`.
fn instant_after(start: Instant, delay: Duration) -> Instant {
    start.checked_add(delay.min(time::MAX_DURATION)).unwrap_or(start)
}

/// Returns the index of the first period that is not in the past.
fn current_period(probe: &Probe, started_at: Instant) -> u32 {
    let elapsed = Instant::now().saturating_duration_since(probe.start_of_period(started_at, 0));
    u32::try_from(elapsed.as_millis().div_ceil(probe.period.as_millis().max(1))).unwrap_or(u32::MAX)
}

// === impl ConsecutiveResults ===

impl ConsecutiveResults {
    fn record(&mut self, is_success: bool) {
        *self = match is_success {
            true => Self { successes: self.successes.saturating_add(1), failures: 0 },
            false => Self { successes: 0, failures: self.failures.saturating_add(1) },
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_defaults_and_named_ports() {
        let container = json!({
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {"httpGet": {"path": "health", "port": "http"}, "failureThreshold": 5},
            "livenessProbe": {"tcpSocket": {"port": 8001}, "initialDelaySeconds": 3},
        });
        let probes = Probes::new(&container);
        let readiness = probes.readiness.unwrap();
        assert_eq!((readiness.period.as_secs(), readiness.timeout.as_secs()), (10, 1));
        assert_eq!((readiness.success_threshold, readiness.failure_threshold), (1, 5));
        let ProbeHandler::HttpGet { port, path, .. } = readiness.handler else { panic!() };
        assert_eq!((port, path.as_str()), (8000, "/health"));
        let liveness = probes.liveness.unwrap();
        assert_eq!((liveness.initial_delay.as_secs(), liveness.handler), (3, ProbeHandler::TcpSocket { port: 8001 }));
        assert!(probes.startup.is_none());
    }
}
