//! Liveness and readiness of a controller, for its probes.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use supervisor::{Supervisor, TaskStatuses};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::watch::UnsyncedWatch;

/// Maximum time without progress of the control loop or of a reconcile. Requests to the API server fail much earlier, and
/// a reconcile makes progress whenever a request ends, so only a defect exceeds it.
const STALL_LIMIT: Duration = Duration::from_secs(180);

/// Liveness and readiness of one controller.
#[derive(Debug)]
pub struct Health {
    state: Mutex<State>,
    /// The background tasks of the controller. It is not ready while one of them does not run.
    pub supervisor: Supervisor,
}

#[derive(Debug, Default)]
struct State {
    /// When the control loop started to compute; `None` while it waits.
    loop_started: Option<Instant>,
    /// Running reconciles, and when each of them last made progress.
    reconciles: BTreeMap<String, Instant>,
    /// Why parts of the controller are not ready.
    not_ready: BTreeMap<Part, String>,
}

/// Part of a controller that must be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The control loop, while this replica leads.
    ControlLoop,
    /// Leader election, which requires that the Lease can be read.
    Lease,
    /// The caches of the admission webhook.
    WebhookCaches,
    /// The server of the admission webhook, which requires a certificate.
    WebhookServer,
}

/// Reports that the control loop has stopped when it is complete or dropped.
struct RunningLoop<'a>(&'a Health);

/// Removes a reconcile from [`State::reconciles`] when it is complete or dropped.
struct RunningReconcile<'a> {
    health: &'a Health,
    item: String,
}

// === impl Health ===

impl Default for Health {
    /// Returns the health of a controller that has not started.
    fn default() -> Health {
        let health = Health { state: Mutex::default(), supervisor: Supervisor::default() };
        health.set_not_ready(Part::ControlLoop, "the controller is starting");
        health
    }
}

impl Health {
    /// Returns why the control loop or a reconcile makes no progress.
    ///
    /// # Errors
    /// The control loop or a reconcile has made no progress for three minutes.
    pub fn check_liveness(&self) -> Result<(), String> {
        let state = self.state();
        let seconds = |since: &Instant| Some(since.elapsed()).filter(|age| *age > STALL_LIMIT).map(|age| age.as_secs());
        if let Some(seconds) = state.loop_started.as_ref().and_then(seconds) {
            return Err(format!("the control loop has made no progress for {seconds} s"));
        }
        match state.reconciles.iter().find_map(|(item, since)| Some((item, seconds(since)?))) {
            Some((item, seconds)) => Err(format!("the reconcile of {item} has made no progress for {seconds} s")),
            None => Ok(()),
        }
    }

    /// Returns why the controller is not ready, one line per reason.
    ///
    /// # Errors
    /// Caches are not synced, the Lease of leader election has not been read, the admission webhook has no certificate, or a background task does not run.
    pub fn check_readiness(&self) -> Result<(), String> {
        let mut reasons: Vec<String> = self.state().not_ready.values().cloned().collect();
        reasons.extend(self.supervisor.outages());
        if reasons.is_empty() { Ok(()) } else { Err(reasons.join("\n")) }
    }

    /// Returns a receiver of the states of the controller's background tasks. It is notified when a task fails or is restarted.
    #[must_use]
    pub fn task_statuses(&self) -> watch::Receiver<TaskStatuses> {
        self.supervisor.statuses()
    }

    /// Reports that a part is not ready.
    pub fn set_not_ready(&self, part: Part, reason: impl Into<String>) {
        self.state().not_ready.insert(part, reason.into());
    }

    /// Reports that a part is ready, or not in use.
    pub fn set_ready(&self, part: Part) {
        self.state().not_ready.remove(&part);
    }

    /// Reports a part as ready if no cache is unsynced.
    pub fn report_unsynced(&self, part: Part, unsynced: &[UnsyncedWatch]) {
        match unsynced_message(unsynced) {
            None => self.set_ready(part),
            Some(message) => self.set_not_ready(part, message),
        }
    }

    /// Runs the control loop and observes whether it makes progress. The part [`Part::ControlLoop`] is ready once the loop has
    /// ended, since another replica may lead.
    pub async fn observe_loop<F: Future>(&self, control_loop: F) -> F::Output {
        let _running = RunningLoop(self);
        let mut control_loop = pin!(control_loop);
        poll_fn(|context| {
            self.state().loop_started = Some(Instant::now());
            let poll = control_loop.as_mut().poll(context);
            self.state().loop_started = None;
            poll
        })
        .await
    }

    /// Runs the reconcile of `item` and observes whether it makes progress.
    pub async fn observe_reconcile<F: Future>(&self, item: &impl ToString, reconcile: F) -> F::Output {
        let running = RunningReconcile { health: self, item: item.to_string() };
        let mut reconcile = pin!(reconcile);
        poll_fn(|context| {
            running.report_progress();
            reconcile.as_mut().poll(context)
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the caches that wait for their first list in one line, and each that cannot be listed in a line of its own.
fn unsynced_message(unsynced: &[UnsyncedWatch]) -> Option<String> {
    let (mut waiting, mut lines) = (Vec::new(), Vec::new());
    for UnsyncedWatch { kind, namespace, error } in unsynced {
        let scope = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
        let objects = format!("{}{scope}", kind.group_resource());
        match error {
            None => waiting.push(objects),
            Some(error) => lines.push(format!("failed to list {objects}: {error}")),
        }
    }
    // Several watches of one kind may have different label selectors.
    lines.dedup();
    if !waiting.is_empty() {
        lines.insert(0, format!("waiting for the first list of {}", waiting.join(", ")));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

// === impl RunningLoop ===

impl Drop for RunningLoop<'_> {
    fn drop(&mut self) {
        self.0.state().loop_started = None;
        self.0.set_ready(Part::ControlLoop);
    }
}

// === impl RunningReconcile ===

impl RunningReconcile<'_> {
    fn report_progress(&self) {
        let mut state = self.health.state();
        match state.reconciles.get_mut(&self.item) {
            Some(progress) => *progress = Instant::now(),
            None => drop(state.reconciles.insert(self.item.clone(), Instant::now())),
        }
    }
}

impl Drop for RunningReconcile<'_> {
    fn drop(&mut self) {
        self.health.state().reconciles.remove(&self.item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use futures::StreamExt as _;
    use futures::future::{join, pending};
    use futures::stream::FuturesUnordered;
    use tokio::time::{advance, sleep, timeout};

    #[tokio::test(start_paused = true)]
    async fn waiting_loop_is_alive() {
        let health = Health::default();
        timeout(Duration::from_secs(86_400), health.observe_loop(pending::<()>())).await.unwrap_err();
        let observed = health.observe_loop(async {
            sleep(Duration::from_secs(86_400)).await;
            health.check_liveness()
        });
        assert_eq!(observed.await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn computation_that_does_not_end_is_reported() {
        let health = Health::default();
        let result = health.observe_loop(async {
            // The clock advances without returning to the runtime, as in an endless computation.
            let clock = std::pin::pin!(advance(Duration::from_secs(181)));
            let _ = futures::poll!(clock);
            health.check_liveness()
        });
        assert_eq!(result.await, Err("the control loop has made no progress for 181 s".to_owned()));
        assert_eq!(health.check_liveness(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn reconcile_that_never_wakes_is_reported_until_it_is_dropped() {
        let health = Health::default();
        let item = "AcceleratorClass h100";
        let reconcile = timeout(Duration::from_secs(300), health.observe_reconcile(&item, pending::<()>()));
        let check = async {
            sleep(Duration::from_secs(179)).await;
            let early = health.check_liveness();
            sleep(Duration::from_secs(3)).await;
            (early, health.check_liveness())
        };
        // Unlike `join`, this polls a future only after it woke.
        let mut reconciles = FuturesUnordered::from_iter([reconcile]);
        let (_, (early, late)) = join(reconciles.next(), check).await;
        assert_eq!(early, Ok(()));
        assert_eq!(late, Err("the reconcile of AcceleratorClass h100 has made no progress for 182 s".to_owned()));
        assert_eq!(health.check_liveness(), Ok(()));
    }

    /// Each request has a deadline, so the reconcile wakes in time.
    #[tokio::test(start_paused = true)]
    async fn slow_reconcile_is_alive() {
        let health = Health::default();
        let item = "AcceleratorClass h100";
        let reconcile = health.observe_reconcile(&item, async {
            for _ in 0..100 {
                sleep(Duration::from_secs(30)).await;
                health.check_liveness()?;
            }
            Ok(())
        });
        assert_eq!(reconcile.await, Ok::<_, String>(()));
    }

    #[test]
    fn readiness_names_every_reason() {
        let health = Health::default();
        assert_eq!(health.check_readiness(), Err("the controller is starting".to_owned()));
        let unsynced = |(group, kind, plural), namespace: &str, error: Option<&str>| UnsyncedWatch {
            kind: Kind::namespaced(group, "v1", kind, plural),
            namespace: namespace.to_owned(),
            error: error.map(str::to_owned),
        };
        let forbidden = unsynced(("", "Service", "services"), "team-a", Some("services is forbidden"));
        let pods = unsynced(("", "Pod", "pods"), "", None);
        let services = unsynced(("ome.io", "InferenceService", "inferenceservices"), "", None);
        let unsynced = [pods, forbidden, services];
        health.report_unsynced(Part::ControlLoop, &unsynced);
        health.set_not_ready(Part::WebhookServer, "the admission webhook has no certificate");
        assert_eq!(
            health.check_readiness(),
            Err("waiting for the first list of pods, inferenceservices.ome.io\n\
                failed to list services in namespace team-a: services is forbidden\n\
                the admission webhook has no certificate"
                .to_owned())
        );
        health.report_unsynced(Part::ControlLoop, &[]);
        health.set_ready(Part::WebhookServer);
        assert_eq!(health.check_readiness(), Ok(()));
    }
}
