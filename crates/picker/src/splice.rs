//! Exchanging the bytes of `model` values and nothing else.

use std::ops::Range;

use bytes::Bytes;

/// Longest `model` value looked at in an answer; longer ones pass unchanged.
const LONGEST: usize = 4096;

/// `body` with the value at `span` (quotes included) replaced by `model`.
pub fn replace(body: &Bytes, span: &Range<usize>, model: &str) -> Bytes {
    let value = quoted(model);
    let mut spliced = Vec::with_capacity(body.len() + value.len());
    spliced.extend_from_slice(&body[..span.start]);
    spliced.extend_from_slice(&value);
    spliced.extend_from_slice(&body[span.end..]);
    Bytes::from(spliced)
}

/// Gives an answer's top-level `model` values the client's name back, chunk by chunk.
///
/// Works on a JSON document and on a stream of events: text outside of an object is passed on. Only bytes that may
/// belong to a `model` value are held back.
#[derive(Debug)]
pub struct Restorer {
    /// What engines say.
    target: String,
    /// What clients read, with quotes.
    client: Vec<u8>,
    /// Events: a line break ends what was begun.
    lines: bool,
    /// Open brackets; 1 is the top level of an object.
    depth: usize,
    /// Whether the top level bracket is `{`.
    object: bool,
    place: Place,
    /// Key or value of the string being read at the top level, opening quote included.
    text: Vec<u8>,
    escaped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Between values, before a key.
    Key,
    /// Behind the key `model`, before its value.
    ModelValue,
    /// Behind another key, or inside its value.
    OtherValue,
    /// In a string; what it is is the place where it began.
    InKey,
    InModelValue,
    InOther,
}

impl Restorer {
    /// Exchanges `target` for `client`. `lines` says that the answer is a stream of events.
    pub fn new(target: &str, client: &str, lines: bool) -> Self {
        Self {
            target: target.to_owned(),
            client: quoted(client),
            lines,
            depth: 0,
            object: false,
            place: Place::Key,
            text: Vec::new(),
            escaped: false,
        }
    }

    /// What may be sent after `chunk` came in.
    pub fn push(&mut self, chunk: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(chunk.len() + self.text.len() + self.client.len());
        for byte in chunk {
            self.byte(*byte, &mut out);
        }
        Bytes::from(out)
    }

    /// What is held back when the answer ends early.
    pub fn end(&mut self) -> Bytes {
        match self.place {
            Place::InModelValue => Bytes::from(std::mem::take(&mut self.text)),
            _ => Bytes::new(),
        }
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        match self.place {
            Place::InKey | Place::InModelValue | Place::InOther => self.in_string(byte, out),
            Place::Key | Place::ModelValue | Place::OtherValue => self.between(byte, out),
        }
    }

    fn between(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            b'\n' if self.lines => self.depth = 0,
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 1 {
                    self.object = byte == b'{';
                    self.place = Place::Key;
                }
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' if self.depth == 1 => self.place = Place::Key,
            b'"' if self.depth > 0 => return self.begin_string(out),
            _ => {}
        }
        out.push(byte);
    }

    fn begin_string(&mut self, out: &mut Vec<u8>) {
        let top = self.depth == 1 && self.object;
        self.place = match self.place {
            Place::Key if top => Place::InKey,
            Place::ModelValue if top => Place::InModelValue,
            _ => Place::InOther,
        };
        self.text.clear();
        match self.place {
            Place::InModelValue => self.text.push(b'"'),
            Place::InKey => {
                self.text.push(b'"');
                out.push(b'"');
            }
            _ => out.push(b'"'),
        }
    }

    fn in_string(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.lines && byte == b'\n' {
            // No JSON string goes over a line: what we took for one was none.
            out.extend_from_slice(&self.end());
            (self.depth, self.place, self.escaped) = (0, Place::Key, false);
            return out.push(byte);
        }
        let ends = byte == b'"' && !self.escaped;
        self.escaped = byte == b'\\' && !self.escaped;
        match self.place {
            Place::InModelValue => self.text.push(byte),
            Place::InKey if self.text.len() <= LONGEST => {
                self.text.push(byte);
                out.push(byte);
            }
            _ => out.push(byte),
        }
        if ends {
            self.end_string(out);
        } else if self.place == Place::InModelValue && self.text.len() > LONGEST {
            out.append(&mut self.text);
            self.place = Place::InOther;
        }
    }

    fn end_string(&mut self, out: &mut Vec<u8>) {
        let read = || serde_json::from_slice::<String>(&self.text).ok();
        match self.place {
            Place::InKey => {
                let model = read().is_some_and(|key| key == "model");
                self.place = if model { Place::ModelValue } else { Place::OtherValue };
            }
            Place::InModelValue => {
                let ours = read().is_some_and(|value| value == self.target);
                out.extend_from_slice(if ours { &self.client } else { &self.text });
                self.place = Place::OtherValue;
            }
            _ => self.place = Place::OtherValue,
        }
        self.text.clear();
    }
}

fn quoted(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    // spec: GW-52
    #[test]
    fn only_the_value_is_replaced() {
        let body = Bytes::from_static(br#"{ "z":1.50, "model" : "a\/b" ,"big":12345678901234567890,"s":"\u00e9"}"#);
        let facts = crate::request::scan(&body).unwrap();
        let spliced = replace(&body, &facts.model.unwrap().span, "x\"y");
        assert_eq!(spliced, br#"{ "z":1.50, "model" : "x\"y" ,"big":12345678901234567890,"s":"\u00e9"}"#.as_slice());
    }

    #[rstest]
    #[case::document(
        false,
        r#"{"id":"1","model":"t","choices":[{"model":"t"}]}"#,
        r#"{"id":"1","model":"chat","choices":[{"model":"t"}]}"#
    )]
    #[case::spaced(false, "{\n  \"model\" : \"t\"\n}", "{\n  \"model\" : \"chat\"\n}")]
    #[case::escaped(false, r#"{"mod\u0065l":"\u0074"}"#, r#"{"mod\u0065l":"chat"}"#)]
    #[case::other(false, r#"{"model":"other"}"#, r#"{"model":"other"}"#)]
    #[case::value_model(
        false,
        r#"{"a":"model","b":"t","model":7,"c":"t"}"#,
        r#"{"a":"model","b":"t","model":7,"c":"t"}"#
    )]
    #[case::content(false, r#"{"a":"\"model\":\"t\"","model":"t"}"#, r#"{"a":"\"model\":\"t\"","model":"chat"}"#)]
    #[case::list(false, r#"["model","t",{"model":"t"}]"#, r#"["model","t",{"model":"t"}]"#)]
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
    fn the_clients_name_is_restored_at_every_chunk_border(
        #[case] lines: bool,
        #[case] answer: &str,
        #[case] expect: &str,
    ) {
        for size in 1..=answer.len() {
            let mut restorer = Restorer::new("t", "chat", lines);
            let mut restored: Vec<u8> = answer.as_bytes().chunks(size).flat_map(|chunk| restorer.push(chunk)).collect();
            restored.extend(restorer.end());
            assert_eq!(String::from_utf8(restored).unwrap(), expect, "chunks of {size}");
        }
    }

    #[test]
    fn an_answer_cut_short_loses_nothing() {
        let mut restorer = Restorer::new("t", "chat", false);
        let sent = restorer.push(b"{\"model\":\"t");
        assert_eq!([sent, restorer.end()].concat(), b"{\"model\":\"t");
    }

    #[test]
    fn other_text_is_not_held_back() {
        let mut restorer = Restorer::new("t", "chat", true);
        let chunk = b"data: {\"choices\":[{\"delta\":{\"content\":\"hel";
        assert_eq!(restorer.push(chunk), chunk.as_slice());
    }
}
