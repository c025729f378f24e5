//! Leader election among operator replicas.

use std::sync::Arc;

use cluster::{Clock, LeaderElectionTimings, LeaderElector};
use kube::Client;

use crate::health::{Health, Part};

/// Default name of the Lease.
pub const LEASE_NAME: &str = "ostler-operator";

/// Options of leader election.
#[derive(Clone, Debug)]
pub struct LeaderElection {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease, by default [`LEASE_NAME`]. Operators for different namespaces need different Leases.
    pub name: String,
    /// Identity of this replica, unique among all replicas: the Pod name and a random suffix.
    pub identity: String,
    /// Lease duration, renew deadline and retry period.
    pub timings: LeaderElectionTimings,
}

// === impl LeaderElection ===

impl LeaderElection {
    /// Creates the elector of this replica, which is not ready before it has read the Lease once.
    pub(crate) fn elector(&self, client: Client, clock: Arc<dyn Clock>, health: Arc<Health>) -> LeaderElector {
        let lease = format!("{}/{}", self.namespace, self.name);
        health.set_not_ready(Part::Lease, format!("waiting for the first read of Lease {lease}"));
        LeaderElector {
            client,
            clock,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            identity: self.identity.clone(),
            timings: self.timings,
            on_lease_read: Arc::new(move || health.set_ready(Part::Lease)),
        }
    }
}
