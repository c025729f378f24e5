//! Due times of work queues, by the monotonic clock: a step of the wall clock neither delays nor hastens them.

use std::time::Duration;

use apimachinery::time;
use apiserver::Server;
use jiff::Timestamp;
use tokio::time::Instant;

/// Returns when a time of the server's clock, such as a deadline in an object, is reached at the current pace of the clock.
pub(crate) fn instant_of(time: Timestamp, server: &Server) -> Instant {
    let now = Instant::now();
    now.checked_add(time::duration_until(time, server.now())).unwrap_or(now)
}

/// Returns the current time of the monotonic clock for [`PanicBackOff`](apimachinery::PanicBackOff).
pub(crate) fn monotonic_now() -> std::time::Instant {
    Instant::now().into_std()
}

/// Returns the time until `instant`.
pub(crate) fn duration_until(instant: Instant) -> Duration {
    instant.saturating_duration_since(Instant::now())
}
