//! What a client may send, as vLLM reads it: unknown fields are ignored, wrong types are validation errors.

use serde::Deserialize;
use serde_json::Value;

use crate::failure::Failure;

/// A body of `/v1/completions` or `/v1/chat/completions`; the fields the simulation acts on.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Request {
    pub(crate) model: Option<String>,
    pub(crate) messages: Option<Vec<Message>>,
    pub(crate) prompt: Option<Value>,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) max_completion_tokens: Option<usize>,
    #[serde(default)]
    pub(crate) min_tokens: usize,
    pub(crate) stop: Option<Stop>,
    pub(crate) n: Option<usize>,
    #[serde(default)]
    pub(crate) ignore_eos: bool,
    #[serde(default)]
    pub(crate) stream: bool,
    pub(crate) stream_options: Option<StreamOptions>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) role: String,
    /// Text, a list of parts, or null.
    #[serde(default)]
    pub(crate) content: Value,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Stop {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct StreamOptions {
    #[serde(default)]
    pub(crate) include_usage: bool,
    #[serde(default)]
    pub(crate) continuous_usage_stats: bool,
}

/// Which of the two generating calls a body belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Chat,
    Completion,
}

impl Request {
    /// Reads a body; `required` is the call's one required field.
    ///
    /// # Errors
    /// vLLM's validation error for text that is not JSON, is no object, or has fields of a wrong type.
    pub(crate) fn read(body: &[u8], call: Call) -> Result<Self, Failure> {
        let value: Value = serde_json::from_slice(body).map_err(|error| not_json(body, &error))?;
        let Value::Object(fields) = &value else {
            let message = "Input should be a valid dictionary or object to extract fields from";
            return Err(Failure::validation("body", "model_attributes_type", message, &quoted(&value), None));
        };
        let required = match call {
            Call::Chat => "messages",
            Call::Completion => "prompt",
        };
        let seen = format!("'<dict of {} items>'", fields.len());
        if !fields.contains_key(required) {
            return Err(Failure::validation(&format!("body.{required}"), "missing", "Field required", &seen, None));
        }
        let field = |name: &str| Some(name.to_owned()).filter(|name| fields.contains_key(name));
        serde_json::from_value(value.clone()).map_err(|error| wrong_type(&value, field, &error))
    }

    /// The stop strings.
    pub(crate) fn stop_strings(&mut self) -> Vec<String> {
        match self.stop.take() {
            None => Vec::new(),
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Many(texts)) => texts,
        }
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        Value::Array(items) => format!("'<list of {} items>'", items.len()),
        Value::Object(fields) => format!("'<dict of {} items>'", fields.len()),
        Value::Null => "None".to_owned(),
        other => other.to_string(),
    }
}

/// Python's words for what is wrong with the text, at its offset.
fn not_json(body: &[u8], error: &serde_json::Error) -> Failure {
    let before: usize =
        body.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    let offset = before + error.column().saturating_sub(1);
    let text = error.to_string();
    let reason = if text.starts_with("key must be a string") || text.starts_with("EOF while parsing an object") {
        "Expecting property name enclosed in double quotes"
    } else if text.starts_with("expected `,`") {
        "Expecting \\',\\' delimiter"
    } else if text.starts_with("expected `:`") {
        "Expecting \\':\\' delimiter"
    } else if text.starts_with("trailing characters") {
        "Extra data"
    } else {
        "Expecting value"
    };
    Failure::validation(
        &format!("body.{offset}"),
        "json_invalid",
        "JSON decode error",
        "'<dict of 0 items>'",
        Some(reason),
    )
}

/// Names the field by trying each one alone: an error path without a path-tracking dependency.
fn wrong_type(value: &Value, field: impl Fn(&str) -> Option<String>, error: &serde_json::Error) -> Failure {
    let names = [
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "stop",
        "n",
        "ignore_eos",
        "stream",
        "stream_options",
    ];
    let wrong = names.iter().filter_map(|name| field(name)).find(|name| {
        let alone = serde_json::json!({ name.as_str(): value[name] });
        serde_json::from_value::<Request>(alone).is_err()
    });
    let name = wrong.unwrap_or_default();
    Failure::validation(
        &format!("body.{name}"),
        "type_error",
        &error.to_string().replace('\'', "\\'"),
        &quoted(&value[&name]),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::no_json("{bad", Call::Chat, "body.1")]
    #[case::cut("{\"model\":\"m\",", Call::Chat, "body.12")]
    #[case::list("[]", Call::Chat, "body")]
    #[case::no_messages("{\"model\":\"m\"}", Call::Chat, "body.messages")]
    #[case::no_prompt("{\"model\":\"m\"}", Call::Completion, "body.prompt")]
    #[case::words_for_number("{\"prompt\":\"x\",\"max_tokens\":\"many\"}", Call::Completion, "body.max_tokens")]
    fn unreadable_bodies_name_the_place(#[case] body: &str, #[case] call: Call, #[case] param: &str) {
        let failure = Request::read(body.as_bytes(), call).unwrap_err();
        assert_eq!(failure.param.as_deref(), Some(param), "{}", failure.message);
        assert_eq!((failure.status.as_u16(), failure.kind), (400, "Bad Request"));
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let body = br#"{"messages":[{"role":"user","content":"x"}],"temperature":0,"chat_template_kwargs":{}}"#;
        assert!(Request::read(body, Call::Chat).is_ok());
    }
}
