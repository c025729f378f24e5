//! Bodies of responses that are not streamed.

use serde::Serialize;

use super::{Finish, Null, ResponseMetadata, Usage};
use crate::request::Endpoint;

/// Body of `/v1/chat/completions`.
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

/// The generated message.
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

/// Message of the assistant.
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

/// Body of `/v1/completions`.
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

/// The generated text.
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

/// Token counts of a body that is not streamed.
#[derive(Serialize)]
struct FullUsage {
    prompt_tokens: usize,
    total_tokens: usize,
    completion_tokens: usize,
    prompt_tokens_details: Null,
    completion_tokens_details: Null,
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
            usage: full_usage(usage),
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
            usage: full_usage(usage),
            kv_transfer_params: (),
            ec_transfer_params: (),
            metrics: (),
        }),
    };
    json.unwrap_or_default()
}

fn full_usage(usage: Usage) -> FullUsage {
    FullUsage {
        prompt_tokens: usage.prompt_tokens,
        total_tokens: usage.total_tokens,
        completion_tokens: usage.completion_tokens,
        prompt_tokens_details: (),
        completion_tokens_details: (),
    }
}
