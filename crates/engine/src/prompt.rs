//! From a request to the prompt's tokens.

use serde_json::Value;

use crate::{
    failure::Failure,
    request::{Call, Message, Request},
    tokens,
};

/// The prompt of `request` as tokens.
///
/// # Errors
/// What the simulation does not do: several prompts in one request, or an empty prompt.
pub(crate) fn tokens_of(request: &Request, call: Call) -> Result<Vec<u32>, Failure> {
    match call {
        Call::Chat => chat(request.messages.as_deref().unwrap_or_default()),
        Call::Completion => completion(request.prompt.as_ref().unwrap_or(&Value::Null)),
    }
}

fn chat(messages: &[Message]) -> Result<Vec<u32>, Failure> {
    if messages.is_empty() {
        return Err(Failure::bad_request(Some("messages"), "messages must not be empty."));
    }
    let mut prompt = Vec::new();
    for message in messages {
        prompt.push(tokens::id(&format!("<|{}|>", message.role)));
        for text in texts(&message.content) {
            prompt.extend(tokens::encode(text));
        }
        prompt.push(tokens::id("<|end|>"));
    }
    prompt.push(tokens::id("<|assistant|>"));
    Ok(prompt)
}

/// A message's text: itself, or the text parts of a list.
fn texts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => Vec::new(),
    }
}

fn completion(prompt: &Value) -> Result<Vec<u32>, Failure> {
    let ids =
        |items: &[Value]| items.iter().map(|item| item.as_u64().map(|id| id as u32)).collect::<Option<Vec<u32>>>();
    let found = match prompt {
        Value::String(text) => Some(tokens::encode(text)),
        Value::Array(items) => match items.as_slice() {
            [Value::String(text)] => Some(tokens::encode(text)),
            [Value::Array(items)] => ids(items),
            [Value::String(_) | Value::Array(_), ..] => {
                return Err(Failure::bad_request(Some("prompt"), "Several prompts in one request are not simulated."));
            }
            items => ids(items),
        },
        _ => None,
    };
    match found {
        Some(prompt) if !prompt.is_empty() => Ok(prompt),
        _ => Err(Failure::bad_request(Some("prompt"), "The decoder prompt cannot be empty")),
    }
}
