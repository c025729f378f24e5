//! The one place that several operators compete for.

use std::sync::Arc;

use cluster::lease::Terms;
use cluster::{Clock, Election};
use kube::Client;

/// Name of the lease.
pub(crate) const LEASE: &str = "ostler-operator";

/// How an operator takes part in the election.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Namespace of the lease `ostler-operator`.
    pub namespace: String,
    /// Unique among the replicas; a Pod's name and a random part.
    pub identity: String,
    /// How long things take.
    pub terms: Terms,
}

// === impl Seat ===

impl Seat {
    pub(crate) fn election(&self, client: Client, clock: Arc<dyn Clock>) -> Election {
        Election {
            client,
            clock,
            namespace: self.namespace.clone(),
            name: LEASE.to_owned(),
            identity: self.identity.clone(),
            terms: self.terms,
        }
    }
}
