//! The wall clock of a run. It follows the paused time of Tokio, and may be set.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// 2026-01-01, the time at the start of each run.
const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The clock before the start of a run, which does not advance.
pub(crate) struct StoppedClock;

/// Wall clock of one process. Clones share it.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    error: Arc<Mutex<ClockError>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClockError {
    current: SignedDuration,
    /// The smallest and the largest one so far.
    range: (SignedDuration, SignedDuration),
}

// === impl Clock ===

impl Clock {
    /// Returns a clock that shows [`START`] at the start of the run.
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), error: Arc::default() }
    }

    /// Sets the clock, which then differs by `error` from the correct time. Timers are not affected, as on a host.
    pub fn set_error(&self, error: SignedDuration) {
        let mut state = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let (smallest, largest) = state.range;
        *state = ClockError { current: error, range: (smallest.min(error), largest.max(error)) };
    }

    /// Returns the largest difference between two errors so far. The clock may show the time in an object so much later.
    pub(crate) fn largest_step(&self) -> Duration {
        let (smallest, largest) = self.error.lock().unwrap_or_else(PoisonError::into_inner).range;
        largest.saturating_sub(smallest).unsigned_abs()
    }

    fn time(&self) -> Timestamp {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).current;
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap_or_default();
        START.checked_add(elapsed.saturating_add(error)).unwrap_or(START)
    }
}

impl embedded::ports::Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        START
    }
}

impl cluster::Clock for Clock {
    fn now(&self) -> Timestamp {
        self.time()
    }
}

impl embedded::ports::Clock for Clock {
    fn now(&self) -> Timestamp {
        self.time()
    }
}
