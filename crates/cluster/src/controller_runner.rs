//! Runs a controller, alone or as one of several replicas of which one leads.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use supervisor::TaskFailure;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::health::{Health, Part};
use crate::leader_election::{LeaderElectionTimings, LeaderElector};

/// Timeout of the writes in progress after shutdown. Shutdown must not wait for an API server that does not respond.
const STOP_TIMEOUT: Duration = Duration::from_secs(7);

/// Options of leader election.
#[derive(Clone, Debug)]
pub struct LeaderElection {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease. Controllers for different namespaces need different Leases.
    pub name: String,
    /// Identity of this replica, unique among all replicas: the Pod name and a random suffix.
    pub identity: String,
    /// Lease duration, renew deadline and retry period.
    pub timings: LeaderElectionTimings,
}

/// Runs the work of a controller.
#[derive(Clone)]
pub struct ControllerRunner {
    /// Client of the controller.
    pub client: Client,
    /// Source of the times that are written into the Lease.
    pub clock: Arc<dyn Clock>,
    /// Leader election among several replicas; `None` if this is the only replica.
    pub leader_election: Option<LeaderElection>,
    /// Health of the controller, whose background tasks `work` starts.
    pub health: Arc<Health>,
}

// === impl ControllerRunner ===

impl ControllerRunner {
    /// Runs `work` until `stop` is cancelled; with leader election, in each term of leadership. `work` receives a client whose
    /// writes are sent only during the term, and a token that is cancelled when it has to complete its writes and return; after
    /// seven seconds it is dropped. The Lease is released then.
    ///
    /// # Errors
    /// A background task has panicked or ended repeatedly; `work` has stopped as after `stop`.
    pub async fn run<F: Future<Output = ()>>(
        &self,
        stop: CancellationToken,
        work: impl Fn(Client, CancellationToken) -> F,
    ) -> Result<(), TaskFailure> {
        let stop = stop.child_token();
        let run_term = async |client| {
            if complete_within(STOP_TIMEOUT, &stop, work(client, stop.clone())).await.is_none() {
                tracing::warn!("the API server does not respond, abandoning the writes in progress");
            }
        };
        let lead = async {
            match &self.leader_election {
                None => run_term(self.client.clone()).await,
                Some(leader_election) => {
                    // A standby has no control loop.
                    self.health.set_ready(Part::ControlLoop);
                    self.elector(leader_election).run(stop.clone(), run_term).await;
                }
            }
        };
        tokio::pin!(lead);
        let failure = tokio::select! {
            biased;
            () = &mut lead => return Ok(()),
            failure = self.health.supervisor.failed() => failure,
        };
        stop.cancel();
        lead.await;
        Err(failure)
    }

    /// Returns the elector of this replica, which is not ready before it has read the Lease once.
    fn elector(&self, leader_election: &LeaderElection) -> LeaderElector {
        let LeaderElection { namespace, name, identity, timings } = leader_election.clone();
        let health = Arc::clone(&self.health);
        health.set_not_ready(Part::Lease, format!("waiting for the first read of Lease {namespace}/{name}"));
        let on_lease_read = Arc::new(move || health.set_ready(Part::Lease));
        let (client, clock) = (self.client.clone(), Arc::clone(&self.clock));
        LeaderElector { client, clock, namespace, name, identity, timings, on_lease_read }
    }
}

/// Runs `work` to completion, or until `timeout` has passed since `stop` was cancelled.
async fn complete_within<T>(timeout: Duration, stop: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    let timed_out = async {
        stop.cancelled().await;
        tokio::time::sleep(timeout).await;
    };
    tokio::select! {
        biased;
        result = work => Some(result),
        () = timed_out => None,
    }
}
