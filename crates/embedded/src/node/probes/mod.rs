//! Startup, readiness and liveness probes.
//!
//! As a kubelet does them, with one difference: until a container has been ready once, it is also asked between the
//! regular turns, after 50 ms and then at doubling distances. A failure of such an early question does not count, a success
//! does, so an engine is ready when it answers and not up to `periodSeconds` later.

mod http_get;
mod question;

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};

pub(super) use question::Question;
pub(crate) use question::Target;

/// One probe, with Kubernetes' defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe {
    delay: Duration,
    period: Duration,
    timeout: Duration,
    /// Successes in a row until it passes.
    passes: u32,
    /// Failures in a row until it fails.
    fails: u32,
    question: Question,
}

/// The probes of one container.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probes {
    startup: Option<Probe>,
    readiness: Option<Probe>,
    liveness: Option<Probe>,
}

/// What the probes found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    Started,
    Ready,
    Unready,
    /// The first failure of a row: which probe, and why.
    Failed {
        probe: &'static str,
        why: String,
    },
}

/// Counts answers in a row.
#[derive(Debug, Default)]
struct Tally {
    passed: u32,
    failed: u32,
}

impl Probes {
    /// Reads a container's probes; port names are those of the container.
    pub(crate) fn of(container: &Value) -> Self {
        let probe = |field: &str| Probe::of(container.get(field)?, container);
        Self { startup: probe("startupProbe"), readiness: probe("readinessProbe"), liveness: probe("livenessProbe") }
    }

    /// Asks until a startup or liveness probe fails for good; returns which one.
    pub(crate) async fn watch(&self, target: &Target, tell: &(dyn Fn(Finding) + Send + Sync)) -> &'static str {
        let born = Instant::now();
        if let Some(startup) = &self.startup
            && !startup.until_passed(target, born, tell).await
        {
            return "startup";
        }
        tell(Finding::Started);
        let liveness = async {
            match &self.liveness {
                Some(probe) => probe.until_failed(target, born, tell).await,
                None => std::future::pending().await,
            }
        };
        let readiness = async {
            match &self.readiness {
                Some(probe) => probe.forever(target, born, tell).await,
                None => tell(Finding::Ready),
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = liveness => "liveness",
            () = readiness => "readiness",
        }
    }
}

impl Probe {
    fn of(spec: &Value, container: &Value) -> Option<Self> {
        let number = |field: &str, default: u32| {
            spec.get(field).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).unwrap_or(default)
        };
        let seconds = |field, default| Duration::from_secs(u64::from(number(field, default)));
        Some(Self {
            delay: seconds("initialDelaySeconds", 0),
            period: seconds("periodSeconds", 10).max(Duration::from_secs(1)),
            timeout: seconds("timeoutSeconds", 1).max(Duration::from_secs(1)),
            passes: number("successThreshold", 1).max(1),
            fails: number("failureThreshold", 3).max(1),
            question: Question::of(spec, container)?,
        })
    }

    /// The startup probe: true when it passed, false when it failed for good.
    async fn until_passed(&self, target: &Target, born: Instant, tell: &(dyn Fn(Finding) + Send + Sync)) -> bool {
        if self.eagerly(target, born).await {
            return true;
        }
        let (mut tally, mut turn) = (Tally::default(), 1);
        loop {
            let result = self.ask(target, born, turn).await;
            turn += 1;
            if let Err(why) = &result
                && tally.failed == 0
            {
                tell(Finding::Failed { probe: "Startup", why: why.clone() });
            }
            tally.count(result.is_ok());
            if tally.passed >= self.passes {
                return true;
            }
            if tally.failed >= self.fails {
                return false;
            }
        }
    }

    /// The liveness probe: returns when it failed for good.
    async fn until_failed(&self, target: &Target, born: Instant, tell: &(dyn Fn(Finding) + Send + Sync)) {
        let mut tally = Tally::default();
        for turn in turn_now(self, born).. {
            let result = self.ask(target, born, turn).await;
            if let Err(why) = &result
                && tally.failed == 0
            {
                tell(Finding::Failed { probe: "Liveness", why: why.clone() });
            }
            tally.count(result.is_ok());
            if tally.failed >= self.fails {
                return;
            }
        }
    }

    /// The readiness probe: tells every change.
    async fn forever(&self, target: &Target, born: Instant, tell: &(dyn Fn(Finding) + Send + Sync)) {
        let mut ready = self.eagerly(target, born).await;
        if ready {
            tell(Finding::Ready);
        }
        let mut tally = Tally::default();
        for turn in turn_now(self, born) + u32::from(ready).. {
            let result = self.ask(target, born, turn).await;
            if let Err(why) = &result
                && tally.failed == 0
            {
                tell(Finding::Failed { probe: "Readiness", why: why.clone() });
            }
            tally.count(result.is_ok());
            if !ready && tally.passed >= self.passes {
                ready = true;
                tell(Finding::Ready);
            } else if ready && tally.failed >= self.fails {
                ready = false;
                tell(Finding::Unready);
            }
        }
    }

    /// Early questions within the first period; true at the first success. Not for a probe that wants several.
    async fn eagerly(&self, target: &Target, born: Instant) -> bool {
        let begin = Instant::now().max(born + self.delay);
        sleep_until(begin).await;
        let mut distance = Duration::from_millis(50);
        let mut at = begin;
        while self.passes == 1 && at < begin + self.period {
            sleep_until(at).await;
            if self.answer(target).await.is_ok() {
                return true;
            }
            at += distance;
            distance *= 2;
        }
        false
    }

    /// Waits for a turn and asks.
    async fn ask(&self, target: &Target, born: Instant, turn: u32) -> Result<(), String> {
        sleep_until(born + self.delay + self.period * turn).await;
        self.answer(target).await
    }

    async fn answer(&self, target: &Target) -> Result<(), String> {
        let answer = self.question.put(target);
        timeout(self.timeout, answer).await.unwrap_or_else(|_| Err(format!("no answer within {:?}", self.timeout)))
    }
}

/// The first regular turn that is not in the past.
fn turn_now(probe: &Probe, born: Instant) -> u32 {
    let since = Instant::now().saturating_duration_since(born + probe.delay);
    u32::try_from(since.as_millis().div_ceil(probe.period.as_millis().max(1))).unwrap_or(u32::MAX)
}

impl Tally {
    fn count(&mut self, passed: bool) {
        *self = match passed {
            true => Self { passed: self.passed + 1, failed: 0 },
            false => Self { passed: 0, failed: self.failed + 1 },
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_and_named_ports() {
        let container = json!({
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {"httpGet": {"path": "health", "port": "http"}, "failureThreshold": 5},
            "livenessProbe": {"tcpSocket": {"port": 8001}, "initialDelaySeconds": 3},
        });
        let probes = Probes::of(&container);
        let readiness = probes.readiness.unwrap();
        assert_eq!((readiness.period.as_secs(), readiness.timeout.as_secs()), (10, 1));
        assert_eq!((readiness.passes, readiness.fails), (1, 5));
        let Question::Http { port, path, .. } = readiness.question else { panic!() };
        assert_eq!((port, path.as_str()), (8000, "/health"));
        let liveness = probes.liveness.unwrap();
        assert_eq!((liveness.delay.as_secs(), liveness.question), (3, Question::Connect { port: 8001 }));
        assert!(probes.startup.is_none());
    }
}
