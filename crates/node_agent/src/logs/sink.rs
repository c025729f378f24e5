//! The writer of a container log, and its concurrent readers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apiserver::ports::{Clock, PodLogOptions, SystemClock};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::Notify;

use super::line::LogLine;
use super::log_storage::{LogStorage, Position, RingBuffer};

/// The log of one run of a container. Clones write to the same log.
#[derive(Clone)]
pub struct LogSink {
    shared: Arc<SharedLog>,
}

/// The state that all clones of a sink share.
struct SharedLog {
    state: Mutex<SinkState>,
    changed: Notify,
    clock: Arc<dyn Clock>,
}

struct SinkState {
    storage: LogStorage,
    closed: bool,
}

/// One reader of the log, such as a `kubectl logs` request.
struct Reader {
    sink: LogSink,
    position: Position,
    options: PodLogOptions,
    /// Number of bytes that may still be returned (`limitBytes`).
    remaining: usize,
}

impl Default for LogSink {
    /// Returns a log in memory.
    fn default() -> Self {
        Self::new(LogStorage::Memory(RingBuffer::default()), Arc::new(SystemClock))
    }
}

// === impl LogSink ===

impl LogSink {
    pub(super) fn new(storage: LogStorage, clock: Arc<dyn Clock>) -> Self {
        let state = Mutex::new(SinkState { storage, closed: false });
        Self { shared: Arc::new(SharedLog { state, changed: Notify::new(), clock }) }
    }

    /// Appends one line, given without its newline.
    pub fn write_line(&self, line: &str) {
        let line = LogLine::new(self.shared.clock.now(), line);
        self.state().storage.push(line);
        self.shared.changed.notify_waiters();
    }

    /// Returns the lines written so far, or the last `tail` of them.
    #[must_use]
    pub fn lines(&self, tail: Option<usize>) -> Vec<Bytes> {
        let state = self.state();
        let (mut position, mut lines_so_far) = (state.storage.start_position(tail), Vec::new());
        loop {
            let (lines, next) = state.storage.read(position);
            if lines.is_empty() {
                return lines_so_far;
            }
            position = next;
            lines_so_far.extend(lines.into_iter().map(|line| line.text));
        }
    }

    /// Marks the log as complete, which ends all `follow` streams.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.shared.changed.notify_waiters();
    }

    /// Removes the files of the log.
    pub(super) fn remove(&self) {
        self.state().storage.remove();
    }

    /// Returns the selected lines; with `follow` also new lines until the container terminates.
    pub(super) fn stream(&self, options: PodLogOptions) -> BoxStream<'static, Bytes> {
        let position = self.state().storage.start_position(options.tail_lines);
        let remaining = options.limit_bytes.unwrap_or(usize::MAX);
        let reader = Reader { sink: self.clone(), position, options, remaining };
        stream::unfold(reader, |mut reader| async move {
            let batch = reader.next().await?;
            Some((stream::iter(batch), reader))
        })
        .flatten()
        .boxed()
    }

    fn state(&self) -> MutexGuard<'_, SinkState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Reader ===

impl Reader {
    /// Returns the next lines, `None` at the end.
    async fn next(&mut self) -> Option<Vec<Bytes>> {
        loop {
            let shared = Arc::clone(&self.sink.shared);
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (lines, closed) = {
                let state = self.sink.state();
                let (lines, next) = state.storage.read(self.position);
                self.position = next;
                (lines, state.closed)
            };
            if self.remaining == 0 {
                return None;
            }
            if !lines.is_empty() {
                return Some(lines.iter().filter_map(|line| self.format_line(line)).collect());
            }
            if closed || !self.options.follow {
                return None;
            }
            changed.await;
        }
    }

    /// Formats a line, truncated to the remaining byte limit. Returns `None` when the options exclude it.
    fn format_line(&mut self, line: &LogLine) -> Option<Bytes> {
        if self.options.since.is_some_and(|since| line.time < since) {
            return None;
        }
        let formatted = if self.options.timestamps {
            Bytes::from([format!("{} ", line.time).as_bytes(), &line.text].concat())
        } else {
            line.text.clone()
        };
        let formatted = formatted.slice(..formatted.len().min(self.remaining));
        self.remaining -= formatted.len();
        (!formatted.is_empty()).then_some(formatted)
    }
}
