//! Server-sent events of streamed responses.

use serde::Serialize;

use super::{Finish, Null, ResponseMetadata, Usage};
use crate::request::Endpoint;

/// Last event of every stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// A chunk of a streamed response; `C` is the format of its choice.
#[derive(Serialize)]
struct Chunk<'a, C: Serialize> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Null>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_text: Option<Null>,
}

/// Choice of a chat completion.
#[derive(Serialize)]
struct ChatDelta<'a> {
    index: usize,
    delta: Delta<'a>,
    logprobs: Null,
    finish_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Null>,
}

/// Part of the message.
#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    content: &'a str,
}

/// Choice of a completion.
#[derive(Serialize)]
struct TextDelta<'a> {
    index: usize,
    text: &'a str,
    logprobs: Null,
    finish_reason: Option<&'a str>,
    stop_reason: Option<&'a str>,
    prompt_token_ids: Null,
    token_ids: Null,
}

/// Returns the first chunk of a chat completion, which carries the role.
pub(crate) fn role_chunk(metadata: &ResponseMetadata, usage: Option<Usage>) -> String {
    let delta = ChatDelta {
        index: 0,
        delta: Delta { role: Some("assistant"), content: "" },
        logprobs: (),
        finish_reason: None,
        stop_reason: None,
        token_ids: None,
    };
    sse_event(&Chunk { prompt_token_ids: Some(()), prompt_text: Some(()), usage, ..chunk(metadata, &[delta]) })
}

/// Returns the chunk of one token. `is_last` is true when only `[DONE]` follows.
pub(crate) fn token_chunk(
    metadata: &ResponseMetadata,
    text: &str,
    finish: Option<&Finish>,
    usage: Option<Usage>,
    is_last: bool,
) -> String {
    let finish_reason = finish.map(|finish| finish.reason);
    let stop_reason = finish.map(|finish| finish.stop.as_deref());
    let system_fingerprint = is_last.then_some(metadata.fingerprint.as_str());
    match metadata.endpoint {
        Endpoint::Chat => {
            let delta = Delta { role: None, content: text };
            let choice = ChatDelta { index: 0, delta, logprobs: (), finish_reason, stop_reason, token_ids: Some(()) };
            sse_event(&Chunk { usage, system_fingerprint, ..chunk(metadata, &[choice]) })
        }
        Endpoint::Completion => {
            let choice = TextDelta {
                index: 0,
                text,
                logprobs: (),
                finish_reason,
                stop_reason: stop_reason.flatten(),
                prompt_token_ids: (),
                token_ids: (),
            };
            sse_event(&Chunk { usage, system_fingerprint, ..chunk(metadata, &[choice]) })
        }
    }
}

/// Returns the chunk that carries only the usage (`stream_options.include_usage`).
pub(crate) fn usage_chunk(metadata: &ResponseMetadata, usage: Usage) -> String {
    let chunk = chunk::<TextDelta<'_>>(metadata, &[]);
    sse_event(&Chunk { usage: Some(usage), system_fingerprint: Some(&metadata.fingerprint), ..chunk })
}

fn chunk<'a, C: Serialize>(metadata: &'a ResponseMetadata, choices: &'a [C]) -> Chunk<'a, C> {
    let object = match metadata.endpoint {
        Endpoint::Chat => "chat.completion.chunk",
        Endpoint::Completion => "text_completion",
    };
    Chunk {
        id: &metadata.id,
        object,
        created: metadata.created,
        model: &metadata.model,
        choices,
        usage: None,
        system_fingerprint: None,
        prompt_token_ids: None,
        prompt_text: None,
    }
}

/// Encodes a chunk as a server-sent event.
fn sse_event(chunk: &impl Serialize) -> String {
    format!("data: {}\n\n", serde_json::to_string(chunk).unwrap_or_default())
}
