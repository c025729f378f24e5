//! Rewrites `model` values in request and response bodies, and leaves all other bytes unchanged.

use std::ops::Range;

use bytes::Bytes;
use memchr::memchr3;

/// Maximum length of a `model` value in a response; longer ones are not rewritten.
const MAX_MODEL_BYTES: usize = 4096;

/// Maximum length of an error message in a response; longer ones are not rewritten.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Maximum length of a key with a meaning, as encoded in JSON.
const MAX_KEY_BYTES: usize = 64;

/// Restores the client's model name in a response, chunk by chunk: in `model` at the top level and in the objects `message`
/// (Anthropic) and `response` (Responses API), and in the messages of errors.
///
/// Supports JSON documents and event streams: text outside of JSON objects is unchanged. Only bytes that may be part of a
/// `model` value or of an error message are delayed.
#[derive(Debug)]
pub(crate) struct ModelRestorer {
    /// Model name in responses from engines.
    engine_model: String,
    /// Model name for the client.
    client_model: String,
    /// Whether the response is an event stream: a line break ends an incomplete value.
    is_event_stream: bool,
    /// Number of open brackets.
    depth: usize,
    /// The outermost objects whose keys have a meaning. Brackets inside them, up to `depth`, have none.
    scopes: Vec<Scope>,
    position: Position,
    /// Key, `model` value or error message that is being read, including the opening quote.
    buffer: Vec<u8>,
    escaped: bool,
}

/// A model name in a request that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RewrittenModel {
    /// Name in the request of the client.
    pub(crate) client_model: String,
    /// Name in the request to the engine.
    pub(crate) engine_model: String,
}

/// An object whose keys have a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The object at the top level.
    Root,
    /// `message` or `response` at the top level, which may contain `model` and `error`.
    Envelope,
    /// `error`.
    Error,
}

/// Meaning of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Other,
    /// A model name.
    Model,
    /// An error message.
    Text,
    /// An object that contains a model name.
    Envelope,
    /// An error message, or an object that contains a model name.
    TextOrEnvelope,
    /// An error message, or an object that contains one.
    TextOrError,
}

/// Position in the JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Between values, before a key.
    Key,
    /// After a key, or after its value.
    Value(Meaning),
    /// In a string that is a key.
    InKey,
    /// In a string that is a model name.
    InModel,
    /// In a string that is an error message.
    InText,
    /// In another string.
    InOtherString,
}

/// Returns `body` with the value at `span` (including the quotes) replaced by `model`, in three parts. Only the new value is
/// a copy: bodies may be large.
pub(crate) fn replace_model(body: &Bytes, span: &Range<usize>, model: &str) -> [Bytes; 3] {
    [body.slice(..span.start), Bytes::from(json_string(model)), body.slice(span.end..)]
}

// === impl RewrittenModel ===

impl RewrittenModel {
    /// Returns what restores the client's name in a response with this content type. Returns `None` for responses that
    /// contain no model name, and for compressed ones.
    pub(crate) fn restorer(&self, content_type: &str, is_compressed: bool) -> Option<ModelRestorer> {
        let is_event_stream = content_type.starts_with("text/event-stream");
        let is_restorable = (is_event_stream || content_type.starts_with("application/json")) && !is_compressed;
        is_restorable.then(|| ModelRestorer::new(&self.engine_model, &self.client_model, is_event_stream))
    }
}

// === impl ModelRestorer ===

impl ModelRestorer {
    /// Returns a restorer that replaces `engine_model` with `client_model`.
    fn new(engine_model: &str, client_model: &str, is_event_stream: bool) -> Self {
        Self {
            engine_model: engine_model.to_owned(),
            client_model: client_model.to_owned(),
            is_event_stream,
            depth: 0,
            scopes: Vec::new(),
            position: Position::Key,
            buffer: Vec::new(),
            escaped: false,
        }
    }

    /// Returns the bytes that can be sent after `chunk` was received.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Bytes {
        let mut output = Vec::with_capacity(chunk.len() + self.buffer.len() + self.client_model.len());
        let mut rest = chunk;
        while let Some((byte, tail)) = rest.split_first() {
            let unchanged = self.unchanged_bytes(rest);
            if unchanged == 0 {
                self.push_byte(*byte, &mut output);
                rest = tail;
            } else {
                let (text, tail) = rest.split_at(unchanged);
                output.extend_from_slice(text);
                rest = tail;
            }
        }
        Bytes::from(output)
    }

    /// Returns the delayed bytes when the response ends.
    pub(crate) fn finish(&mut self) -> Bytes {
        match self.position {
            Position::InModel | Position::InText => Bytes::from(std::mem::take(&mut self.buffer)),
            _ => Bytes::new(),
        }
    }

    /// Returns how many of the next bytes are the inside of a string without a meaning.
    fn unchanged_bytes(&self, next: &[u8]) -> usize {
        if self.position != Position::InOtherString || self.escaped {
            return 0;
        }
        memchr3(b'"', b'\\', b'\n', next).unwrap_or(next.len())
    }

    fn push_byte(&mut self, byte: u8, output: &mut Vec<u8>) {
        match self.position {
            Position::Key | Position::Value(_) => self.push_outside_string(byte, output),
            _ => self.push_in_string(byte, output),
        }
    }

    fn push_outside_string(&mut self, byte: u8, output: &mut Vec<u8>) {
        match byte {
            b'\n' if self.is_event_stream => self.end_event_line(),
            b'{' | b'[' => self.open_bracket(byte),
            b'}' | b']' => self.close_bracket(),
            b',' if self.scope().is_some() => self.position = Position::Key,
            b'"' if self.depth > 0 => return self.begin_string(output),
            _ => {}
        }
        output.push(byte);
    }

    fn end_event_line(&mut self) {
        (self.depth, self.position, self.escaped) = (0, Position::Key, false);
        self.scopes.clear();
    }

    /// Returns the meaning of the innermost bracket, if it has one.
    fn scope(&self) -> Option<Scope> {
        self.scopes.last().copied().filter(|_| self.scopes.len() == self.depth)
    }

    fn open_bracket(&mut self, bracket: u8) {
        let scope = match (self.position, self.scope()) {
            _ if bracket == b'[' => None,
            _ if self.depth == 0 => Some(Scope::Root),
            (Position::Value(Meaning::Envelope | Meaning::TextOrEnvelope), Some(_)) => Some(Scope::Envelope),
            (Position::Value(Meaning::TextOrError), Some(_)) => Some(Scope::Error),
            _ => None,
        };
        self.depth += 1;
        self.scopes.extend(scope);
        self.position = if scope.is_some() { Position::Key } else { Position::Value(Meaning::Other) };
    }

    fn close_bracket(&mut self) {
        if self.scope().is_some() {
            self.scopes.pop();
        }
        self.depth = self.depth.saturating_sub(1);
        self.position = Position::Value(Meaning::Other);
    }

    fn begin_string(&mut self, output: &mut Vec<u8>) {
        self.position = match (self.position, self.scope()) {
            (Position::Key, Some(_)) => Position::InKey,
            (Position::Value(Meaning::Model), Some(_)) => Position::InModel,
            (Position::Value(Meaning::Text | Meaning::TextOrEnvelope | Meaning::TextOrError), Some(_)) => {
                Position::InText
            }
            _ => Position::InOtherString,
        };
        self.buffer.clear();
        if self.position != Position::InOtherString {
            self.buffer.push(b'"');
        }
        if matches!(self.position, Position::InKey | Position::InOtherString) {
            output.push(b'"');
        }
    }

    fn push_in_string(&mut self, byte: u8, output: &mut Vec<u8>) {
        if self.is_event_stream && byte == b'\n' {
            // JSON strings do not contain line breaks: the text was not a JSON string.
            output.extend_from_slice(&self.finish());
            self.end_event_line();
            return output.push(byte);
        }
        let is_end = byte == b'"' && !self.escaped;
        self.escaped = byte == b'\\' && !self.escaped;
        match self.position {
            Position::InModel | Position::InText => self.buffer.push(byte),
            Position::InKey if self.buffer.len() <= MAX_KEY_BYTES => {
                self.buffer.push(byte);
                output.push(byte);
            }
            _ => output.push(byte),
        }
        let limit = if self.position == Position::InText { MAX_TEXT_BYTES } else { MAX_MODEL_BYTES };
        if is_end {
            self.end_string(output);
        } else if matches!(self.position, Position::InModel | Position::InText) && self.buffer.len() > limit {
            output.append(&mut self.buffer);
            self.position = Position::InOtherString;
        }
    }

    fn end_string(&mut self, output: &mut Vec<u8>) {
        let text = || serde_json::from_slice::<String>(&self.buffer).ok();
        let meaning = match self.position {
            Position::InKey => self.scope().zip(text()).map_or(Meaning::Other, |(scope, key)| scope.meaning(&key)),
            Position::InModel | Position::InText => {
                let restored = text().and_then(|text| match self.position {
                    Position::InModel => (text == self.engine_model).then(|| self.client_model.clone()),
                    _ => replace_name(&text, &self.engine_model, &self.client_model),
                });
                match restored {
                    Some(restored) => output.extend(json_string(&restored)),
                    None => output.extend_from_slice(&self.buffer),
                }
                Meaning::Other
            }
            _ => Meaning::Other,
        };
        self.position = Position::Value(meaning);
        self.buffer.clear();
    }
}

// === impl Scope ===

impl Scope {
    /// Returns the meaning of the value of `key`.
    fn meaning(self, key: &str) -> Meaning {
        match (self, key) {
            (Self::Root | Self::Envelope, "model") => Meaning::Model,
            (Self::Root | Self::Envelope, "error") => Meaning::TextOrError,
            (Self::Root, "message") => Meaning::TextOrEnvelope,
            (Self::Root, "response") => Meaning::Envelope,
            // `detail` is the error message of FastAPI.
            (Self::Root, "detail") | (Self::Error, "message") => Meaning::Text,
            _ => Meaning::Other,
        }
    }
}

/// Returns `text` with `new` instead of `name`, or `None` if it does not contain `name`. Longer names that contain `name` are
/// unchanged.
fn replace_name(text: &str, name: &str, new: &str) -> Option<String> {
    let is_name_char = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '/');
    // A period and a colon may be part of a name, or end a sentence.
    let is_inside_name = |c: Option<char>, next: Option<char>| {
        c.is_some_and(|c| is_name_char(c) || matches!(c, '.' | ':') && next.is_some_and(is_name_char))
    };
    let (mut replaced, mut copied) = (String::new(), 0);
    for (start, _) in text.match_indices(name).filter(|(_, name)| !name.is_empty()) {
        let end = start + name.len();
        let mut before = text[..start].chars().rev();
        let mut after = text[end..].chars();
        if is_inside_name(before.next(), before.next()) || is_inside_name(after.next(), after.next()) {
            continue;
        }
        replaced.push_str(&text[copied..start]);
        replaced.push_str(new);
        copied = end;
    }
    (copied > 0).then(|| replaced + &text[copied..])
}

fn json_string(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    // spec: GW-52
    #[test]
    fn replaces_only_the_model_value() {
        let body = Bytes::from_static(br#"{ "z":1.50, "model" : "a\/b" ,"big":12345678901234567890,"s":"\u00e9"}"#);
        let info = crate::request::parse_request(&body).unwrap();
        let rewritten = replace_model(&body, &info.model.unwrap().span, "x\"y");
        assert_eq!(rewritten[2].as_ptr_range().end, body.as_ptr_range().end, "the body is not copied");
        assert_eq!(
            rewritten.concat(),
            br#"{ "z":1.50, "model" : "x\"y" ,"big":12345678901234567890,"s":"\u00e9"}"#.as_slice()
        );
    }

    #[rstest]
    #[case::document(
        false,
        r#"{"id":"1","model":"t","choices":[{"model":"t"}]}"#,
        r#"{"id":"1","model":"chat","choices":[{"model":"t"}]}"#
    )]
    #[case::spaced(false, "{\n  \"model\" : \"t\"\n}", "{\n  \"model\" : \"chat\"\n}")]
    #[case::escaped(false, r#"{"mod\u0065l":"\u0074"}"#, r#"{"mod\u0065l":"chat"}"#)]
    #[case::other_model(false, r#"{"model":"other"}"#, r#"{"model":"other"}"#)]
    #[case::value_model(
        false,
        r#"{"a":"model","b":"t","model":7,"c":"t"}"#,
        r#"{"a":"model","b":"t","model":7,"c":"t"}"#
    )]
    #[case::content(false, r#"{"a":"\"model\":\"t\"","model":"t"}"#, r#"{"a":"\"model\":\"t\"","model":"chat"}"#)]
    #[case::array(false, r#"["model","t",{"model":"t"}]"#, r#"["model","t",{"model":"t"}]"#)]
    #[case::events(
        true,
        "data: {\"model\":\"t\"}\n\ndata: {\"x\":[\"model\"],\"model\":\"t\"}\n\ndata: [DONE]\n\n",
        "data: {\"model\":\"chat\"}\n\ndata: {\"x\":[\"model\"],\"model\":\"chat\"}\n\ndata: [DONE]\n\n"
    )]
    #[case::broken_event(
        true,
        ": \"quote\ndata: {broken\ndata: {\"model\":\"t\"}\n",
        ": \"quote\ndata: {broken\ndata: {\"model\":\"chat\"}\n"
    )]
    #[case::anthropic_start(
        true,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"1\",\"content\":[{\"model\":\"t\"}],\"model\":\"t\",\"usage\":{\"model\":\"t\"}}}\n\n",
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"1\",\"content\":[{\"model\":\"t\"}],\"model\":\"chat\",\"usage\":{\"model\":\"t\"}}}\n\n"
    )]
    #[case::response_created(
        true,
        "event: response.created\ndata: {\"response\":{\"metadata\":{\"model\":\"t\"},\"model\":\"t\"},\"sequence_number\":0}\n\n",
        "event: response.created\ndata: {\"response\":{\"metadata\":{\"model\":\"t\"},\"model\":\"chat\"},\"sequence_number\":0}\n\n"
    )]
    #[case::response_failed(
        true,
        "data: {\"response\":{\"error\":{\"code\":\"t\",\"message\":\"t failed\"},\"output\":[],\"model\":\"t\"}}\n\n",
        "data: {\"response\":{\"error\":{\"code\":\"t\",\"message\":\"chat failed\"},\"output\":[],\"model\":\"chat\"}}\n\n"
    )]
    #[case::error(
        false,
        r#"{"error":{"message":"The model `t` does not exist. Valid aliases: t-x, t.","param":"t"},"x":"t"}"#,
        r#"{"error":{"message":"The model `chat` does not exist. Valid aliases: t-x, chat.","param":"t"},"x":"t"}"#
    )]
    #[case::error_event(
        true,
        "data: {\"error\": {\"message\": \"LoRA \\\"t\\\" failed\", \"code\": 500}}\n\ndata: [DONE]\n\n",
        "data: {\"error\": {\"message\": \"LoRA \\\"chat\\\" failed\", \"code\": 500}}\n\ndata: [DONE]\n\n"
    )]
    #[case::anthropic_error(
        false,
        r#"{"type":"error","error":{"type":"not_found_error","message":"model: t"}}"#,
        r#"{"type":"error","error":{"type":"not_found_error","message":"model: chat"}}"#
    )]
    #[case::flat_error(
        false,
        r#"{"object":"error","message":"The model 't' does not exist","code":404}"#,
        r#"{"object":"error","message":"The model 'chat' does not exist","code":404}"#
    )]
    #[case::short_errors(false, r#"{"error":"t","detail":"t"}"#, r#"{"error":"chat","detail":"chat"}"#)]
    #[case::generated_text(
        false,
        r#"{"choices":[{"message":{"content":"t","model":"t"},"error":{"message":"t"}}],"content":[{"text":"t"}]}"#,
        r#"{"choices":[{"message":{"content":"t","model":"t"},"error":{"message":"t"}}],"content":[{"text":"t"}]}"#
    )]
    // spec: GW-53
    fn restores_model_name_at_every_chunk_boundary(
        #[case] is_event_stream: bool,
        #[case] response: &str,
        #[case] expect: &str,
    ) {
        for size in 1..=response.len() {
            let mut restorer = ModelRestorer::new("t", "chat", is_event_stream);
            let mut restored: Vec<u8> =
                response.as_bytes().chunks(size).flat_map(|chunk| restorer.push(chunk)).collect();
            restored.extend(restorer.finish());
            assert_eq!(String::from_utf8(restored).unwrap(), expect, "chunks of {size}");
        }
    }

    #[test]
    fn truncated_response_is_forwarded_completely() {
        let mut restorer = ModelRestorer::new("t", "chat", false);
        let sent = restorer.push(b"{\"model\":\"t");
        assert_eq!([sent, restorer.finish()].concat(), b"{\"model\":\"t");
    }

    #[test]
    fn other_text_is_not_delayed() {
        let mut restorer = ModelRestorer::new("t", "chat", true);
        let chunk = b"data: {\"choices\":[{\"delta\":{\"content\":\"hel";
        assert_eq!(restorer.push(chunk), chunk.as_slice());
    }

    #[rstest]
    #[case::quoted("The model `a/b-1.5` does not exist.", Some("The model `chat` does not exist."))]
    #[case::sentence("no a/b-1.5: try a/b-1.5.", Some("no chat: try chat."))]
    #[case::all("a/b-1.5", Some("chat"))]
    #[case::several("a/b-1.5,a/b-1.5", Some("chat,chat"))]
    #[case::longer_names("a/b-1.5-x x/a/b-1.5 a/b-1.5.1 a/b-1.5:v1 ba/b-1.5 a/b-1.50", None)]
    #[case::other_name("größe", None)]
    fn names_in_text_are_replaced(#[case] text: &str, #[case] expect: Option<&str>) {
        assert_eq!(replace_name(text, "a/b-1.5", "chat").as_deref(), expect);
    }

    /// Returns `value` as the client must receive it.
    fn expected(value: &Value, scope: Option<Scope>) -> Value {
        let Value::Object(fields) = value else { return value.clone() };
        let fields = fields.iter().map(|(key, value)| {
            let meaning = scope.map_or(Meaning::Other, |scope| scope.meaning(key));
            let restored = match (meaning, value) {
                (Meaning::Model, Value::String(text)) if text == "t" => Value::from("größe\"\\"),
                (Meaning::Text | Meaning::TextOrEnvelope | Meaning::TextOrError, Value::String(text)) => {
                    Value::from(replace_name(text, "t", "größe\"\\").unwrap_or_else(|| text.clone()))
                }
                (Meaning::Envelope | Meaning::TextOrEnvelope, value) => expected(value, Some(Scope::Envelope)),
                (Meaning::TextOrError, value) => expected(value, Some(Scope::Error)),
                (_, value) => value.clone(),
            };
            (key.clone(), restored)
        });
        Value::Object(fields.collect())
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let text = prop::sample::select(vec![
            "t",
            "",
            "`t` x",
            "u",
            "\\",
            "\"",
            "model",
            "{\"model\":\"t\"}",
            "größe",
            "\n",
            "]",
        ]);
        let scalar = prop_oneof![text.prop_map(Value::from), Just(Value::Null), Just(Value::from(1.5))];
        scalar.prop_recursive(5, 24, 4, |inner| {
            let keys = vec!["model", "message", "response", "error", "detail", "x", "mod\"el", "größe"];
            let object = prop::collection::vec((prop::sample::select(keys), inner.clone()), 0..5);
            let object =
                object.prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
            prop_oneof![object.prop_map(Value::Object), prop::collection::vec(inner, 0..3).prop_map(Value::Array)]
        })
    }

    proptest! {
        /// Any response, in any chunks: the names are restored where they have a meaning, and nothing else changes.
        #[test]
        fn any_response_is_restored(
            values in prop::collection::vec(json_value(), 1..4),
            is_event_stream: bool,
            is_pretty: bool,
            cuts in prop::collection::vec(1..40_usize, 1..60),
        ) {
            let mut restorer = ModelRestorer::new("t", "größe\"\\", is_event_stream);
            let values = if is_event_stream { values.as_slice() } else { &values[..1] };
            let text = |value: &Value| match is_pretty && !is_event_stream {
                true => serde_json::to_string_pretty(value).unwrap(),
                false => serde_json::to_string(value).unwrap(),
            };
            let response = |values: &[Value]| match is_event_stream {
                true => values.iter().map(|value| format!("data: {}\n\n", text(value))).collect(),
                false => text(&values[0]),
            };
            let (sent, mut received, mut start) = (response(values), Vec::new(), 0);
            for length in cuts.iter().cycle() {
                let end = (start + length).min(sent.len());
                received.extend(restorer.push(&sent.as_bytes()[start..end]));
                start = end;
                if start == sent.len() {
                    break;
                }
            }
            received.extend(restorer.finish());
            let expect: Vec<Value> = values.iter().map(|value| expected(value, Some(Scope::Root))).collect();
            prop_assert_eq!(String::from_utf8(received).unwrap(), response(&expect));
        }

        /// Responses that are not JSON are forwarded completely: only names may change.
        #[test]
        fn other_bytes_are_forwarded(text in r#"[{}\[\]",:\\\n a-z]{0,80}"#, is_event_stream: bool) {
            let mut restorer = ModelRestorer::new("TARGET", "chat", is_event_stream);
            let received = [restorer.push(text.as_bytes()), restorer.finish()].concat();
            prop_assert_eq!(String::from_utf8(received).unwrap(), text);
        }
    }

    #[test]
    fn long_error_message_is_not_delayed_without_limit() {
        let text = format!(r#"{{"error":"{}"#, "x".repeat(2 * MAX_TEXT_BYTES));
        let mut restorer = ModelRestorer::new("t", "chat", false);
        assert_eq!(restorer.push(text.as_bytes()), text.as_bytes());
        assert!(restorer.buffer.capacity() <= 2 * MAX_TEXT_BYTES);
    }
}
