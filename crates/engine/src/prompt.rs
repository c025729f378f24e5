//! Tokenizes the prompt of a request.

use serde_json::Value;

use crate::{
    api_error::ApiError,
    request::{Endpoint, GenerationRequest, Message},
    tokenizer,
};

/// Returns the tokens of the prompt of `request`.
///
/// # Errors
/// Several prompts in one request, which the simulation does not support, or an empty prompt.
pub(crate) fn prompt_tokens(request: &GenerationRequest, endpoint: Endpoint) -> Result<Vec<u32>, ApiError> {
    match endpoint {
        Endpoint::Chat => chat(request.messages.as_deref().unwrap_or_default()),
        Endpoint::Completion => completion(request.prompt.as_ref().unwrap_or(&Value::Null)),
    }
}

fn chat(messages: &[Message]) -> Result<Vec<u32>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::bad_request(Some("messages"), "messages must not be empty."));
    }
    let mut prompt = Vec::new();
    for message in messages {
        prompt.push(tokenizer::token_id(&format!("<|{}|>", message.role)));
        for text in text_parts(&message.content) {
            prompt.extend(tokenizer::encode(text));
        }
        prompt.push(tokenizer::token_id("<|end|>"));
    }
    prompt.push(tokenizer::token_id("<|assistant|>"));
    Ok(prompt)
}

/// Returns the text of a message: the string itself, or the text parts of a list.
fn text_parts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => Vec::new(),
    }
}

fn completion(prompt: &Value) -> Result<Vec<u32>, ApiError> {
    let ids =
        |items: &[Value]| items.iter().map(|item| item.as_u64().map(|id| id as u32)).collect::<Option<Vec<u32>>>();
    let tokens = match prompt {
        Value::String(text) => Some(tokenizer::encode(text)),
        Value::Array(items) => match items.as_slice() {
            [Value::String(text)] => Some(tokenizer::encode(text)),
            [Value::Array(items)] => ids(items),
            [Value::String(_) | Value::Array(_), ..] => {
                return Err(ApiError::bad_request(Some("prompt"), "Several prompts in one request are not simulated."));
            }
            items => ids(items),
        },
        _ => None,
    };
    match tokens {
        Some(tokens) if !tokens.is_empty() => Ok(tokens),
        _ => Err(ApiError::bad_request(Some("prompt"), "The decoder prompt cannot be empty")),
    }
}
