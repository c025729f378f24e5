//! Answer bodies. Field order and nulls are those of the recordings in `tests/data`.

use serde::Serialize;

use crate::request::Call;

/// Always `null`: features this engine does not simulate.
type Null = ();

/// Names and time shared by all events of one answer.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) call: Call,
    pub(crate) id: String,
    /// Unix seconds.
    pub(crate) created: i64,
    pub(crate) model: String,
    pub(crate) fingerprint: String,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finish {
    /// `stop` or `length`.
    pub(crate) reason: &'static str,
    /// The stop string found, if one was.
    pub(crate) stop: Option<String>,
}

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

    fn full(self) -> FullUsage {
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
struct Chat<'a> {
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

/// The whole answer of a request that does not stream.
pub(crate) fn whole(head: &Head, text: &str, finish: &Finish, usage: Usage) -> Vec<u8> {
    let (finish_reason, stop_reason) = (finish.reason, finish.stop.as_deref());
    let json = match head.call {
        Call::Chat => serde_json::to_vec(&Chat {
            id: &head.id,
            object: "chat.completion",
            created: head.created,
            model: &head.model,
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
            system_fingerprint: &head.fingerprint,
            usage: usage.full(),
            prompt_logprobs: (),
            prompt_token_ids: (),
            prompt_text: (),
            kv_transfer_params: (),
            ec_transfer_params: (),
            metrics: (),
        }),
        Call::Completion => serde_json::to_vec(&Completion {
            id: &head.id,
            object: "text_completion",
            created: head.created,
            model: &head.model,
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
            system_fingerprint: &head.fingerprint,
            usage: usage.full(),
            kv_transfer_params: (),
            ec_transfer_params: (),
            metrics: (),
        }),
    };
    json.unwrap_or_default()
}

#[derive(Serialize)]
struct Event<'a, C: Serialize> {
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

/// The last line of every stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// The event before the first token of a chat: the role.
pub(crate) fn role_event(head: &Head, usage: Option<Usage>) -> String {
    let delta = ChatDelta {
        index: 0,
        delta: Delta { role: Some("assistant"), content: "" },
        logprobs: (),
        finish_reason: None,
        stop_reason: None,
        token_ids: None,
    };
    line(&Event { prompt_token_ids: Some(()), prompt_text: Some(()), usage, ..event(head, &[delta]) })
}

/// The event of one token. `last` says that no event but `[DONE]` follows.
pub(crate) fn token_event(
    head: &Head,
    text: &str,
    finish: Option<&Finish>,
    usage: Option<Usage>,
    last: bool,
) -> String {
    let finish_reason = finish.map(|finish| finish.reason);
    let stop_reason = finish.map(|finish| finish.stop.as_deref());
    let system_fingerprint = last.then_some(head.fingerprint.as_str());
    match head.call {
        Call::Chat => {
            let delta = Delta { role: None, content: text };
            let choice = ChatDelta { index: 0, delta, logprobs: (), finish_reason, stop_reason, token_ids: Some(()) };
            line(&Event { usage, system_fingerprint, ..event(head, &[choice]) })
        }
        Call::Completion => {
            let choice = TextDelta {
                index: 0,
                text,
                logprobs: (),
                finish_reason,
                stop_reason: stop_reason.flatten(),
                prompt_token_ids: (),
                token_ids: (),
            };
            line(&Event { usage, system_fingerprint, ..event(head, &[choice]) })
        }
    }
}

/// The event that carries only usage (`stream_options.include_usage`).
pub(crate) fn usage_event(head: &Head, usage: Usage) -> String {
    let event = event::<TextDelta<'_>>(head, &[]);
    line(&Event { usage: Some(usage), system_fingerprint: Some(&head.fingerprint), ..event })
}

fn event<'a, C: Serialize>(head: &'a Head, choices: &'a [C]) -> Event<'a, C> {
    let object = match head.call {
        Call::Chat => "chat.completion.chunk",
        Call::Completion => "text_completion",
    };
    Event {
        id: &head.id,
        object,
        created: head.created,
        model: &head.model,
        choices,
        usage: None,
        system_fingerprint: None,
        prompt_token_ids: None,
        prompt_text: None,
    }
}

fn line(event: &impl Serialize) -> String {
    format!("data: {}\n\n", serde_json::to_string(event).unwrap_or_default())
}

#[derive(Serialize)]
struct Models<'a> {
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

/// `/v1/models`: every served name of one base model. Adapters will follow with `parent` set.
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
    serde_json::to_vec(&Models { object: "list", data }).unwrap_or_default()
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
