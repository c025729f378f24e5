//! Checks that only the holder of the Lease writes.

use std::time::Duration;

use embedded::Server;
use tokio::time::Instant;

/// Resource of the Lease.
pub(crate) const LEASES: &str = "leases.coordination.k8s.io";
/// Namespace of the Lease.
pub(crate) const LEASE_NAMESPACE: &str = "default";
/// Longest time until a leader observes that a person has edited or deleted the Lease: the duration of the Lease.
const TERM: Duration = Duration::from_secs(15);

/// Who may write, and the first write of another replica.
#[derive(Debug, Default)]
pub(crate) struct TermCheck {
    /// Holders of Leases that a person has edited, and the ends of their terms.
    earlier_holders: Vec<(String, Instant)>,
    violation: Option<String>,
}

// === impl TermCheck ===

impl TermCheck {
    /// Records that a person is about to edit or delete the Lease: its holder may write until the end of its term.
    pub(crate) fn before_edit(&mut self, server: &Server) {
        self.earlier_holders.extend(holder(server).map(|holder| (holder, Instant::now() + TERM)));
    }

    /// Checks a write of `path` by a replica.
    pub(crate) fn check_write(&mut self, server: &Server, replica: &str, path: &str) {
        let holder = holder(server);
        let now = Instant::now();
        let is_earlier_holder = |(earlier, end): &(String, Instant)| earlier == replica && now <= *end;
        if holder.as_deref() != Some(replica) && !self.earlier_holders.iter().any(is_earlier_holder) {
            let holder = holder.unwrap_or_else(|| "no replica".to_owned());
            let text = format!("{replica} sent a write of {path} while {holder} held the Lease");
            self.violation.get_or_insert(text);
        }
    }

    /// Returns the first write that a replica sent while the Lease had another holder.
    pub(crate) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }
}

/// Returns the holder of the Lease.
fn holder(server: &Server) -> Option<String> {
    let lease = server.get(LEASES, LEASE_NAMESPACE, operator::LEASE_NAME)?;
    lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
}
