//! The processes of the control plane that run against the API server: replicas of the operator, and a gateway.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use cluster::LeaderElection;
use operator::Options;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// A replica of the operator.
    Operator,
    /// The watches of the gateway.
    Gateway,
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
}

/// A running process.
struct Running {
    crashed: CancellationToken,
    /// Number of polls after which the process crashes.
    remaining_polls: Arc<AtomicU32>,
    /// The scheduler of a gateway.
    scheduler: Option<Arc<Scheduler>>,
    task: AbortOnDropHandle<()>,
}

// === impl Process ===

impl Process {
    /// Returns a process that is not running.
    pub(crate) fn new(name: &'static str, program: Program) -> Self {
        Self { name, program, clock: Clock::start(), faults: Faults::default(), running: None }
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
        let polls = Arc::clone(&remaining_polls);
        let (task, scheduler) = match self.program {
            Program::Operator => {
                let operator = operator::run(client, self.options(mistake), stop);
                (tokio::spawn(run_until_crash(operator, polls, crashed.clone())), None)
            }
            Program::Gateway => {
                let scheduler = Arc::new(gateway_scheduler());
                let watches = picker::watch_pools(client, Arc::clone(&scheduler), stop);
                (tokio::spawn(run_until_crash(watches, polls, crashed.clone())), Some(scheduler))
            }
        };
        self.running = Some(Running { crashed, remaining_polls, scheduler, task: AbortOnDropHandle::new(task) });
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

/// Polls `process` until its number of polls is used up, and then drops it between two of its steps.
async fn run_until_crash(process: impl Future, remaining_polls: Arc<AtomicU32>, crashed: CancellationToken) {
    let mut process = pin!(process);
    poll_fn(|context| {
        let polls = remaining_polls.load(Ordering::Relaxed);
        if polls == 0 || crashed.is_cancelled() {
            return Poll::Ready(());
        }
        if polls < u32::MAX {
            remaining_polls.store(polls - 1, Ordering::Relaxed);
        }
        process.as_mut().poll(context).map(|_| ())
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
