//! Event streams of engines that end early: the client receives whole events, and then one that states the error.

use bytes::{Bytes, BytesMut};
use serde_json::json;

use crate::openai_error::OpenAiError;

/// Maximum size of an incomplete event that is delayed.
const MAX_DELAYED_BYTES: usize = 64 * 1024;

/// API of a request: the format of its errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    /// Completions and other APIs of OpenAI.
    OpenAi,
    /// The Responses API of OpenAI.
    Responses,
    /// The Messages API of Anthropic.
    Messages,
}

/// Forwards an event stream up to its last complete event. An incomplete event is delayed, so that it can be replaced.
#[derive(Debug)]
pub(super) struct EventStream {
    api: Api,
    /// The incomplete event.
    delayed: BytesMut,
    /// Whether a part of an event that is too large to be delayed was forwarded.
    is_inside_event: bool,
}

// === impl Api ===

impl Api {
    /// Returns the API of a path, without a query.
    pub(super) fn of_path(path: &str) -> Self {
        match path {
            "/v1/messages" => Self::Messages,
            "/v1/responses" => Self::Responses,
            _ => Self::OpenAi,
        }
    }

    /// Returns the events that end a stream with `error`.
    fn error_events(self, error: &OpenAiError) -> String {
        match self {
            Self::OpenAi => format!("data: {}\n\ndata: [DONE]\n\n", error.body()),
            Self::Responses => {
                let data = json!({"type": "error", "code": error.code, "message": error.message, "param": error.param});
                format!("event: error\ndata: {data}\n\n")
            }
            Self::Messages => {
                let data = json!({"type": "error", "error": {"type": "api_error", "message": error.message}});
                format!("event: error\ndata: {data}\n\n")
            }
        }
    }
}

// === impl EventStream ===

impl EventStream {
    /// Returns a stream before its first event.
    pub(super) fn new(api: Api) -> Self {
        Self { api, delayed: BytesMut::new(), is_inside_event: false }
    }

    /// Returns the bytes that can be sent after `chunk` was received.
    pub(super) fn push(&mut self, chunk: Bytes) -> Bytes {
        if self.delayed.is_empty() && ends_event(&chunk) {
            self.is_inside_event = false;
            return chunk;
        }
        let searched = self.delayed.len().saturating_sub(2);
        self.delayed.extend_from_slice(&chunk);
        let complete = end_of_last_event(&self.delayed, searched);
        if complete > 0 {
            self.is_inside_event = false;
        }
        if self.delayed.len().saturating_sub(complete) > MAX_DELAYED_BYTES {
            self.is_inside_event = true;
            return self.finish();
        }
        self.delayed.split_to(complete).freeze()
    }

    /// Returns the delayed bytes at the end of the stream.
    pub(super) fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.delayed).freeze()
    }

    /// Returns the end of a stream that failed, without the incomplete event.
    pub(super) fn fail(&self, error: &OpenAiError) -> Bytes {
        let separator = if self.is_inside_event { "\n\n" } else { "" };
        Bytes::from(format!("{separator}{}", self.api.error_events(error)))
    }
}

fn ends_event(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\n\n") || bytes.ends_with(b"\n\r\n")
}

/// Returns the number of bytes up to the end of the last complete event, 0 if there is none that ends after `searched` bytes.
fn end_of_last_event(bytes: &[u8], searched: usize) -> usize {
    let line_breaks = (searched..bytes.len()).rev().filter(|index| bytes[*index] == b'\n');
    line_breaks.map(|index| index + 1).find(|end| ends_event(&bytes[..*end])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const EVENTS: &str = "event: a\ndata: {\"x\":1}\n\ndata: é\r\n\r\ndata: [DONE]\n\n";

    #[test]
    fn complete_events_are_forwarded_at_once() {
        for size in 1..=EVENTS.len() {
            let (mut stream, mut sent, mut received) = (EventStream::new(Api::OpenAi), 0, Vec::new());
            for chunk in EVENTS.as_bytes().chunks(size) {
                sent += chunk.len();
                received.extend(stream.push(Bytes::copy_from_slice(chunk)));
                assert_eq!(received.len(), end_of_last_event(&EVENTS.as_bytes()[..sent], 0), "chunks of {size}");
            }
            assert_eq!((String::from_utf8(received).unwrap().as_str(), stream.finish()), (EVENTS, Bytes::new()));
        }
        let chunk = Bytes::from_static(b"data: x\n\n");
        assert_eq!(EventStream::new(Api::OpenAi).push(chunk.clone()).as_ptr(), chunk.as_ptr(), "it is not copied");
    }

    #[rstest]
    #[case::openai(
        "/v1/chat/completions",
        "data: {\"error\":{\"code\":\"engine_failed\",\"message\":\"The engine failed before the response was complete.\",\
         \"param\":null,\"type\":\"server_error\"}}\n\ndata: [DONE]\n\n"
    )]
    #[case::messages(
        "/v1/messages",
        "event: error\ndata: {\"error\":{\"message\":\"The engine failed before the response was complete.\",\
         \"type\":\"api_error\"},\"type\":\"error\"}\n\n"
    )]
    #[case::responses(
        "/v1/responses",
        "event: error\ndata: {\"code\":\"engine_failed\",\"message\":\"The engine failed before the response was complete.\",\
         \"param\":null,\"type\":\"error\"}\n\n"
    )]
    fn failed_stream_ends_with_an_error_event(#[case] path: &str, #[case] expect: &str) {
        for end in 0..=EVENTS.len() {
            let mut stream = EventStream::new(Api::of_path(path));
            let mut received = stream.push(Bytes::copy_from_slice(&EVENTS.as_bytes()[..end])).to_vec();
            received.extend(stream.fail(&OpenAiError::response_incomplete()));
            let events = end_of_last_event(&EVENTS.as_bytes()[..end], 0);
            assert_eq!(String::from_utf8(received).unwrap(), format!("{}{expect}", &EVENTS[..events]), "{end} bytes");
        }
    }

    #[test]
    fn large_event_is_not_delayed() {
        let mut stream = EventStream::new(Api::OpenAi);
        let half = Bytes::from(vec![b'x'; MAX_DELAYED_BYTES / 2 + 1]);
        assert_eq!(stream.push(half.clone()), Bytes::new());
        assert_eq!(stream.push(half).len(), MAX_DELAYED_BYTES + 2);
        assert!(stream.fail(&OpenAiError::response_incomplete()).starts_with(b"\n\ndata: "));
        assert_eq!(stream.push(Bytes::from_static(b"x\n\ndata: y")), Bytes::from_static(b"x\n\n"));
        assert!(stream.fail(&OpenAiError::response_incomplete()).starts_with(b"data: "));
    }
}
