//! The writer of a container log, and its concurrent readers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apiserver::ports::{Clock, PodLogOptions, SystemClock};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use super::log_storage::{LogStorage, Position, RingBuffer};
use super::record::{LogRecord, LogTag};

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
    /// `None` before the first read.
    position: Option<Position>,
    options: PodLogOptions,
    /// Number of bytes that may still be returned (`limitBytes`).
    remaining: usize,
    /// Whether the next record begins a line.
    is_line_start: bool,
}

/// Marks a log as complete on drop, also if the task of the container is aborted or panics.
pub(crate) struct CloseOnDrop(LogSink);

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

    /// Returns a log in memory that keeps the last `max_bytes` bytes.
    pub(crate) fn with_max_bytes(max_bytes: usize) -> Self {
        Self::new(LogStorage::Memory(RingBuffer::new(max_bytes)), Arc::new(SystemClock))
    }

    /// Appends one line, given without its newline.
    pub fn write_line(&self, line: &str) {
        self.push(LogRecord::split_line(self.shared.clock.now(), line));
    }

    /// Appends a line or a part of it, of at most `MAX_RECORD_BYTES` bytes and without its newline.
    pub(crate) fn write_record(&self, tag: LogTag, text: &str) {
        self.push([LogRecord::new(self.shared.clock.now(), tag, text)]);
    }

    fn push(&self, records: impl IntoIterator<Item = LogRecord>) {
        let mut state = self.state();
        records.into_iter().for_each(|record| state.storage.push(record));
        drop(state);
        self.shared.changed.notify_waiters();
    }

    /// Returns the lines written so far, or the last `tail` of them.
    #[must_use]
    pub fn lines(&self, tail: Option<usize>) -> Vec<Bytes> {
        let mut text = Vec::new();
        self.read_tail(tail, |record| text.extend_from_slice(record));
        text.split_inclusive(|byte| *byte == b'\n').map(Bytes::copy_from_slice).collect()
    }

    /// Returns the last `max_bytes` bytes of the last `max_lines` lines.
    pub(crate) fn tail(&self, max_lines: usize, max_bytes: usize) -> Vec<u8> {
        let mut text = Vec::new();
        self.read_tail(Some(max_lines), |record| {
            text.extend_from_slice(record);
            text.drain(..text.len().saturating_sub(max_bytes));
        });
        text
    }

    /// Calls `read` with the text of each record of the last `tail` lines.
    fn read_tail(&self, tail: Option<usize>, mut read: impl FnMut(&[u8])) {
        let state = self.state();
        let mut position = state.storage.start_position(tail);
        loop {
            let (records, next) = state.storage.read(position);
            if records.is_empty() {
                return;
            }
            position = next;
            records.iter().for_each(|record| read(&record.text));
        }
    }

    /// Returns a guard that marks the log as complete on drop.
    pub(crate) fn close_on_drop(&self) -> CloseOnDrop {
        CloseOnDrop(self.clone())
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
        let remaining = options.limit_bytes.unwrap_or(usize::MAX);
        let reader = Reader { sink: self.clone(), position: None, options, remaining, is_line_start: true };
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
    /// Returns the text of the next records, `None` at the end.
    async fn next(&mut self) -> Option<Vec<Bytes>> {
        loop {
            let shared = Arc::clone(&self.sink.shared);
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (records, closed) = self.read().await;
            if self.remaining == 0 {
                return None;
            }
            if !records.is_empty() {
                return Some(records.iter().filter_map(|record| self.format_record(record)).collect());
            }
            if closed || !self.options.follow {
                return None;
            }
            changed.await;
        }
    }

    /// Reads the next records. Returns them, and whether the log was complete before. Files are read on a blocking thread and
    /// without the lock of the log: a request may select a few lines of 50 MiB.
    async fn read(&mut self) -> (Vec<LogRecord>, bool) {
        let (position, tail) = (self.position, self.options.tail_lines);
        let (files, closed) = {
            let state = self.sink.state();
            let Some(files) = state.storage.files() else {
                let position = position.unwrap_or_else(|| state.storage.start_position(tail));
                let (records, next) = state.storage.read(position);
                self.position = Some(next);
                return (records, state.closed);
            };
            (files, state.closed)
        };
        let read = move || files.read(position.unwrap_or_else(|| files.start_position(tail)));
        match spawn_blocking(read).await {
            Ok((records, next)) => {
                self.position = Some(next);
                (records, closed)
            }
            // The runtime shuts down.
            Err(_) => (Vec::new(), true),
        }
    }

    /// Formats a record, truncated to the remaining byte limit. Returns `None` when the options exclude it.
    fn format_record(&mut self, record: &LogRecord) -> Option<Bytes> {
        let is_line_start = std::mem::replace(&mut self.is_line_start, record.tag == LogTag::Full);
        if self.options.since.is_some_and(|since| record.time < since) {
            return None;
        }
        let formatted = if self.options.timestamps && is_line_start {
            Bytes::from([format!("{} ", record.time).as_bytes(), &record.text].concat())
        } else {
            record.text.clone()
        };
        let formatted = formatted.slice(..formatted.len().min(self.remaining));
        self.remaining -= formatted.len();
        (!formatted.is_empty()).then_some(formatted)
    }
}

// === impl CloseOnDrop ===

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
