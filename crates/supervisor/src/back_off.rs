//! Delays between the restarts of a task.

use std::time::Duration;

/// Delay before the first restart; it doubles with each further restart.
const INITIAL_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// A task that has run for this long has recovered: its next failure counts as the first one.
const STABLE_AFTER: Duration = Duration::from_secs(5 * 60);

/// A task that fails this often without recovering is not restarted again. This takes about four minutes.
const MAX_FAILURES: u32 = 10;

/// How often a task that does not recover is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartLimit {
    /// [`MAX_FAILURES`] times.
    MaxFailures,
    /// Until it is stopped.
    Unlimited,
}

/// The restart back-off of one task.
#[derive(Debug)]
pub(crate) struct RestartBackOff {
    limit: RestartLimit,
    /// Failures since the task has last recovered.
    failures: u32,
}

// === impl RestartBackOff ===

impl RestartBackOff {
    /// Returns the back-off of a task that has not failed.
    pub(crate) fn new(limit: RestartLimit) -> Self {
        Self { limit, failures: 0 }
    }

    /// Returns the delay before restarting a task that ran for `run_time`; `None` if it has failed too often.
    pub(crate) fn next_delay(&mut self, run_time: Duration) -> Option<Duration> {
        if run_time >= STABLE_AFTER {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let doublings = 2_u32.saturating_pow(self.failures.saturating_sub(1));
        let is_restarted = self.limit == RestartLimit::Unlimited || self.failures < MAX_FAILURES;
        is_restarted.then(|| INITIAL_DELAY.saturating_mul(doublings).min(MAX_DELAY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_until_the_task_recovers_or_fails() {
        let mut back_off = RestartBackOff::new(RestartLimit::MaxFailures);
        let mut delays = |run_time: u64, count: usize| -> Vec<Option<u64>> {
            (0..count).map(|_| back_off.next_delay(Duration::from_secs(run_time)).map(|d| d.as_secs())).collect()
        };
        assert_eq!(delays(0, 3), [Some(1), Some(2), Some(4)]);
        assert_eq!(delays(300, 1), [Some(1)], "the task has recovered");
        assert_eq!(delays(299, 8), [2, 4, 8, 16, 32, 60, 60, 60].map(Some));
        assert_eq!(delays(0, 2), [None, None], "the task cannot be kept alive");
    }

    #[test]
    fn task_without_limit_is_always_restarted() {
        let mut back_off = RestartBackOff::new(RestartLimit::Unlimited);
        let delays: Vec<_> = (0..100).filter_map(|_| back_off.next_delay(Duration::ZERO)).collect();
        assert_eq!((delays.len(), delays[99]), (100, MAX_DELAY));
    }
}
