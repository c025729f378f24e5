//! Each engine in turn.

use super::policy::Policy;
use crate::trace::Request;

pub(super) struct RoundRobin {
    engines: usize,
    next: usize,
}

// === impl RoundRobin ===

impl RoundRobin {
    pub(super) fn new(engines: usize) -> Self {
        Self { engines, next: 0 }
    }
}

impl Policy for RoundRobin {
    fn select(&mut self, _index: usize, _request: &Request) -> usize {
        let engine = self.next;
        self.next = (engine + 1) % self.engines;
        engine
    }
}
