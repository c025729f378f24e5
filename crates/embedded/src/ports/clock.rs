//! What time it is.

/// What time it is.
pub trait Clock: Send + Sync {
    fn now(&self) -> jiff::Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

// === impl SystemClock ===

impl Clock for SystemClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }
}
