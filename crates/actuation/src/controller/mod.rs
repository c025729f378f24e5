//! Runs a [`Coordinator`] against a Kubernetes API: delivers changes and answers to it, and carries out its decisions.

mod execute;

use std::collections::BTreeSet;
use std::time::Duration;

use api::dual_pods::GPU_MAP;
use apimachinery::catch_future_panic;
use cluster::{Change, Clock, GuardedWriter, Stores, SystemClock, Watches};
use kube::Client;
use supervisor::Supervisor;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::action::Action;
use crate::answer::CallResult;
use crate::call::{Call, CallError, CallErrorKind};
use crate::coordinator::{
    CONFIG_MAP, Coordinator, Decision, Time, WriteError, WriteResults, cache_policy, watched_kinds,
};
use crate::http::perform;
use crate::settings::Settings;
use execute::execute;

/// Field manager of the controller's writes.
const FIELD_MANAGER: &str = "ostler-actuation";
/// Interval at which the loop checks whether the initial lists are complete.
const SYNC_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of writes at a time.
const MAX_WRITES: usize = 64;
/// Maximum number of changes that are handled before decisions are made.
const MAX_CHANGES_PER_ROUND: usize = 256;

/// Options of the controller.
#[derive(Clone)]
pub struct ControllerOptions {
    /// Client whose writes are sent only while the controller leads.
    pub client: Client,
    /// Namespaces of requesters and providers; empty: all.
    pub namespaces: Vec<String>,
    /// Namespace of the controller, whose `gpu-map` is read for requesters of namespaces without one.
    pub namespace: String,
    /// Settings.
    pub settings: Settings,
}

/// One term of leadership.
struct Term {
    coordinator: Coordinator,
    watches: Watches,
    changes: mpsc::Receiver<Change>,
    writer: GuardedWriter,
    calls: JoinSet<(Call, CallResult)>,
    writes: JoinSet<(Decision, WriteResults)>,
}

/// Runs the controller for one term of leadership, until `stop` is cancelled; then it completes the writes in progress. The
/// calls in progress end when the returned future is dropped.
pub async fn run_controller(options: ControllerOptions, stop: CancellationToken) {
    let supervisor = Supervisor::default();
    let stores = Stores::with_cache_policy(FIELD_MANAGER, cache_policy);
    let (mut watches, changes) = Watches::new(options.client.clone(), stores.clone(), supervisor, stop.child_token());
    start_watches(&mut watches, &options);
    let term = Term {
        coordinator: Coordinator::new(options.settings, stores.clone(), options.namespace),
        watches,
        changes,
        writer: GuardedWriter::new(options.client, stores, FIELD_MANAGER),
        calls: JoinSet::new(),
        writes: JoinSet::new(),
    };
    term.run(&stop).await;
}

fn start_watches(watches: &mut Watches, options: &ControllerOptions) {
    watches.restrict_to(&options.namespaces);
    for kind in watched_kinds() {
        if kind != CONFIG_MAP {
            watches.start(kind);
        }
    }
    let mut namespaces: BTreeSet<String> = options.namespaces.iter().cloned().collect();
    if !namespaces.is_empty() {
        namespaces.insert(options.namespace.clone());
    }
    watches.start_named_in(CONFIG_MAP, GPU_MAP, &namespaces);
}

// === impl Term ===

impl Term {
    async fn run(mut self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            self.handle_arrived();
            self.start_decisions();
            self.wait(stop).await;
        }
        while self.writes.join_next().await.is_some() {}
    }

    fn handle_arrived(&mut self) {
        for _ in 0..MAX_CHANGES_PER_ROUND {
            let Ok(change) = self.changes.try_recv() else { break };
            self.coordinator.observe(&change);
        }
    }

    /// Starts what the coordinator decides. Decisions wait until the caches are complete.
    fn start_decisions(&mut self) {
        while self.watches.have_synced() && self.writes.len() < MAX_WRITES {
            let Some(decision) = self.coordinator.next(now()) else { return };
            if let Some(Action::Call(call)) = &decision.action {
                self.calls.spawn(perform_call(call.clone()));
            }
            let has_write = matches!(decision.action, Some(Action::Write(_)));
            if has_write || !decision.statuses.is_empty() {
                self.writes.spawn(carry_out(self.writer.clone(), decision));
            }
        }
    }

    /// Waits for a change, a result, a due time or the end.
    async fn wait(&mut self, stop: &CancellationToken) {
        let poll = (!self.watches.have_synced()).then(|| Instant::now() + SYNC_POLL_INTERVAL);
        let due = poll.or_else(|| self.coordinator.next_due().filter(|_| self.writes.len() < MAX_WRITES));
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            Some(Ok((decision, results))) = self.writes.join_next() => self.coordinator.done(&decision, results, now()),
            Some(Ok((call, result))) = self.calls.join_next() => {
                tracing::debug!(purpose = call.request.purpose(), ip = call.ip, ok = result.is_ok(), "HTTP call done");
                self.coordinator.answer(&call, &result, now());
            }
            Some(change) = self.changes.recv() => self.coordinator.observe(&change),
        }
    }
}

async fn perform_call(call: Call) -> (Call, CallResult) {
    let result = catch_future_panic(perform(&call)).await;
    let result =
        result.unwrap_or_else(|panic| Err(CallError { kind: CallErrorKind::NoResponse, message: panic.to_string() }));
    (call, result)
}

async fn carry_out(writer: GuardedWriter, decision: Decision) -> (Decision, WriteResults) {
    let results = catch_future_panic(execute(&writer, &decision)).await;
    let failed = |message| WriteResults { rejected_statuses: Vec::new(), action: Err(WriteError::Failed(message)) };
    let results = results.unwrap_or_else(|panic| failed(panic.to_string()));
    if let Err(error) = &results.action {
        tracing::warn!(node = decision.node, %error, "failed to write");
    }
    (decision, results)
}

fn now() -> Time {
    Time { wall: SystemClock.now(), monotonic: Instant::now() }
}
