//! Extracts the fields that scheduling needs from a request body, in one pass over its bytes.

use std::{borrow::Cow, ops::Range, time::Duration};

use http_server::BodyLimits;

use crate::{
    control_fields::control_field,
    json_scanner::{FieldSpan, NotAnObject, ObjectFields},
};

/// Maximum size of a request body; larger ones are rejected with 413.
pub(crate) const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// Limits of a request body. The time for a whole body is that of [`MAX_BODY_BYTES`] at 2 Mbit/s.
pub(crate) const BODY_LIMITS: BodyLimits = BodyLimits {
    max_bytes: MAX_BODY_BYTES,
    timeout: Duration::from_secs(135),
    pause_timeout: Duration::from_secs(30),
    memory_timeout: Duration::from_secs(30),
};

/// Default of the maximum size in bytes of all request bodies that a gateway or a picker has in memory; further requests wait.
/// Headers may have a quarter as much in addition.
pub const DEFAULT_REQUEST_MEMORY: usize = 256 * 1024 * 1024;

/// Minimum memory of a gateway in bytes: one body of the maximum size.
pub const MIN_GATEWAY_MEMORY: usize = MAX_BODY_BYTES;

/// Maximum length of a model name in bytes, as encoded in JSON.
const MAX_MODEL_BYTES: usize = 4096;

/// Fields of the prompt, in the order in which engines process them: conversations that share tools and system prompt share a
/// prefix, wherever the body contains them.
const PROMPT_FIELDS: [&str; 6] = ["tools", "system", "instructions", "prompt", "messages", "input"];

/// Estimated output tokens of a request without a limit.
const OUTPUT_TOKENS: u64 = 256;

/// Output tokens of a request that count as work of its engine. Engines compute one token of every running request together,
/// so that the length of an output delays other requests little. In `cargo xtask bench scheduling`, 16 to 64 are equally good
/// and 256 is worse.
const COUNTED_OUTPUT_TOKENS: u64 = 64;

/// Estimated bytes per token.
pub(crate) const BYTES_PER_TOKEN: usize = 4;

/// Top-level fields of a request body. As in engines, the last of duplicate keys takes precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// `model`.
    pub(crate) model: Option<ModelField>,
    /// `stream`.
    pub(crate) stream: bool,
    /// `max_completion_tokens`, otherwise `max_output_tokens`, otherwise `max_tokens`.
    pub(crate) max_tokens: Option<u64>,
    /// Byte ranges of the values of the fields of [`PROMPT_FIELDS`] that the body contains, in the order of these fields.
    pub(crate) prompt_spans: Vec<Range<usize>>,
    /// A field that names engines to connect to.
    pub(crate) control_field: Option<&'static str>,
}

/// The value of `model`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelField {
    /// Name of the model.
    pub(crate) name: String,
    /// Byte range of the value, including the quotes.
    pub(crate) span: Range<usize>,
}

/// A request body that cannot be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScanError {
    /// The body is not a JSON object.
    #[error("The request body is {0}")]
    NotJson(#[from] NotAnObject),
    /// `model` is a number, a list or another value.
    #[error("`model` must be a string")]
    ModelNotString,
    /// `model` is longer than any name of a model.
    #[error("`model` must not be longer than {MAX_MODEL_BYTES} bytes")]
    ModelTooLong,
}

/// Returns the estimated number of tokens of `bytes`.
pub(crate) fn estimate_tokens(bytes: usize) -> usize {
    bytes / BYTES_PER_TOKEN
}

/// Parses `body` without allocating a JSON tree. Values of other fields are skipped by matching brackets and quotes;
/// engines reject errors inside them.
///
/// # Errors
/// The body is not a JSON object, or `model` is not a string or too long.
pub(crate) fn parse_request(body: &[u8]) -> Result<RequestInfo, ScanError> {
    let mut info = RequestInfo::default();
    let (mut max_completion_tokens, mut max_output_tokens) = (None, None);
    let mut prompts: [Option<Range<usize>>; PROMPT_FIELDS.len()] = Default::default();
    for field in ObjectFields::of(body) {
        let FieldSpan { key, value: span } = field?;
        let (Some(key), value) = (parse_string(&body[key]), &body[span.clone()]) else { continue };
        match &*key {
            // Engines treat null like a missing field.
            "model" if value == b"null" => info.model = None,
            "model" => info.model = Some(parse_model(value, span)?),
            "stream" => info.stream = value == b"true",
            "max_tokens" => info.max_tokens = parse_number(value),
            "max_completion_tokens" => max_completion_tokens = parse_number(value),
            "max_output_tokens" => max_output_tokens = parse_number(value),
            key => match PROMPT_FIELDS.iter().position(|field| *field == key) {
                Some(index) => prompts[index] = Some(span),
                None => info.control_field = info.control_field.or_else(|| control_field(key, value)),
            },
        }
    }
    info.max_tokens = max_completion_tokens.or(max_output_tokens).or(info.max_tokens);
    info.prompt_spans = prompts.into_iter().flatten().collect();
    Ok(info)
}

// === impl RequestInfo ===

impl RequestInfo {
    /// Returns the size of the prompt in bytes, as encoded in JSON.
    pub(crate) fn prompt_bytes(&self) -> usize {
        self.prompt_spans.iter().map(Range::len).sum()
    }

    /// Returns the estimated number of tokens of the prompt.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        estimate_tokens(self.prompt_bytes()) as u64
    }

    /// Returns the estimated number of tokens of a running request: the tokens of its prompt plus its maximum number of
    /// output tokens (256 if it sets no limit).
    pub(crate) fn estimated_tokens(&self) -> u64 {
        self.prompt_tokens() + self.max_tokens.unwrap_or(OUTPUT_TOKENS).min(1 << 20) + 1
    }

    /// Returns the number of output tokens that count as work of the engine.
    pub(crate) fn counted_output_tokens(&self) -> u64 {
        self.max_tokens.map_or(COUNTED_OUTPUT_TOKENS, |limit| limit.min(COUNTED_OUTPUT_TOKENS))
    }
}

fn parse_model(value: &[u8], span: Range<usize>) -> Result<ModelField, ScanError> {
    if value.len() > MAX_MODEL_BYTES {
        return Err(ScanError::ModelTooLong);
    }
    parse_string(value).map(|name| ModelField { name: name.into_owned(), span }).ok_or(ScanError::ModelNotString)
}

/// Returns the decoded JSON string, or `None` if `value` is not a string.
fn parse_string(value: &[u8]) -> Option<Cow<'_, str>> {
    // Most strings contain no escapes.
    let unescaped = serde_json::from_slice(value).ok().map(Cow::Borrowed);
    unescaped.or_else(|| serde_json::from_slice(value).ok().map(Cow::Owned))
}

fn parse_number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(r#"{"model":"m"}"#, "m", r#""m""#)]
    #[case(r#" { "a" : {"model":"x"} , "model" : "m" } "#, "m", r#""m""#)]
    #[case(r#"{"messages":[{"content":"\"model\":\"x\""}],"model":"m"}"#, "m", r#""m""#)]
    #[case(r#"{"mod\u0065l":"a\/b"}"#, "a/b", r#""a\/b""#)]
    #[case(r#"{"model":"a","model":"b"}"#, "b", r#""b""#)]
    #[case(r#"{"model":"größe \\"}"#, "größe \\", r#""größe \\""#)]
    // spec: GW-15
    // spec: GW-32
    fn finds_model(#[case] body: &str, #[case] name: &str, #[case] span: &str) {
        let model = parse_request(body.as_bytes()).unwrap().model.unwrap();
        assert_eq!((model.name.as_str(), &body[model.span]), (name, span));
    }

    #[test]
    fn finds_other_fields() {
        let body = br#"{"stream":true,"messages":[{"role":"user","content":"hi"}],"max_tokens":5,"max_completion_tokens":7,"big":123456789012345678901234567890}"#;
        let info = parse_request(body).unwrap();
        let prompt_bytes = info.prompt_bytes();
        assert_eq!((info.model, info.stream, info.max_tokens, prompt_bytes), (None, true, Some(7), 32));
        assert_eq!(parse_request(b"{}").unwrap(), RequestInfo::default());
        assert_eq!(parse_request(br#"{"stream":"true","max_tokens":null}"#).unwrap(), RequestInfo::default());
    }

    #[rstest]
    #[case("", 0)]
    #[case("[]", 0)]
    #[case("{bad", 1)]
    #[case(r#"{"model":"m""#, 12)]
    #[case(r#"{"model":"m"#, 11)]
    #[case(r#"{"model":"m"} x"#, 14)]
    #[case(r#"{"a":[}]}"#, 6)]
    #[case(r#"{"a":1,}"#, 7)]
    fn rejects_bodies_that_are_not_json_objects(#[case] body: &str, #[case] offset: usize) {
        assert_eq!(parse_request(body.as_bytes()), Err(NotAnObject { offset }.into()));
    }

    #[test]
    fn rejects_model_that_is_not_a_string() {
        assert_eq!(parse_request(br#"{"model":7}"#), Err(ScanError::ModelNotString));
    }

    #[rstest]
    #[case(r#"{"model":null}"#)]
    #[case::duplicate(r#"{"model":"m","model":null}"#)]
    fn null_is_no_model(#[case] body: &str) {
        assert_eq!(parse_request(body.as_bytes()).unwrap().model, None);
    }

    #[test]
    fn length_of_model_is_limited() {
        let body = |length| format!(r#"{{"model":"{}"}}"#, "m".repeat(length));
        let longest = MAX_MODEL_BYTES - 2;
        assert_eq!(parse_request(body(longest).as_bytes()).unwrap().model.unwrap().name.len(), longest);
        assert_eq!(parse_request(body(longest + 1).as_bytes()), Err(ScanError::ModelTooLong));
    }

    #[rstest]
    #[case(r#"{"max_tokens":5}"#, Some(5))]
    #[case(r#"{"max_output_tokens":6,"max_tokens":5}"#, Some(6))]
    #[case(r#"{"max_completion_tokens":7,"max_output_tokens":6}"#, Some(7))]
    #[case(r#"{"max_output_tokens":null,"max_tokens":5}"#, Some(5))]
    #[case(r#"{"max_output_tokens":-1}"#, None)]
    fn finds_token_limits(#[case] body: &str, #[case] expect: Option<u64>) {
        assert_eq!(parse_request(body.as_bytes()).unwrap().max_tokens, expect);
    }

    #[rstest]
    #[case::anthropic(r#"{"messages":[1],"system":"s","tools":[2]}"#, r#"[2]"s"[1]"#)]
    #[case::responses(r#"{"input":"i","instructions":"s","tools":[2]}"#, r#"[2]"s""i""#)]
    #[case::chat(r#"{"tools":[2],"messages":[1]}"#, "[2][1]")]
    #[case::completion(r#"{"suffix":"x","prompt":"p"}"#, r#""p""#)]
    fn prompt_begins_with_tools_and_system_prompt(#[case] body: &str, #[case] expect: &str) {
        let info = parse_request(body.as_bytes()).unwrap();
        assert_eq!(info.prompt_spans.iter().map(|span| &body[span.clone()]).collect::<String>(), expect);
        assert_eq!(info.prompt_bytes(), expect.len());
    }

    #[test]
    fn last_of_duplicate_prompts_counts() {
        let info = parse_request(br#"{"input":"a","prompt":"bcd","input":"ef","input":"g"}"#).unwrap();
        assert_eq!(info.prompt_spans, [22..27, 49..52]);
    }

    #[rstest]
    #[case(r#"{"kv_transfer_params":{}}"#, Some("kv_transfer_params"))]
    #[case::escaped(r#"{"kv_transfer\u005fparams":{}}"#, Some("kv_transfer_params"))]
    #[case::duplicate(r#"{"bootstrap_host":"h","bootstrap_host":null}"#, Some("bootstrap_host"))]
    #[case::in_prompt(r#"{"prompt":"kv_transfer_params","messages":[{"kv_transfer_params":{}}]}"#, None)]
    fn finds_control_fields(#[case] body: &str, #[case] expect: Option<&str>) {
        assert_eq!(parse_request(body.as_bytes()).unwrap().control_field, expect);
    }

    #[test]
    fn nesting_depth_is_limited() {
        let body = format!("{{\"a\":{}", "[".repeat(100_000));
        assert!(parse_request(body.as_bytes()).is_err());
    }
}
