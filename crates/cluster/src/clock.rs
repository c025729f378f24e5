//! Clock port: time is an input, so that a seeded run is reproducible.

use jiff::Timestamp;

/// Source of the current time.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// Clock of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

// === impl SystemClock ===

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Formats `now` as a `metav1.Time`: UTC with whole seconds.
#[must_use]
pub fn rfc3339_seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats `now` as a `metav1.MicroTime`: UTC with microseconds.
#[must_use]
pub(crate) fn rfc3339_micros(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_timestamps_like_kubernetes() {
        let time: Timestamp = "2026-11-21T14:30:05.123456789Z".parse().unwrap();
        assert_eq!(rfc3339_seconds(time), "2026-11-21T14:30:05Z");
        assert_eq!(rfc3339_micros(time), "2026-11-21T14:30:05.123456Z");
    }
}
