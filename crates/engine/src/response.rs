//! Response bodies. Field order and nulls match the recordings in `tests/data`.

use serde::Serialize;

use crate::request::Endpoint;

/// Type of fields for features that the simulation does not support; serializes as `null`.
type Null = ();

/// Identifiers and creation time that all chunks of one response share.
#[derive(Debug, Clone)]
pub(crate) struct ResponseMetadata {
    pub(crate) endpoint: Endpoint,
    pub(crate) id: String,
    /// Unix seconds.
    pub(crate) created: i64,
    pub(crate) model: String,
    pub(crate) fingerprint: String,
}

/// Why generation finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finish {
    /// `stop` or `length`.
    pub(crate) reason: &'static str,
    /// The stop string that ended generation.
    pub(crate) stop: Option<String>,
}

/// Token counts of a response or of a streamed chunk.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
    completion_tokens: usize,
}

#[derive(Serialize)]
struct FullUsage {
    prompt_tokens: usize,
    total_tokens: usize,
    completion_tokens: usize,
    prompt_tokens_details: Null,
    completion_tokens_details: Null,
}

impl Usage {
    pub(crate) fn new(prompt_tokens: usize, completion_tokens: usize) -> Self {
        Self { prompt_tokens, total_tokens: prompt_tokens + completion_tokens, completion_tokens }
    }

    fn into_full_usage(self) -> FullUsage {
        FullUsage {
            prompt_tokens: self.prompt_tokens,
            total_tokens: self.total_tokens,
            completion_tokens: self.completion_tokens,
            prompt_tokens_details: (),
            completion_tokens_details: (),
        }
    }
}

#[derive(Serialize)]
struct ChatCompletion<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [ChatChoice<'a>; 1],
    service_tier: Null,
    system_fingerprint: &'a str,
    usage: FullUsage,
    prompt_logprobs: Null,
    prompt_token_ids: Null,
    prompt_text: Null,
    kv_transfer_params: Null,
    ec_transfer_params: Null,
    metrics: Null,
}

#[derive(Serialize)]
struct ChatChoice<'a> {
    index: usize,
    message: ChatMessage<'a>,
    logprobs: Null,
    finish_reason: &'a str,
    stop_reason: Option<&'a str>,
    token_ids: Null,
    routed_experts: Null,
}

#[derive(Serialize)]
struct ChatMessage<'a> {
    role: &'static str,
    content: &'a str,
    refusal: Null,
    annotations: Null,
    audio: Null,
    function_call: Null,
    reasoning: Null,
}

#[derive(Serialize)]
struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [CompletionChoice<'a>; 1],
    service_tier: Null,
    system_fingerprint: &'a str,
    usage: FullUsage,
    kv_transfer_params: Null,
    ec_transfer_params: Null,
    metrics: Null,
}

#[derive(Serialize)]
struct CompletionChoice<'a> {
    index: usize,
    text: &'a str,
    logprobs: Null,
    finish_reason: &'a str,
    stop_reason: Option<&'a str>,
    token_ids: Null,
    prompt_logprobs: Null,
    prompt_token_ids: Null,
    routed_experts: Null,
}

/// Returns the body of a response that is not streamed.
pub(crate) fn completion_body(metadata: &ResponseMetadata, text: &str, finish: &Finish, usage: Usage) -> Vec<u8> {
    let (finish_reason, stop_reason) = (finish.reason, finish.stop.as_deref());
    let json = match metadata.endpoint {
        Endpoint::Chat => serde_json::to_vec(&ChatCompletion {
            id: &metadata.id,
            object: "chat.completion",
            created: metadata.created,
            model: &metadata.model,
            choices: [ChatChoice {
                index: 0,
                message: ChatMessage {
                    role: "assistant",
                    content: text,
                    refusal: (),
                    annotations: (),
                    audio: (),
                    function_call: (),
                    reasoning: (),
                },
                logprobs: (),
                finish_reason,
                stop_reason,
                token_ids: (),
                routed_experts: (),
            }],
            service_tier: (),
            system_fingerprint: &metadata.fingerprint,
            usage: usage.into_full_usage(),
            prompt_logprobs: (),
            prompt_token_ids: (),
            prompt_text: (),
            kv_transfer_params: (),
            ec_transfer_params: (),
            metrics: (),
        }),
        Endpoint::Completion => serde_json::to_vec(&Completion {
            id: &metadata.id,
            object: "text_completion",
            created: metadata.created,
            model: &metadata.model,
            choices: [CompletionChoice {
                index: 0,
                text,
                logprobs: (),
                finish_reason,
                stop_reason,
                token_ids: (),
                prompt_logprobs: (),
                prompt_token_ids: (),
                routed_experts: (),
            }],
            service_tier: (),
            system_fingerprint: &metadata.fingerprint,
            usage: usage.into_full_usage(),
            kv_transfer_params: (),
            ec_transfer_params: (),
            metrics: (),
        }),
    };
    json.unwrap_or_default()
}

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

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    content: &'a str,
}

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

/// Last event of every stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

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

#[derive(Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
    root: &'a str,
    parent: Option<&'a str>,
    max_model_len: Option<usize>,
    permission: [Permission; 1],
}

#[derive(Serialize)]
struct Permission {
    id: String,
    object: &'static str,
    created: i64,
    allow_create_engine: bool,
    allow_sampling: bool,
    allow_logprobs: bool,
    allow_search_indices: bool,
    allow_view: bool,
    allow_fine_tuning: bool,
    organization: &'static str,
    group: Null,
    is_blocking: bool,
}

/// Returns the body of `/v1/models`: one entry per served name of the base model.
pub(crate) fn models(names: &[&str], root: &str, max_model_len: usize, created: i64) -> Vec<u8> {
    let data = names
        .iter()
        .map(|name| Model {
            id: name,
            object: "model",
            created,
            owned_by: "vllm",
            root,
            parent: None,
            max_model_len: Some(max_model_len),
            permission: [permission(name, created)],
        })
        .collect();
    serde_json::to_vec(&ModelList { object: "list", data }).unwrap_or_default()
}

fn permission(name: &str, created: i64) -> Permission {
    Permission {
        id: format!("modelperm-{:016x}", xxhash_rust::xxh64::xxh64(name.as_bytes(), 0)),
        object: "model_permission",
        created,
        allow_create_engine: false,
        allow_sampling: true,
        allow_logprobs: true,
        allow_search_indices: false,
        allow_view: true,
        allow_fine_tuning: false,
        organization: "*",
        group: (),
        is_blocking: false,
    }
}
