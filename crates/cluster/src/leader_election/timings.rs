//! Durations and periods of leader election.

use std::time::Duration;

/// Timings of leader election. The renew deadline must be shorter than the lease duration: the difference is the time in
/// which the API server must process the last write of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderElectionTimings {
    /// Time without a renewal after which other candidates may acquire the Lease.
    pub lease_duration: Duration,
    /// Time without a successful renewal after which the leader stops.
    pub renew_deadline: Duration,
    /// Time between two attempts to acquire or renew the Lease.
    pub retry_period: Duration,
}

// === impl LeaderElectionTimings ===

impl Default for LeaderElectionTimings {
    /// Returns the defaults of Kubernetes: 15, 10 and 2 seconds.
    fn default() -> LeaderElectionTimings {
        let seconds = Duration::from_secs;
        LeaderElectionTimings { lease_duration: seconds(15), renew_deadline: seconds(10), retry_period: seconds(2) }
    }
}

impl LeaderElectionTimings {
    /// Returns `leaseDurationSeconds`, a positive integer. It is rounded up, so that other candidates never wait for a
    /// shorter time than [`Self::lease_duration`].
    pub(super) fn lease_duration_seconds(self) -> u64 {
        let seconds = self.lease_duration.as_secs();
        if self.lease_duration.subsec_nanos() > 0 { seconds.saturating_add(1) } else { seconds.max(1) }
    }

    /// Returns how long a leader may write after it sent a successful renewal.
    pub(super) fn term_duration(self) -> Duration {
        self.renew_deadline.min(self.lease_duration)
    }

    /// Returns the timeout of one attempt to acquire or renew the Lease. One lost response must not end a term, so a term
    /// has time for two attempts.
    pub(super) fn attempt_timeout(self) -> Duration {
        self.term_duration() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::whole_seconds(15_000, 15)]
    #[case::rounded_up(1_001, 2)]
    #[case::less_than_a_second(20, 1)]
    #[case::zero(0, 1)]
    fn lease_duration_is_never_rounded_down(#[case] milliseconds: u64, #[case] expect: u64) {
        let lease_duration = Duration::from_millis(milliseconds);
        let timings = LeaderElectionTimings { lease_duration, ..LeaderElectionTimings::default() };
        assert_eq!(timings.lease_duration_seconds(), expect);
    }
}
