//! The clock of the cluster.

/// The clock of the cluster.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> jiff::Timestamp;
}

/// The system clock of the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

// === impl SystemClock ===

impl Clock for SystemClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }
}
