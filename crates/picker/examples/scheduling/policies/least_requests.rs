//! The engine with the fewest requests in flight; among equal ones, each in turn.

use std::collections::HashMap;

use super::policy::Policy;
use crate::trace::Request;

pub(super) struct LeastRequests {
    requests: Vec<usize>,
    engine_of: HashMap<usize, usize>,
    next: usize,
}

// === impl LeastRequests ===

impl LeastRequests {
    pub(super) fn new(engines: usize) -> Self {
        Self { requests: vec![0; engines], engine_of: HashMap::new(), next: 0 }
    }
}

impl Policy for LeastRequests {
    fn select(&mut self, index: usize, _request: &Request) -> usize {
        let count = self.requests.len();
        let in_turn = (0..count).map(|offset| (self.next + offset) % count);
        let engine = in_turn.min_by_key(|engine| self.requests[*engine]).unwrap_or(0);
        self.next = (engine + 1) % count;
        self.requests[engine] += 1;
        self.engine_of.insert(index, engine);
        engine
    }

    fn finished(&mut self, index: usize) {
        if let Some(engine) = self.engine_of.remove(&index) {
            self.requests[engine] -= 1;
        }
    }
}
