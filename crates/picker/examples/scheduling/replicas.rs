//! Several replicas of the gateway that exchange their state, and what interrupts that.

use std::{ops::Range, time::Duration};

/// The replicas of the gateway. Each request is sent to one of them at random.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) name: &'static str,
    pub(crate) count: usize,
    /// Time from one replica to another; `None` if they do not exchange their state.
    pub(crate) delay: Option<Duration>,
    /// Fraction of the time of the arrivals in percent during which no message arrives.
    pub(crate) partition: Option<Range<u32>>,
    /// Fraction of this time in percent after which the first replica is killed.
    pub(crate) killed: Option<u32>,
}

/// Time from one node to another.
const NETWORK_DELAY: Duration = Duration::from_millis(1);

impl Replicas {
    /// Returns replicas that do not know each other.
    pub(crate) const fn independent(name: &'static str, count: usize) -> Self {
        Self { name, count, delay: None, partition: None, killed: None }
    }

    const fn connected(name: &'static str, count: usize) -> Self {
        Self { delay: Some(NETWORK_DELAY), ..Self::independent(name, count) }
    }

    /// The compared replicas; the first one has all knowledge.
    pub(crate) const ALL: [Self; 11] = [
        Self::independent("1", 1),
        Self::independent("2 alone", 2),
        Self::connected("2", 2),
        Self { delay: Some(Duration::from_secs(1)), ..Self::connected("2, 1 s delay", 2) },
        Self { partition: Some(33..67), ..Self::connected("2, partition", 2) },
        Self { killed: Some(50), ..Self::connected("2, one killed", 2) },
        Self::independent("4 alone", 4),
        Self::connected("4", 4),
        Self { delay: Some(Duration::from_secs(1)), ..Self::connected("4, 1 s delay", 4) },
        Self { partition: Some(33..67), ..Self::connected("4, partition", 4) },
        Self { killed: Some(50), ..Self::connected("4, one killed", 4) },
    ];
}
