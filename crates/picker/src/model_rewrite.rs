//! Rewrites `model` values in request and response bodies, and leaves all other bytes unchanged.

use std::ops::Range;

use bytes::Bytes;

/// Maximum length of a `model` value in a response; longer ones are not rewritten.
const MAX_MODEL_BYTES: usize = 4096;

/// Restores the client's model name in the top-level `model` values of a response, chunk by chunk.
///
/// Supports JSON documents and event streams: text outside of JSON objects is unchanged. Only bytes that may be part of a
/// `model` value are delayed.
#[derive(Debug)]
pub(crate) struct ModelRestorer {
    /// Model name in responses from engines.
    engine_model: String,
    /// Model name for the client, as a JSON string.
    client_model_json: Vec<u8>,
    /// Whether the response is an event stream: a line break ends an incomplete value.
    is_event_stream: bool,
    /// Number of open brackets; 1 is the top level of an object.
    depth: usize,
    /// Whether the top-level bracket is `{`.
    in_object: bool,
    position: Position,
    /// Key or `model` value that is being read at the top level, including the opening quote.
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

/// Position in the JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Between values, before a key.
    Key,
    /// After the key `model`, before its value.
    ModelValue,
    /// After another key, or inside its value.
    OtherValue,
    /// In a string that is a top-level key.
    InKey,
    /// In a string that is a top-level `model` value.
    InModelValue,
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
            client_model_json: json_string(client_model),
            is_event_stream,
            depth: 0,
            in_object: false,
            position: Position::Key,
            buffer: Vec::new(),
            escaped: false,
        }
    }

    /// Returns the bytes that can be sent after `chunk` was received.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Bytes {
        let mut output = Vec::with_capacity(chunk.len() + self.buffer.len() + self.client_model_json.len());
        for byte in chunk {
            self.push_byte(*byte, &mut output);
        }
        Bytes::from(output)
    }

    /// Returns the delayed bytes when the response ends.
    pub(crate) fn finish(&mut self) -> Bytes {
        match self.position {
            Position::InModelValue => Bytes::from(std::mem::take(&mut self.buffer)),
            _ => Bytes::new(),
        }
    }

    fn push_byte(&mut self, byte: u8, output: &mut Vec<u8>) {
        match self.position {
            Position::InKey | Position::InModelValue | Position::InOtherString => self.push_in_string(byte, output),
            Position::Key | Position::ModelValue | Position::OtherValue => self.push_outside_string(byte, output),
        }
    }

    fn push_outside_string(&mut self, byte: u8, output: &mut Vec<u8>) {
        match byte {
            b'\n' if self.is_event_stream => self.depth = 0,
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 1 {
                    self.in_object = byte == b'{';
                    self.position = Position::Key;
                }
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' if self.depth == 1 => self.position = Position::Key,
            b'"' if self.depth > 0 => return self.begin_string(output),
            _ => {}
        }
        output.push(byte);
    }

    fn begin_string(&mut self, output: &mut Vec<u8>) {
        let is_top_level = self.depth == 1 && self.in_object;
        self.position = match self.position {
            Position::Key if is_top_level => Position::InKey,
            Position::ModelValue if is_top_level => Position::InModelValue,
            _ => Position::InOtherString,
        };
        self.buffer.clear();
        match self.position {
            Position::InModelValue => self.buffer.push(b'"'),
            Position::InKey => {
                self.buffer.push(b'"');
                output.push(b'"');
            }
            _ => output.push(b'"'),
        }
    }

    fn push_in_string(&mut self, byte: u8, output: &mut Vec<u8>) {
        if self.is_event_stream && byte == b'\n' {
            // JSON strings do not contain line breaks: the text was not a JSON string.
            output.extend_from_slice(&self.finish());
            (self.depth, self.position, self.escaped) = (0, Position::Key, false);
            return output.push(byte);
        }
        let is_end = byte == b'"' && !self.escaped;
        self.escaped = byte == b'\\' && !self.escaped;
        match self.position {
            Position::InModelValue => self.buffer.push(byte),
            Position::InKey if self.buffer.len() <= MAX_MODEL_BYTES => {
                self.buffer.push(byte);
                output.push(byte);
            }
            _ => output.push(byte),
        }
        if is_end {
            self.end_string(output);
        } else if self.position == Position::InModelValue && self.buffer.len() > MAX_MODEL_BYTES {
            output.append(&mut self.buffer);
            self.position = Position::InOtherString;
        }
    }

    fn end_string(&mut self, output: &mut Vec<u8>) {
        let parse = || serde_json::from_slice::<String>(&self.buffer).ok();
        match self.position {
            Position::InKey => {
                let is_model = parse().is_some_and(|key| key == "model");
                self.position = if is_model { Position::ModelValue } else { Position::OtherValue };
            }
            Position::InModelValue => {
                let is_engine_model = parse().is_some_and(|value| value == self.engine_model);
                output.extend_from_slice(if is_engine_model { &self.client_model_json } else { &self.buffer });
                self.position = Position::OtherValue;
            }
            _ => self.position = Position::OtherValue,
        }
        self.buffer.clear();
    }
}

fn json_string(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

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
}
