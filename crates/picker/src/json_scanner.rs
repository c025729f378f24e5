//! Finds the fields of a JSON object without a JSON tree: values are skipped by matching brackets and quotes.

use std::ops::Range;

use memchr::memchr;

/// Maximum nesting depth.
const MAX_DEPTH: usize = 512;

/// A text that is not a JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON object (at byte {offset})")]
pub(crate) struct NotAnObject {
    /// Position of the first byte that does not fit.
    pub(crate) offset: usize,
}

/// Byte ranges of a field in the text of its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldSpan {
    /// The key, including the quotes.
    pub(crate) key: Range<usize>,
    /// The value.
    pub(crate) value: Range<usize>,
}

/// Iterator over the fields of an object. An error is its last item. Errors inside values are not found, except for
/// unbalanced brackets and quotes.
#[derive(Debug)]
pub(crate) struct ObjectFields<'a> {
    scanner: Scanner<'a>,
    state: State,
}

/// Position of an iterator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the object.
    Start,
    /// After a field.
    AfterField,
    /// After the object, or after an error.
    End,
}

/// Position in a text.
#[derive(Debug)]
struct Scanner<'a> {
    text: &'a [u8],
    position: usize,
}

// === impl ObjectFields ===

impl<'a> ObjectFields<'a> {
    /// Returns the fields of the object in `text`.
    pub(crate) fn of(text: &'a [u8]) -> Self {
        Self { scanner: Scanner { text, position: 0 }, state: State::Start }
    }

    fn advance(&mut self) -> Result<Option<FieldSpan>, NotAnObject> {
        let scanner = &mut self.scanner;
        scanner.skip_whitespace();
        let has_field = match self.state {
            State::Start => scanner.begin_object()?,
            State::AfterField => scanner.continue_object()?,
            State::End => return Ok(None),
        };
        if has_field { scanner.scan_field().map(Some) } else { scanner.expect_end().map(|()| None) }
    }
}

impl Iterator for ObjectFields<'_> {
    type Item = Result<FieldSpan, NotAnObject>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance().transpose();
        self.state = if matches!(next, Some(Ok(_))) { State::AfterField } else { State::End };
        next
    }
}

// === impl Scanner ===

impl Scanner<'_> {
    /// Skips `{`. Returns whether a field follows.
    fn begin_object(&mut self) -> Result<bool, NotAnObject> {
        self.expect(b'{')?;
        self.skip_whitespace();
        let is_empty = self.peek() == Some(b'}');
        self.position += usize::from(is_empty);
        Ok(!is_empty)
    }

    /// Skips `,` or `}`. Returns whether a field follows.
    fn continue_object(&mut self) -> Result<bool, NotAnObject> {
        match self.next() {
            Some(b',') => Ok(true),
            Some(b'}') => Ok(false),
            _ => Err(self.error()),
        }
    }

    fn scan_field(&mut self) -> Result<FieldSpan, NotAnObject> {
        self.skip_whitespace();
        let key = self.skip_string()?;
        self.skip_whitespace();
        self.expect(b':')?;
        self.skip_whitespace();
        let value = self.skip_value()?;
        Ok(FieldSpan { key, value })
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.position += 1;
        Some(byte)
    }

    fn error(&self) -> NotAnObject {
        NotAnObject { offset: self.position.min(self.text.len()) }
    }

    fn expect(&mut self, byte: u8) -> Result<(), NotAnObject> {
        match self.peek() == Some(byte) {
            true => {
                self.position += 1;
                Ok(())
            }
            false => Err(self.error()),
        }
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.position += 1;
        }
    }

    /// Accepts trailing whitespace only.
    fn expect_end(&mut self) -> Result<(), NotAnObject> {
        self.skip_whitespace();
        if self.peek().is_none() { Ok(()) } else { Err(self.error()) }
    }

    /// Searches for quotes only: texts contain many escaped line breaks.
    fn skip_string(&mut self) -> Result<Range<usize>, NotAnObject> {
        let start = self.position;
        self.expect(b'"')?;
        loop {
            let Some(length) = memchr(b'"', &self.text[self.position..]) else {
                self.position = self.text.len();
                return Err(self.error());
            };
            let content = &self.text[start + 1..self.position + length];
            self.position += length + 1;
            let backslashes = content.iter().rev().take_while(|byte| **byte == b'\\').count();
            if backslashes % 2 == 0 {
                return Ok(start..self.position);
            }
        }
    }

    fn skip_value(&mut self) -> Result<Range<usize>, NotAnObject> {
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(b'{' | b'[') => self.skip_nested(),
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => Ok(self.skip_scalar()),
            _ => Err(self.error()),
        }
    }

    fn skip_scalar(&mut self) -> Range<usize> {
        let start = self.position;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E')) {
            self.position += 1;
        }
        start..self.position
    }

    fn skip_nested(&mut self) -> Result<Range<usize>, NotAnObject> {
        let start = self.position;
        let mut open_brackets = Vec::new();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.skip_string()?;
                    continue;
                }
                Some(bracket @ (b'{' | b'[')) if open_brackets.len() < MAX_DEPTH => open_brackets.push(bracket),
                Some(b'}') if open_brackets.pop() == Some(b'{') => {}
                Some(b']') if open_brackets.pop() == Some(b'[') => {}
                None | Some(b'{' | b'[' | b'}' | b']') => return Err(self.error()),
                Some(_) => {}
            }
            self.position += 1;
            if open_brackets.is_empty() {
                return Ok(start..self.position);
            }
        }
    }
}
