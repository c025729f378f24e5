//! What scheduling needs to know of a request body, found by one pass over its bytes.

use std::ops::Range;

/// Bodies above this are refused with 413.
pub const MAX_BODY: usize = 32 * 1024 * 1024;

/// Deepest nesting that is followed.
const MAX_DEPTH: usize = 512;

/// A token is taken for four bytes.
pub const BYTES_PER_TOKEN: usize = 4;

/// The tokens that `bytes` are taken for.
pub fn tokens_of(bytes: usize) -> usize {
    bytes / BYTES_PER_TOKEN
}

/// What a body says on its top level. A key given twice counts with its last value, as engines read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub model: Option<Model>,
    pub stream: bool,
    /// `max_completion_tokens`, else `max_tokens`.
    pub max_tokens: Option<u64>,
    /// Where the values of `messages`, `prompt` and `input` stand in the body.
    pub prompt: Vec<Range<usize>>,
}

/// The `model` value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub name: String,
    /// Where the value stands in the body, quotes included.
    pub span: Range<usize>,
}

/// Why a body cannot be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    #[error("The request body is not a JSON object (at byte {at})")]
    NotJson { at: usize },
    #[error("`model` must be a string")]
    ModelNotString,
}

/// Finds the facts in `body` without building a tree. Values other than the named ones are skipped by their brackets
/// and quotes only; an engine will refuse what is wrong inside them.
///
/// # Errors
/// When the body is no JSON object, or `model` is no string.
pub fn scan(body: &[u8]) -> Result<Facts, ScanError> {
    let mut scanner = Scanner { body, at: 0 };
    let mut facts = Facts::default();
    let mut max_completion_tokens = None;
    scanner.space();
    scanner.expect(b'{')?;
    scanner.space();
    if scanner.peek() == Some(b'}') {
        scanner.at += 1;
        return scanner.end().map(|()| facts);
    }
    loop {
        scanner.space();
        let key = scanner.string()?;
        scanner.space();
        scanner.expect(b':')?;
        scanner.space();
        let span = scanner.value()?;
        let value = &body[span.clone()];
        match unquoted(&body[key]).as_deref() {
            Some("model") => facts.model = Some(model(value, span)?),
            Some("stream") => facts.stream = value == b"true",
            Some("max_tokens") => facts.max_tokens = number(value),
            Some("max_completion_tokens") => max_completion_tokens = number(value),
            Some("messages" | "prompt" | "input") => facts.prompt.push(span),
            _ => {}
        }
        scanner.space();
        match scanner.next() {
            Some(b',') => {}
            Some(b'}') => break,
            _ => return Err(scanner.wrong()),
        }
    }
    facts.max_tokens = max_completion_tokens.or(facts.max_tokens);
    scanner.end().map(|()| facts)
}

impl Facts {
    /// Bytes of the prompt, as written.
    pub fn prompt_bytes(&self) -> usize {
        self.prompt.iter().map(Range::len).sum()
    }

    /// Tokens of the prompt, estimated.
    pub fn prompt_tokens(&self) -> u64 {
        tokens_of(self.prompt_bytes()) as u64
    }

    /// The tokens a request occupies while it runs: those of its prompt, plus the answer it allows (256 if it names no
    /// limit).
    pub fn tokens(&self) -> u64 {
        self.prompt_tokens() + self.max_tokens.unwrap_or(256).min(1 << 20) + 1
    }
}

fn model(value: &[u8], span: Range<usize>) -> Result<Model, ScanError> {
    unquoted(value).map(|name| Model { name, span }).ok_or(ScanError::ModelNotString)
}

/// The text of a JSON string, or `None` if `value` is none.
fn unquoted(value: &[u8]) -> Option<String> {
    serde_json::from_slice(value).ok()
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn wrong(&self) -> ScanError {
        ScanError::NotJson { at: self.at.min(self.body.len()) }
    }

    fn expect(&mut self, byte: u8) -> Result<(), ScanError> {
        match self.peek() == Some(byte) {
            true => {
                self.at += 1;
                Ok(())
            }
            false => Err(self.wrong()),
        }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Nothing but space may follow.
    fn end(&mut self) -> Result<(), ScanError> {
        self.space();
        if self.peek().is_none() { Ok(()) } else { Err(self.wrong()) }
    }

    fn string(&mut self) -> Result<Range<usize>, ScanError> {
        let start = self.at;
        self.expect(b'"')?;
        loop {
            let rest = &self.body[self.at..];
            let special = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            let Some(skip) = special else {
                self.at = self.body.len();
                return Err(self.wrong());
            };
            self.at += skip + 1;
            if rest[skip] == b'"' {
                return Ok(start..self.at);
            }
            self.next();
        }
    }

    fn value(&mut self) -> Result<Range<usize>, ScanError> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{' | b'[') => self.nested(),
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => Ok(self.scalar()),
            _ => Err(self.wrong()),
        }
    }

    fn scalar(&mut self) -> Range<usize> {
        let start = self.at;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E')) {
            self.at += 1;
        }
        start..self.at
    }

    fn nested(&mut self) -> Result<Range<usize>, ScanError> {
        let start = self.at;
        let mut open = Vec::new();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.string()?;
                    continue;
                }
                Some(bracket @ (b'{' | b'[')) if open.len() < MAX_DEPTH => open.push(bracket),
                Some(b'}') if open.pop() == Some(b'{') => {}
                Some(b']') if open.pop() == Some(b'[') => {}
                None | Some(b'{' | b'[' | b'}' | b']') => return Err(self.wrong()),
                Some(_) => {}
            }
            self.at += 1;
            if open.is_empty() {
                return Ok(start..self.at);
            }
        }
    }
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
    fn the_model_is_found(#[case] body: &str, #[case] name: &str, #[case] span: &str) {
        let model = scan(body.as_bytes()).unwrap().model.unwrap();
        assert_eq!((model.name.as_str(), &body[model.span]), (name, span));
    }

    #[test]
    fn the_other_facts_are_found() {
        let body = br#"{"stream":true,"messages":[{"role":"user","content":"hi"}],"max_tokens":5,"max_completion_tokens":7,"big":123456789012345678901234567890}"#;
        let facts = scan(body).unwrap();
        let prompt_bytes = facts.prompt_bytes();
        assert_eq!((facts.model, facts.stream, facts.max_tokens, prompt_bytes), (None, true, Some(7), 32));
        assert_eq!(scan(b"{}").unwrap(), Facts::default());
        assert_eq!(scan(br#"{"stream":"true","max_tokens":null}"#).unwrap(), Facts::default());
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
    fn what_is_no_json_object_is_refused(#[case] body: &str, #[case] at: usize) {
        assert_eq!(scan(body.as_bytes()), Err(ScanError::NotJson { at }));
    }

    #[test]
    fn a_model_that_is_no_string_is_refused() {
        assert_eq!(scan(br#"{"model":7}"#), Err(ScanError::ModelNotString));
    }

    #[test]
    fn nesting_is_bounded() {
        let body = format!("{{\"a\":{}", "[".repeat(100_000));
        assert!(scan(body.as_bytes()).is_err());
    }
}
