//! One line of a container log in the format of CRI container runtimes: `TIME stdout F TEXT`.

use bytes::Bytes;
use jiff::Timestamp;

/// Maximum length of a line in bytes; longer lines are truncated.
const MAX_LINE_BYTES: usize = 16 << 10;

/// A log line and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogLine {
    pub(super) time: Timestamp,
    /// The text with its newline.
    pub(super) text: Bytes,
}

// === impl LogLine ===

impl LogLine {
    /// Returns a line from `text` without its newline. Newlines inside `text` are replaced with spaces.
    pub(super) fn new(time: Timestamp, text: &str) -> Self {
        let mut end = text.len().min(MAX_LINE_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut line = String::with_capacity(end + 1);
        line.extend(text[..end].chars().map(|c| if c == '\n' { ' ' } else { c }));
        line.push('\n');
        Self { time, text: Bytes::from(line) }
    }

    /// Encodes the line for a file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = format!("{} stdout F ", self.time).into_bytes();
        bytes.extend_from_slice(&self.text);
        bytes
    }

    /// Decodes a line of a file, `None` when it is invalid.
    pub(super) fn decode(line: &[u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let text = parts.nth(2)?;
        Some(Self { time, text: Bytes::copy_from_slice(text) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoded_line_round_trips(text: String, seconds in 0_i64..4_000_000_000) {
            let line = LogLine::new(Timestamp::from_second(seconds).unwrap(), &text);
            prop_assert_eq!(LogLine::decode(&line.encode()), Some(line));
        }

        #[test]
        fn decodes_any_bytes_without_panic(bytes: Vec<u8>) {
            let _ = LogLine::decode(&bytes);
        }
    }
}
