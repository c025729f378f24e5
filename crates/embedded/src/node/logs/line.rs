//! One line of a container's output, in the format of container runtimes: `TIME stdout F TEXT`.

use bytes::Bytes;
use jiff::Timestamp;

/// A longer line is cut; in bytes.
const LONGEST: usize = 16 << 10;

/// What was written, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) at: Timestamp,
    /// With its newline.
    pub(super) text: Bytes,
}

// === impl Line ===

impl Line {
    /// `text` without its newline; what follows a newline inside it is another line and is not expected here.
    pub(super) fn new(at: Timestamp, text: &str) -> Self {
        let mut end = text.len().min(LONGEST);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut line = String::with_capacity(end + 1);
        line.extend(text[..end].chars().map(|c| if c == '\n' { ' ' } else { c }));
        line.push('\n');
        Self { at, text: Bytes::from(line) }
    }

    /// As it stands in a file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = format!("{} stdout F ", self.at).into_bytes();
        bytes.extend_from_slice(&self.text);
        bytes
    }

    /// `None` for what is no such line.
    pub(super) fn decode(line: &[u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let at = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let text = parts.nth(2)?;
        Some(Self { at, text: Bytes::copy_from_slice(text) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(text: String, seconds in 0_i64..4_000_000_000) {
            let line = Line::new(Timestamp::from_second(seconds).unwrap(), &text);
            prop_assert_eq!(Line::decode(&line.encode()), Some(line));
        }

        #[test]
        fn any_bytes_are_read_or_left(bytes: Vec<u8>) {
            let _ = Line::decode(&bytes);
        }
    }
}
