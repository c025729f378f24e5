//! Flags of leader election among the replicas of a controller.

use cluster::LeaderElection;
use kube::Client;

use super::namespace_argument::parse_namespace;

#[derive(clap::Args)]
pub(super) struct LeaderElectionArgs {
    /// Reconcile only while holding a lease
    ///
    /// With leader election, several replicas may run.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// Create the lease in this namespace [default: that of the context or the Pod]
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    leader_elect_namespace: Option<String>,
}

// === impl LeaderElectionArgs ===

impl LeaderElectionArgs {
    /// Returns the options of leader election by the Lease `name`; `None` if this is the only replica.
    pub(super) fn options(&self, client: &Client, name: String) -> Option<LeaderElection> {
        let namespace = || client.default_namespace().to_owned();
        self.leader_elect.then(|| LeaderElection {
            namespace: self.leader_elect_namespace.clone().unwrap_or_else(namespace),
            name,
            identity: identity(),
            timings: Default::default(),
        })
    }
}

/// Returns the identity for leader election: the host name, and a random number that distinguishes processes of a host.
pub(super) fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "ostler".to_owned());
    format!("{host}_{:016x}", fastrand::u64(..))
}
