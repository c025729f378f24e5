//! Request bodies, parsed as vLLM does: unknown fields are ignored, wrong types are validation errors.

use serde::Deserialize;
use serde_json::Value;

use crate::api_error::ApiError;

/// Body of `/v1/completions` or `/v1/chat/completions` with the fields that the simulation uses.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct GenerationRequest {
    /// Model name; absent or empty means the default name.
    pub(crate) model: Option<String>,
    /// Messages of a chat.
    pub(crate) messages: Option<Vec<Message>>,
    /// Prompt of a completion: text or token ids.
    pub(crate) prompt: Option<Value>,
    /// Maximum number of tokens to generate.
    pub(crate) max_tokens: Option<usize>,
    /// Takes precedence over `max_tokens`.
    pub(crate) max_completion_tokens: Option<usize>,
    /// Number of tokens to generate before the end-of-sequence token has an effect.
    #[serde(default)]
    pub(crate) min_tokens: usize,
    /// Strings that end generation.
    pub(crate) stop: Option<Stop>,
    /// Number of choices; only 1 is simulated.
    pub(crate) n: Option<usize>,
    /// Whether generation continues after the end-of-sequence token.
    #[serde(default)]
    pub(crate) ignore_eos: bool,
    /// Whether the response is streamed.
    #[serde(default)]
    pub(crate) stream: bool,
    /// Options of a streamed response.
    pub(crate) stream_options: Option<StreamOptions>,
}

/// A message of a chat.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    /// Author, such as `user`.
    pub(crate) role: String,
    /// Text, a list of parts, or null.
    #[serde(default)]
    pub(crate) content: Value,
}

/// One stop string or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Stop {
    /// A string.
    One(String),
    /// A list of strings.
    Many(Vec<String>),
}

/// Options of a streamed response.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct StreamOptions {
    /// Whether a last chunk contains the usage.
    #[serde(default)]
    pub(crate) include_usage: bool,
    /// Whether each chunk contains the usage so far.
    #[serde(default)]
    pub(crate) continuous_usage_stats: bool,
}

/// Endpoint that generates text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

// === impl Endpoint ===

impl Endpoint {
    /// Returns the path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completion => "/v1/completions",
        }
    }
}

// === impl GenerationRequest ===

impl GenerationRequest {
    /// Parses the body of a request to `endpoint`.
    ///
    /// # Errors
    /// vLLM's validation error for a body that is not a JSON object, lacks the required field, or has a field of a wrong type.
    pub(crate) fn parse(body: &[u8], endpoint: Endpoint) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body).map_err(|error| invalid_json(body, &error))?;
        let Value::Object(fields) = &value else {
            let message = "Input should be a valid dictionary or object to extract fields from";
            return Err(ApiError::validation("body", "model_attributes_type", message, &python_repr(&value), None));
        };
        let required = match endpoint {
            Endpoint::Chat => "messages",
            Endpoint::Completion => "prompt",
        };
        let input = format!("'<dict of {} items>'", fields.len());
        if !fields.contains_key(required) {
            return Err(ApiError::validation(&format!("body.{required}"), "missing", "Field required", &input, None));
        }
        // Moves the prompt instead of copying it. An error needs the value again, which is rare enough to parse twice.
        let names: Vec<&str> = TYPED_FIELDS.into_iter().filter(|name| fields.contains_key(*name)).collect();
        serde_json::from_value(value).map_err(|error| type_error(body, &names, &error))
    }

    /// Removes the stop strings from the request and returns them.
    pub(crate) fn take_stop_strings(&mut self) -> Vec<String> {
        match self.stop.take() {
            None => Vec::new(),
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Many(texts)) => texts,
        }
    }
}

/// Formats a JSON value as Python prints it in validation errors.
fn python_repr(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        Value::Array(items) => format!("'<list of {} items>'", items.len()),
        Value::Object(fields) => format!("'<dict of {} items>'", fields.len()),
        Value::Null => "None".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the validation error for a body that is not JSON, with the message and offset of Python's parser.
fn invalid_json(body: &[u8], error: &serde_json::Error) -> ApiError {
    let line_offset: usize =
        body.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    let offset = line_offset + error.column().saturating_sub(1);
    // `serde_json` exposes position and category of a syntax error, but its kind only as text.
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
    ApiError::validation(
        &format!("body.{offset}"),
        "json_invalid",
        "JSON decode error",
        "'<dict of 0 items>'",
        Some(reason),
    )
}

/// Fields of a request that may have a wrong type.
const TYPED_FIELDS: [&str; 10] = [
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

/// Returns the validation error for a field of a wrong type. To find that field, parses each of `names` separately.
fn type_error(body: &[u8], names: &[&str], error: &serde_json::Error) -> ApiError {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let field = names.iter().find(|name| {
        let single_field = serde_json::json!({ **name: value[name] });
        serde_json::from_value::<GenerationRequest>(single_field).is_err()
    });
    let name = field.copied().unwrap_or_default();
    ApiError::validation(
        &format!("body.{name}"),
        "type_error",
        &error.to_string().replace('\'', "\\'"),
        &python_repr(&value[name]),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::no_json("{bad", Endpoint::Chat, "body.1")]
    #[case::truncated("{\"model\":\"m\",", Endpoint::Chat, "body.12")]
    #[case::list("[]", Endpoint::Chat, "body")]
    #[case::no_messages("{\"model\":\"m\"}", Endpoint::Chat, "body.messages")]
    #[case::no_prompt("{\"model\":\"m\"}", Endpoint::Completion, "body.prompt")]
    #[case::text_for_number("{\"prompt\":\"x\",\"max_tokens\":\"many\"}", Endpoint::Completion, "body.max_tokens")]
    fn invalid_body_names_the_field(#[case] body: &str, #[case] endpoint: Endpoint, #[case] param: &str) {
        let error = GenerationRequest::parse(body.as_bytes(), endpoint).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{}", error.message);
        assert_eq!((error.status.as_u16(), error.error_type), (400, "Bad Request"));
    }

    #[test]
    fn ignores_unknown_fields() {
        let body = br#"{"messages":[{"role":"user","content":"x"}],"temperature":0,"chat_template_kwargs":{}}"#;
        assert!(GenerationRequest::parse(body, Endpoint::Chat).is_ok());
    }
}
