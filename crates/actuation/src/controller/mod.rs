//! Runs a [`Coordinator`] against a Kubernetes API: delivers changes and answers to it, and carries out its decisions.

mod actuation_time;
mod engine_gauges;
mod event_queue;
mod execute;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::dual_pods::GPU_MAP;
use apimachinery::catch_future_panic;
use cluster::{
    Change, Clock, ControllerRunner, EventRecorder, GuardedWriter, Health, LeaderElection, Part, Stores, SystemClock,
    Watches,
};
use kube::Client;
use supervisor::TaskFailure;
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
use crate::event::{PodEvent, instance_event, transition_event};
use crate::http::perform;
use crate::metrics::Metrics;
use crate::names::FIELD_MANAGER;
use crate::settings::Settings;
use actuation_time::completed_actuation;
use engine_gauges::EngineGauges;
use event_queue::EventPublisher;
use execute::{Executor, execute};

/// Controller that Events name.
const REPORTING_CONTROLLER: &str = "ostler.io/actuation";
/// Interval at which the loop checks whether the initial lists are complete.
const SYNC_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of writes at a time.
const MAX_WRITES: usize = 64;
/// Maximum number of changes that are handled before decisions are made.
const MAX_CHANGES_PER_ROUND: usize = 256;

/// Options of the controller.
#[derive(Clone)]
pub struct ControllerOptions {
    /// Client of the controller.
    pub client: Client,
    /// Leader election among several replicas; `None` if this is the only replica.
    pub leader_election: Option<LeaderElection>,
    /// Namespaces of requesters and providers; empty: all.
    pub namespaces: Vec<String>,
    /// Namespace of the controller, whose `gpu-map` is read for requesters of namespaces without one.
    pub namespace: String,
    /// Settings.
    pub settings: Settings,
    /// Metrics of the controller.
    pub metrics: Arc<Metrics>,
    /// Liveness and readiness of the controller.
    pub health: Arc<Health>,
}

/// One term of leadership.
struct Term {
    coordinator: Coordinator,
    watches: Watches,
    changes: mpsc::Receiver<Change>,
    executor: Executor,
    publisher: EventPublisher,
    calls: JoinSet<FinishedCall>,
    writes: JoinSet<(Decision, WriteResults)>,
    engine_gauges: EngineGauges,
    health: Arc<Health>,
}

struct FinishedCall {
    call: Call,
    result: CallResult,
    duration: Duration,
}

/// Runs the controller until `stop` is cancelled; with leader election, only while it leads. After `stop`, it completes the
/// writes in progress, and then releases the Lease, in at most 9 s together.
///
/// # Errors
/// A background task has panicked or ended repeatedly; the controller has stopped as after `stop`. Requests that the API server
/// rejects are retried.
pub async fn run_controller(options: ControllerOptions, stop: CancellationToken) -> Result<(), TaskFailure> {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        namespaces = options.namespaces.join(","),
        namespace = options.namespace,
        leader_election = options.leader_election.is_some(),
        settings = ?options.settings,
        "starting the controller of dual pods"
    );
    let runner = ControllerRunner {
        client: options.client.clone(),
        clock: Arc::new(SystemClock),
        leader_election: options.leader_election.clone(),
        health: Arc::clone(&options.health),
    };
    runner.run(stop, |client, stop| run_term(&options, client, stop)).await
}

/// Runs one term of leadership, until `stop` is cancelled; then it completes the writes in progress. The calls in progress end when
/// the returned future is dropped.
async fn run_term(options: &ControllerOptions, client: Client, stop: CancellationToken) {
    let (health, metrics) = (Arc::clone(&options.health), Arc::clone(&options.metrics));
    let stores = Stores::with_cache_policy(FIELD_MANAGER, cache_policy);
    // The watches end with the term.
    let watches_stop = stop.child_token();
    let _end = watches_stop.clone().drop_guard();
    let (mut watches, changes) = Watches::new(client.clone(), stores.clone(), health.supervisor.clone(), watches_stop);
    start_watches(&mut watches, options);
    let recorder = EventRecorder::new(client.clone(), Arc::new(SystemClock), REPORTING_CONTROLLER);
    let (events, publisher) = event_queue::start(recorder);
    let writer = GuardedWriter::new(client, stores.clone(), FIELD_MANAGER);
    let term = Term {
        coordinator: Coordinator::new(options.settings.clone(), stores, options.namespace.clone()),
        watches,
        changes,
        executor: Executor { writer, events, metrics: Arc::clone(&metrics) },
        publisher,
        calls: JoinSet::new(),
        writes: JoinSet::new(),
        engine_gauges: EngineGauges::new(metrics),
        health: Arc::clone(&health),
    };
    health.observe_loop(term.run(&stop)).await;
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
            self.health.report_unsynced(Part::ControlLoop, &self.watches.unsynced());
            self.start_decisions();
            self.engine_gauges.update(&self.coordinator);
            self.wait(stop).await;
        }
        let Term { mut writes, executor, publisher, .. } = self;
        while writes.join_next().await.is_some() {}
        drop(executor);
        publisher.close().await;
    }

    fn handle_arrived(&mut self) {
        for _ in 0..MAX_CHANGES_PER_ROUND {
            let Ok(change) = self.changes.try_recv() else { break };
            self.observe(&change);
        }
    }

    fn observe(&mut self, change: &Change) {
        self.coordinator.observe(change);
        self.engine_gauges.note_change();
    }

    /// Starts what the coordinator decides. Decisions wait until the caches are complete.
    fn start_decisions(&mut self) {
        while self.watches.have_synced() && self.writes.len() < MAX_WRITES {
            let Some(decision) = self.coordinator.next(now()) else { return };
            let mut event = None;
            match &decision.action {
                Some(Action::Call(call)) => {
                    let node = self.coordinator.node(&decision.node);
                    if let Some(event) = node.and_then(|node| instance_event(call, node)) {
                        self.executor.events.push(event);
                    }
                    self.calls.spawn(perform_call(call.clone()));
                    self.engine_gauges.note_change();
                }
                Some(Action::Write(write)) => {
                    event = self.coordinator.node(&decision.node).and_then(|node| transition_event(write, node));
                }
                None => {}
            }
            let has_write = matches!(decision.action, Some(Action::Write(_)));
            if has_write || !decision.statuses.is_empty() {
                self.writes.spawn(carry_out(self.executor.clone(), decision, event));
            }
        }
    }

    /// Waits for a change, a result, a due time or the end.
    async fn wait(&mut self, stop: &CancellationToken) {
        let poll = (!self.watches.have_synced()).then(|| Instant::now() + SYNC_POLL_INTERVAL);
        let due = poll.or_else(|| self.coordinator.next_due().filter(|_| self.writes.len() < MAX_WRITES));
        let due = due.into_iter().chain(self.engine_gauges.due()).min();
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            Some(Ok((decision, results))) = self.writes.join_next() => self.coordinator.done(&decision, results, now()),
            Some(Ok(finished)) = self.calls.join_next() => self.finish_call(&finished),
            Some(change) = self.changes.recv() => self.observe(&change),
        }
    }

    fn finish_call(&mut self, finished: &FinishedCall) {
        let (FinishedCall { call, result, duration }, metrics) = (finished, &self.executor.metrics);
        tracing::debug!(purpose = call.request.purpose(), ip = call.ip, ok = result.is_ok(), "HTTP call done");
        metrics.record_call(&call.request, result.as_ref().err(), *duration);
        let now = now();
        if let (Ok(_), Some((path, duration))) = (result, completed_actuation(&self.coordinator, call, now.wall)) {
            metrics.record_actuation(path, duration);
        }
        self.coordinator.answer(call, result, now);
        self.engine_gauges.note_change();
    }
}

async fn perform_call(call: Call) -> FinishedCall {
    let started = Instant::now();
    let result = catch_future_panic(perform(&call)).await;
    let result =
        result.unwrap_or_else(|panic| Err(CallError { kind: CallErrorKind::NoResponse, message: panic.to_string() }));
    FinishedCall { call, result, duration: started.elapsed() }
}

async fn carry_out(executor: Executor, decision: Decision, event: Option<PodEvent>) -> (Decision, WriteResults) {
    let results = catch_future_panic(execute(&executor, &decision, event)).await;
    let failed = |message| WriteResults { rejected_statuses: Vec::new(), action: Err(WriteError::Failed(message)) };
    let results = results.unwrap_or_else(|panic| failed(panic.to_string()));
    match &results.action {
        Ok(()) => {}
        // The next decision considers the change.
        Err(error @ (WriteError::Conflict | WriteError::NotFound)) => {
            tracing::debug!(node = decision.node, %error, "failed to write");
        }
        Err(error) => tracing::warn!(node = decision.node, %error, "failed to write"),
    }
    (decision, results)
}

fn now() -> Time {
    Time { wall: SystemClock.now(), monotonic: Instant::now() }
}
