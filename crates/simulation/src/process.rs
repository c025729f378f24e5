//! The processes that run against the API server: replicas of the operator, a gateway, and those of other crates.

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use apimachinery::catch_future_panic;
use cluster::{Health, LeaderElection};
use futures::future::BoxFuture;
use kube::Client;
use operator::{Metrics, Options};
use picker::{Scheduler, Snapshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::faults::Faults;
use crate::mistake::Mistake;
use crate::term_check::LEASE_NAMESPACE;
use crate::transport::Transport;

/// A configuration without metrics of engines, because there are no engines.
const GATEWAY_CONFIG: &str = "{apiVersion: inference.networking.x-k8s.io/v1alpha1, kind: EndpointPickerConfig,
    plugins: [{type: random-picker}]}";

/// What a process runs.
#[derive(Clone)]
pub(crate) enum Program {
    /// A replica of the operator.
    Operator,
    /// The watches of the gateway.
    Gateway,
    /// A process of another crate.
    Other(StartProcess),
}

/// Starts a process, which runs until it is dropped.
pub type StartProcess = Arc<dyn Fn(ProcessContext) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The connection and the clock of a process.
#[derive(Clone)]
pub struct ProcessContext {
    /// Connection to the API server, with the faults of the process.
    pub client: Client,
    /// Wall clock.
    pub clock: Clock,
}

/// A process.
pub(crate) struct Process {
    name: &'static str,
    pub(crate) program: Program,
    /// Wall clock of its machine.
    pub(crate) clock: Clock,
    /// Faults of its connection.
    pub(crate) faults: Faults,
    running: Option<Running>,
    /// Why it ended first, other than by a crash.
    exit_cause: Arc<OnceLock<String>>,
}

/// A running process.
struct Running {
    crashed: CancellationToken,
    /// Number of polls after which the process crashes.
    remaining_polls: Arc<AtomicU32>,
    /// The scheduler of a gateway.
    scheduler: Option<Arc<Scheduler>>,
    /// Health and metrics of a replica of the operator.
    health: Option<(Arc<Health>, Arc<Metrics>)>,
    task: AbortOnDropHandle<()>,
}

// === impl Program ===

impl Program {
    pub(crate) fn is_operator(&self) -> bool {
        matches!(self, Program::Operator)
    }
}

// === impl Process ===

impl Process {
    /// Returns a process that is not running.
    pub(crate) fn new(name: &'static str, program: Program) -> Self {
        Self {
            name,
            program,
            clock: Clock::start(),
            faults: Faults::default(),
            running: None,
            exit_cause: Arc::default(),
        }
    }

    /// Returns the name of the process. That of a replica is its identity in the Lease.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.task.is_finished())
    }

    /// Returns the pools of a running gateway.
    pub(crate) fn pools(&self) -> Option<Arc<Snapshot>> {
        Some(self.running.as_ref()?.scheduler.as_ref()?.snapshot())
    }

    /// Makes the process crash at its poll number `polls` from now on, or not at all.
    pub(crate) fn crash_after(&self, polls: Option<u32>) {
        if let Some(running) = &self.running {
            running.remaining_polls.store(polls.unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// Crashes the process now.
    pub(crate) fn crash(&mut self) {
        if let Some(running) = self.running.take() {
            running.crashed.cancel();
        }
    }

    /// Starts the process with this connection, which `crashed` ends.
    pub(crate) fn start(&mut self, transport: Transport, crashed: CancellationToken) {
        let (mistake, stop) = (transport.mistake, crashed.child_token());
        let client = transport.client();
        let remaining_polls = Arc::new(AtomicU32::new(u32::MAX));
        let (polls, exit_cause) = (Arc::clone(&remaining_polls), Arc::clone(&self.exit_cause));
        let (mut scheduler, mut health) = (None, None);
        let task = match &self.program {
            Program::Operator => {
                let options = self.options(mistake);
                health = Some((Arc::clone(&options.health), Arc::clone(&options.metrics)));
                let operator = operator::run(client, options, stop);
                tokio::spawn(run_until_crash(operator, polls, crashed.clone(), exit_cause))
            }
            Program::Gateway => {
                let pools = Arc::new(gateway_scheduler());
                scheduler = Some(Arc::clone(&pools));
                let watches =
                    picker::watch_pools(client, pools, picker::WatchOptions::new(Arc::new(self.clock.clone())), stop);
                tokio::spawn(run_until_crash(watches, polls, crashed.clone(), exit_cause))
            }
            Program::Other(start) => {
                let process = start(ProcessContext { client, clock: self.clock.clone() });
                tokio::spawn(run_until_crash(process, polls, crashed.clone(), exit_cause))
            }
        };
        let task = AbortOnDropHandle::new(task);
        self.running = Some(Running { crashed, remaining_polls, scheduler, health, task });
    }

    /// Returns why the process ended, or a task of the operator failed, other than by a crash.
    pub(crate) fn failure(&self) -> Option<String> {
        if let Some(cause) = self.exit_cause.get() {
            return Some(cause.clone());
        }
        let (health, metrics) = self.running.as_ref()?.health.as_ref()?;
        let statuses = health.task_statuses();
        let restarted = statuses.borrow().values().find(|status| status.restarts > 0).map(|status| status.name.clone());
        let restarted = restarted.map(|name| format!("the {name} was restarted"));
        restarted.or_else(|| (metrics.panics() > 0).then(|| "an operation panicked".to_owned()))
    }

    /// Returns why a replica of the operator is not live or not ready.
    pub(crate) fn outage(&self) -> Option<String> {
        let (health, _) = self.running.as_ref()?.health.as_ref()?;
        health.check_liveness().and_then(|()| health.check_readiness()).err()
    }

    fn options(&self, mistake: Option<Mistake>) -> Options {
        let leader_election = LeaderElection {
            namespace: LEASE_NAMESPACE.to_owned(),
            name: operator::LEASE_NAME.to_owned(),
            identity: self.name.to_owned(),
            timings: cluster::LeaderElectionTimings::default(),
        };
        Options {
            clock: Arc::new(self.clock.clone()),
            leader_election: (mistake != Some(Mistake::NoLeaderElection)).then_some(leader_election),
            ..Options::default()
        }
    }
}

fn gateway_scheduler() -> Scheduler {
    let config = picker::parse_config(GATEWAY_CONFIG);
    Scheduler::new(config.map(|config| config.policy).unwrap_or_default(), 0)
}

/// Polls `process` until its number of polls is used up, and then drops it between two of its steps. Records its own end.
async fn run_until_crash<E: Display>(
    process: impl Future<Output = Result<(), E>>,
    remaining_polls: Arc<AtomicU32>,
    crashed: CancellationToken,
    exit_cause: Arc<OnceLock<String>>,
) {
    let mut process = pin!(catch_future_panic(process));
    poll_fn(|context| {
        let polls = remaining_polls.load(Ordering::Relaxed);
        if polls == 0 || crashed.is_cancelled() {
            return Poll::Ready(());
        }
        if polls < u32::MAX {
            remaining_polls.store(polls - 1, Ordering::Relaxed);
        }
        process.as_mut().poll(context).map(|outcome| {
            let cause = match outcome {
                Ok(Ok(())) => "it ended".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic.to_string(),
            };
            exit_cause.get_or_init(|| cause);
        })
    })
    .await;
    crashed.cancel();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_of_the_gateway_is_valid() {
        picker::parse_config(GATEWAY_CONFIG).unwrap();
    }
}
