//! Time as an input, so that a seeded run replays.

use jiff::Timestamp;

/// Where "now" comes from.
pub trait Clock: Send + Sync {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// `metav1.Time` as Kubernetes writes it: whole seconds, UTC.
#[must_use]
pub fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metav1.MicroTime` as Kubernetes writes it: six decimals, UTC.
#[must_use]
pub fn micros(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_kubernetes() {
        let at: Timestamp = "2026-11-21T14:30:05.123456789Z".parse().unwrap();
        assert_eq!(seconds(at), "2026-11-21T14:30:05Z");
        assert_eq!(micros(at), "2026-11-21T14:30:05.123456Z");
    }
}
