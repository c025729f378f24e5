//! Access log: one line of JSON per finished request, without prompts and responses.
//!
//! Lines are written by a thread of their own, behind a bounded buffer: a slow disk or reader delays no request. Lines that do not fit
//! into the buffer are dropped and counted.

use std::{
    io::{self, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

use crate::{openai_error::OpenAiError, output_tokens::ResponseTail};

/// Maximum number of lines in the buffer. With [`MAX_TEXT_CHARS`], a line has a few KiB at most.
const BUFFERED_LINES: usize = 8_192;

/// Maximum length in characters of each text that a client sends.
const MAX_TEXT_CHARS: usize = 256;

/// Reason of a request whose client left before the response.
const CLIENT_CLOSED_REQUEST: &str = "client_closed_request";

/// Reason of a response that ended early: the client left, or the engine failed.
const RESPONSE_INCOMPLETE: &str = "response_incomplete";

/// The access log of a process.
#[derive(Clone, Debug)]
pub struct AccessLog {
    writer: NonBlocking,
    overflows: ErrorCounter,
    failed_writes: Arc<AtomicU64>,
}

/// Writes the buffered lines when it is dropped, for at most a second.
#[must_use]
pub struct AccessLogGuard(#[expect(dead_code, reason = "dropped to write the buffered lines")] WorkerGuard);

/// What is known about a request. Its line is written when it is dropped.
#[derive(Debug)]
pub(crate) struct AccessRecord {
    log: AccessLog,
    start: Instant,
    entry: Entry,
    tail: ResponseTail,
    progress: ResponseProgress,
}

/// How far the response is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseProgress {
    /// No response has started.
    None,
    /// The end of the response is not known: a proxy forwards it.
    Forwarded,
    /// The response has started.
    Started,
    /// The response is complete, or an error of the frontend.
    Complete,
}

/// A line. Times are in seconds.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    /// When the request arrived.
    time: Timestamp,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// `NAMESPACE/NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// `KIND NAMESPACE/NAME` of the object that declares the use case.
    #[serde(skip_serializing_if = "Option::is_none")]
    use_case: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    /// Absent if the client left before the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Why the request was rejected or is incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    request_bytes: u64,
    response_bytes: u64,
    /// Estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<u64>,
    /// As the engine reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens: Option<u64>,
    /// Time until an endpoint was selected after the request was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_seconds: Option<f64>,
    /// Time until the first byte of the response body.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_seconds: Option<f64>,
    duration_seconds: f64,
    /// Number of endpoints that failed before.
    retries: usize,
}

/// What the scheduler has decided about a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoggedAdmission<'a> {
    /// `NAMESPACE/NAME`.
    pub(crate) pool: &'a cluster::NamespacedName,
    /// `KIND NAMESPACE/NAME` of the object that declares the use case.
    pub(crate) use_case: Option<&'a str>,
    /// Model name for the engines.
    pub(crate) target_model: &'a str,
    /// Priority in the queue of the pool.
    pub(crate) priority: i32,
    /// Estimated tokens of the prompt.
    pub(crate) prompt_tokens: u64,
    /// Time until an endpoint was selected.
    pub(crate) queue_time: std::time::Duration,
}

/// Counts failed writes. A full disk must not end the thread.
struct CountedWriter<W> {
    inner: W,
    failed_writes: Arc<AtomicU64>,
}

// === impl AccessLog ===

impl AccessLog {
    /// Returns a log that writes to `destination` in a thread of its own, until the guard is dropped.
    pub fn new(destination: impl Write + Send + 'static) -> (Self, AccessLogGuard) {
        let failed_writes = Arc::<AtomicU64>::default();
        let destination = CountedWriter { inner: destination, failed_writes: Arc::clone(&failed_writes) };
        let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(BUFFERED_LINES);
        let (writer, guard) = builder.thread_name("access-log").finish(destination);
        let overflows = writer.error_counter();
        (Self { writer, overflows, failed_writes }, AccessLogGuard(guard))
    }

    /// Returns the number of lines that were not written: the buffer was full, or the write failed.
    pub(crate) fn dropped_lines(&self) -> u64 {
        self.failed_writes.load(Relaxed).saturating_add(self.overflows.dropped_lines() as u64)
    }

    /// Returns the record of a request to `path` that arrives now. A query is not recorded: it may contain the key of the client.
    pub(crate) fn begin(&self, path: &str) -> Box<AccessRecord> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let entry = Entry { time: Timestamp::now(), path: printable(path), ..Entry::default() };
        Box::new(AccessRecord {
            log: self.clone(),
            start: Instant::now(),
            entry,
            tail: ResponseTail::default(),
            progress: ResponseProgress::None,
        })
    }
}

// === impl AccessRecord ===

impl AccessRecord {
    /// Records the complete request.
    pub(crate) fn record_request(&mut self, model: &str, bytes: usize) {
        self.entry.model = Some(printable(model)).filter(|model| !model.is_empty());
        self.entry.request_bytes = bytes as u64;
    }

    /// Records that the request was admitted.
    pub(crate) fn record_admission(&mut self, admission: LoggedAdmission<'_>) {
        let entry = &mut self.entry;
        entry.pool = Some(admission.pool.to_string());
        entry.use_case = admission.use_case.map(str::to_owned);
        entry.target_model = Some(printable(admission.target_model)).filter(|model| !model.is_empty());
        entry.priority = Some(admission.priority);
        entry.prompt_tokens = Some(admission.prompt_tokens);
        entry.queue_seconds = Some(seconds(admission.queue_time));
    }

    /// Records the endpoint that the request is sent to.
    pub(crate) fn record_endpoint(&mut self, address: SocketAddr, pod: &str, retries: usize) {
        (self.entry.endpoint, self.entry.retries) = (Some(address), retries);
        self.entry.pod = Some(pod.to_owned());
    }

    /// Records that the response starts. `is_forwarded`: a proxy forwards its body.
    pub(crate) fn record_response(&mut self, status: StatusCode, is_forwarded: bool) {
        self.entry.status = Some(status.as_u16());
        self.progress = if is_forwarded { ResponseProgress::Forwarded } else { ResponseProgress::Started };
    }

    /// Records a part of the body of the response.
    pub(crate) fn record_body(&mut self, chunk: &[u8]) {
        if self.entry.first_byte_seconds.is_none() && !chunk.is_empty() {
            self.entry.first_byte_seconds = Some(seconds(self.start.elapsed()));
        }
        self.entry.response_bytes = self.entry.response_bytes.saturating_add(chunk.len() as u64);
        self.tail.push(chunk);
    }

    /// Records that the response is complete.
    pub(crate) fn record_end(&mut self) {
        self.progress = ResponseProgress::Complete;
    }

    /// Records that the frontend responds with an error.
    pub(crate) fn record_error(&mut self, error: &OpenAiError) {
        self.entry.status = Some(error.status.as_u16());
        self.entry.reason = Some(error.code.unwrap_or("invalid_request"));
        self.progress = ResponseProgress::Complete;
    }
}

impl Drop for AccessRecord {
    fn drop(&mut self) {
        let missing_end = match self.progress {
            ResponseProgress::None => Some(CLIENT_CLOSED_REQUEST),
            ResponseProgress::Started => Some(RESPONSE_INCOMPLETE),
            ResponseProgress::Forwarded | ResponseProgress::Complete => None,
        };
        self.entry.reason = self.entry.reason.or(missing_end);
        self.entry.output_tokens = self.tail.output_tokens();
        self.entry.duration_seconds = seconds(self.start.elapsed());
        // A line contains no value that cannot be serialized.
        let Ok(mut line) = serde_json::to_vec(&self.entry) else { return };
        line.push(b'\n');
        // Never fails: lines that do not fit are counted.
        self.log.writer.write_all(&line).ok();
    }
}

// === impl CountedWriter ===

impl<W: Write> Write for CountedWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.inner.write_all(line).is_err() {
            self.failed_writes.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Returns the start of a text of a client without characters that change how terminals display a line. JSON escapes quotes and
/// backslashes.
fn printable(text: &str) -> String {
    let is_hidden = |character: char| {
        character.is_control()
            || matches!(character, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .take(MAX_TEXT_CHARS)
        .map(|character| if is_hidden(character) { '\u{fffd}' } else { character })
        .collect()
}

/// Returns seconds, rounded to microseconds.
fn seconds(duration: std::time::Duration) -> f64 {
    duration.as_micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, mpsc},
        time::Duration,
    };

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// A destination whose bytes a test reads.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the line of a record after `change`, without its times.
    fn line(path: &str, change: impl FnOnce(&mut AccessRecord)) -> Value {
        let lines = Lines::default();
        let (log, guard) = AccessLog::new(lines.clone());
        change(&mut log.begin(path));
        drop(guard);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert!(text.ends_with('\n') && text.trim_end().lines().count() == 1, "{text:?}");
        let mut line: Value = serde_json::from_str(&text).unwrap();
        for time in ["time", "durationSeconds", "firstByteSeconds"] {
            line.as_object_mut().unwrap().remove(time);
        }
        line
    }

    #[tokio::test]
    async fn line_contains_the_decision_and_the_response() {
        let pool = cluster::NamespacedName::new("ns", "p");
        let line = line("/v1/completions", |record| {
            record.record_request("chat", 90);
            record.record_admission(LoggedAdmission {
                pool: &pool,
                use_case: Some("LLMUseCase ns/chat"),
                target_model: "chat-v2",
                priority: 100,
                prompt_tokens: 20,
                queue_time: Duration::from_millis(250),
            });
            record.record_endpoint(([10, 0, 0, 1], 8000).into(), "pod-1", 1);
            record.record_response(StatusCode::OK, false);
            record.record_body(b"{\"usage\":{\"completion");
            record.record_body(b"_tokens\":7}}");
            record.record_end();
        });
        let expected = json!({
            "path": "/v1/completions", "model": "chat", "pool": "ns/p", "useCase": "LLMUseCase ns/chat",
            "targetModel": "chat-v2", "priority": 100, "endpoint": "10.0.0.1:8000", "pod": "pod-1", "status": 200,
            "requestBytes": 90, "responseBytes": 33, "promptTokens": 20, "outputTokens": 7, "queueSeconds": 0.25, "retries": 1,
        });
        assert_eq!(line, expected);
    }

    #[rstest]
    #[case::client_left(|_: &mut AccessRecord| {}, None, Some("client_closed_request"))]
    #[case::rejected(|record: &mut AccessRecord| record.record_error(&OpenAiError::invalid_api_key()), Some(401), Some("invalid_api_key"))]
    #[case::incomplete(|record: &mut AccessRecord| record.record_response(StatusCode::OK, false), Some(200), Some("response_incomplete"))]
    #[case::forwarded_by_a_proxy(|record: &mut AccessRecord| record.record_response(StatusCode::OK, true), Some(200), None)]
    #[tokio::test]
    async fn line_contains_how_the_request_ended(
        #[case] change: fn(&mut AccessRecord),
        #[case] status: Option<u16>,
        #[case] reason: Option<&str>,
    ) {
        let line = line("/v1/completions", change);
        assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (status.map(u64::from), reason));
    }

    /// A client can neither add a line nor fields, nor change how a terminal displays a line, nor make it long.
    #[rstest]
    #[case::quotes("a\"},{\"b\":\"\\", "a\"},{\"b\":\"\\")]
    #[case::new_line("a\nb\r", "a\u{fffd}b\u{fffd}")]
    #[case::escape_sequences("\u{1b}[31m\u{9b}2J", "\u{fffd}[31m\u{fffd}2J")]
    #[case::right_to_left("a\u{202e}b", "a\u{fffd}b")]
    #[case::other_scripts("größe 模型", "größe 模型")]
    #[tokio::test]
    async fn texts_of_clients_are_escaped(#[case] model: &str, #[case] expect: &str) {
        assert_eq!(line("/", |record| record.record_request(model, 0))["model"], expect);
    }

    #[tokio::test]
    async fn texts_of_clients_are_truncated() {
        let line = line(&"p".repeat(100_000), |record| record.record_request(&"m".repeat(100_000), 0));
        assert_eq!([&line["path"], &line["model"]].map(|text| text.as_str().unwrap().len()), [MAX_TEXT_CHARS; 2]);
    }

    #[rstest]
    #[case::query("/v1/completions?key=secret", "/v1/completions")]
    #[case::several("/v1/completions?a=/b?key=secret", "/v1/completions")]
    #[case::fragment("/v1/completions#?key=secret", "/v1/completions")]
    #[case::encoded("/v1/models/a%3Fb", "/v1/models/a%3Fb")]
    #[case::query_only("?key=secret", "")]
    #[tokio::test]
    async fn query_is_not_recorded(#[case] path: &str, #[case] expect: &str) {
        assert_eq!(line(path, |_| ())["path"], expect);
    }

    /// The reader of the lines reads nothing until the test allows it.
    #[tokio::test]
    async fn slow_destination_delays_no_request() {
        struct Blocked(mpsc::Receiver<()>);
        impl Write for Blocked {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                // Fails once the test has dropped the sender.
                self.0.recv().ok();
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (sender, receiver) = mpsc::channel();
        let (log, guard) = AccessLog::new(Blocked(receiver));
        for _ in 0..BUFFERED_LINES + 100 {
            drop(log.begin("/"));
        }
        // The thread may hold one line.
        assert!((99..=100).contains(&log.dropped_lines()), "{}", log.dropped_lines());
        drop((sender, guard));
    }

    #[tokio::test]
    async fn failed_writes_are_counted() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (log, guard) = AccessLog::new(Full);
        drop((log.begin("/"), log.begin("/")));
        drop(guard);
        assert_eq!(log.dropped_lines(), 2);
    }
}
