//! Where a container writes, and whoever reads it meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::Notify;

use super::kept::{Kept, Position, Ring};
use super::line::Line;
use crate::ports::{Clock, LogQuery, SystemClock};

/// Where a container's lines go. Clones write to the same place.
#[derive(Clone)]
pub struct LogSink {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    grown: Notify,
    clock: Arc<dyn Clock>,
}

struct State {
    kept: Kept,
    closed: bool,
}

/// What is still to be sent to one reader.
struct Reader {
    sink: LogSink,
    position: Position,
    query: LogQuery,
    /// Bytes that may still be sent.
    left: usize,
}

impl Default for LogSink {
    /// In memory.
    fn default() -> Self {
        Self::new(Kept::Ring(Ring::default()), Arc::new(SystemClock))
    }
}

// === impl LogSink ===

impl LogSink {
    pub(super) fn new(kept: Kept, clock: Arc<dyn Clock>) -> Self {
        let state = Mutex::new(State { kept, closed: false });
        Self { shared: Arc::new(Shared { state, grown: Notify::new(), clock }) }
    }

    /// Adds one line, without its newline.
    pub fn write_line(&self, line: &str) {
        let line = Line::new(self.shared.clock.now(), line);
        self.state().kept.push(line);
        self.shared.grown.notify_waiters();
    }

    /// The lines so far, the last `tail` of them.
    #[must_use]
    pub fn lines(&self, tail: Option<usize>) -> Vec<Bytes> {
        let state = self.state();
        let (mut position, mut all) = (state.kept.start(tail), Vec::new());
        loop {
            let (lines, next) = state.kept.read(position);
            if lines.is_empty() {
                return all;
            }
            position = next;
            all.extend(lines.into_iter().map(|line| line.text));
        }
    }

    /// Nothing more will come: whoever follows is done.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.shared.grown.notify_waiters();
    }

    pub(super) fn remove(&self) {
        self.state().kept.remove();
    }

    /// What the query asks for; with `follow` also what comes until the container ends.
    pub(super) fn read(&self, query: LogQuery) -> BoxStream<'static, Bytes> {
        let position = self.state().kept.start(query.tail);
        let left = query.limit_bytes.unwrap_or(usize::MAX);
        let reader = Reader { sink: self.clone(), position, query, left };
        stream::unfold(reader, |mut reader| async move {
            let batch = reader.next().await?;
            Some((stream::iter(batch), reader))
        })
        .flatten()
        .boxed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Reader ===

impl Reader {
    /// The next lines; `None` when there will be none.
    async fn next(&mut self) -> Option<Vec<Bytes>> {
        loop {
            let shared = Arc::clone(&self.sink.shared);
            let grown = shared.grown.notified();
            tokio::pin!(grown);
            grown.as_mut().enable();
            let (lines, closed) = {
                let state = self.sink.state();
                let (lines, next) = state.kept.read(self.position);
                self.position = next;
                (lines, state.closed)
            };
            if self.left == 0 {
                return None;
            }
            if !lines.is_empty() {
                return Some(lines.iter().filter_map(|line| self.show(line)).collect());
            }
            if closed || !self.query.follow {
                return None;
            }
            grown.await;
        }
    }

    fn show(&mut self, line: &Line) -> Option<Bytes> {
        if self.query.since.is_some_and(|since| line.at < since) {
            return None;
        }
        let shown = if self.query.timestamps {
            Bytes::from([format!("{} ", line.at).as_bytes(), &line.text].concat())
        } else {
            line.text.clone()
        };
        let shown = shown.slice(..shown.len().min(self.left));
        self.left -= shown.len();
        (!shown.is_empty()).then_some(shown)
    }
}
