//! Measures the latency per output token of a request whose use case has an objective.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{objective::ObjectiveWindow, output_tokens::ResponseTail};

/// A request whose latency is compared with an objective, until the end of its response.
#[derive(Debug)]
pub(super) struct Measurement {
    window: Arc<ObjectiveWindow>,
    /// When the complete request was received.
    start: Instant,
    tail: ResponseTail,
}

impl Measurement {
    /// Returns the measurement of a request that was received at `start`.
    pub(super) fn new(window: Arc<ObjectiveWindow>, start: Instant) -> Self {
        Self { window, start, tail: ResponseTail::default() }
    }

    /// Adds a part of the response.
    pub(super) fn record_body(&mut self, chunk: &[u8]) {
        self.tail.push(chunk);
    }

    /// Records the request, if its response states the number of output tokens.
    pub(super) fn finish(self, now: Instant) {
        if let Some(tokens) = self.tail.output_tokens() {
            self.window.record(now.duration_since(self.start), tokens, now);
        }
    }
}
