//! Reads the number of output tokens at the end of a response.

use memchr::memmem;
use serde::Deserialize;

/// Number of bytes at the end of a response that are searched. Engines send `usage` in the last event, or behind the generated text.
const MAX_TAIL_BYTES: usize = 4 * 1024;

/// Key of the usage. In generated text its quotes are escaped.
const USAGE_KEY: &[u8] = b"\"usage\"";

/// Collects the end of a response, a JSON document or an event stream.
#[derive(Debug, Default)]
pub(crate) struct ResponseTail(Vec<u8>);

/// `usage` of OpenAI's and Anthropic's APIs.
#[derive(Debug, Deserialize)]
struct Usage {
    completion_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

// === impl ResponseTail ===

impl ResponseTail {
    /// Adds a part of the response.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let chunk = &chunk[chunk.len().saturating_sub(MAX_TAIL_BYTES)..];
        let excess = (self.0.len() + chunk.len()).saturating_sub(2 * MAX_TAIL_BYTES);
        if excess > 0 {
            // Moves bytes once per `MAX_TAIL_BYTES`.
            self.0.drain(..self.0.len().saturating_sub(MAX_TAIL_BYTES).max(excess));
        }
        self.0.extend_from_slice(chunk);
    }

    /// Returns the number of output tokens that the last `usage` states.
    pub(crate) fn output_tokens(&self) -> Option<u64> {
        memmem::rfind_iter(&self.0, USAGE_KEY).find_map(|start| parse_usage(&self.0[start + USAGE_KEY.len()..]))
    }
}

/// Parses the text behind the key of a usage.
fn parse_usage(text: &[u8]) -> Option<u64> {
    let value = text.trim_ascii_start().strip_prefix(b":")?;
    let usage = serde_json::Deserializer::from_slice(value).into_iter::<Usage>().next()?.ok()?;
    usage.completion_tokens.or(usage.output_tokens)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::chat(
        r#"{"id":"1","choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":9,"total_tokens":29,"completion_tokens":20,"prompt_tokens_details":null},"prompt_logprobs":null}"#,
        Some(20)
    )]
    #[case::spaced("{\n  \"usage\" : {\n \"completion_tokens\": 3 } }", Some(3))]
    #[case::chat_stream(
        "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n",
        Some(7)
    )]
    #[case::responses(
        "event: response.completed\ndata: {\"response\":{\"output\":[],\"usage\":{\"input_tokens\":5,\"output_tokens\":8,\"output_tokens_details\":{\"reasoning_tokens\":0}},\"user\":null}}\n\n",
        Some(8)
    )]
    #[case::messages(
        "event: message_delta\ndata: {\"delta\":{},\"usage\":{\"output_tokens\":12}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        Some(12)
    )]
    #[case::generated_text(r#"{"choices":[{"text":"\"usage\":{\"completion_tokens\":1}"}]}"#, None)]
    #[case::no_usage("data: {\"choices\":[]}\n\ndata: [DONE]\n\n", None)]
    #[case::embeddings(r#"{"usage":{"prompt_tokens":3,"total_tokens":3}}"#, None)]
    #[case::truncated(r#"{"usage":{"completion_tokens":"#, None)]
    fn output_tokens_are_read_in_any_chunks(#[case] response: &str, #[case] expect: Option<u64>) {
        for size in [1, 7, response.len()] {
            let mut tail = ResponseTail::default();
            response.as_bytes().chunks(size).for_each(|chunk| tail.push(chunk));
            assert_eq!(tail.output_tokens(), expect, "chunks of {size}");
        }
    }

    #[rstest]
    #[case::large_chunks(100_000)]
    #[case::small_chunks(100)]
    fn memory_is_bounded(#[case] size: usize) {
        let mut tail = ResponseTail::default();
        for _ in 0..1_000_000 / size {
            tail.push(&vec![b'x'; size]);
            assert!(tail.0.len() <= 2 * MAX_TAIL_BYTES);
        }
        tail.push(br#"{"usage":{"completion_tokens":2}}"#);
        assert_eq!(tail.output_tokens(), Some(2));
    }
}
