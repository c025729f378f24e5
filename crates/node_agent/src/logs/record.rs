//! One record of a container log in the format of CRI container runtimes: `TIME stdout TAG TEXT`.

use bytes::Bytes;
use jiff::Timestamp;

/// Maximum length of the text of a record in bytes, containerd's default for `max_container_log_line_size`. A longer
/// line has several records.
pub(crate) const MAX_RECORD_BYTES: usize = 16 << 10;

/// Whether a record ends its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogTag {
    /// `P`: the line continues in the next record.
    Partial,
    /// `F`: the line ends.
    Full,
}

/// A log line or a part of it, and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogRecord {
    pub(super) time: Timestamp,
    pub(super) tag: LogTag,
    /// The text, followed by a newline if the line ends.
    pub(super) text: Bytes,
}

// === impl LogRecord ===

impl LogRecord {
    /// Returns a record from `text` without its newline. Newlines inside `text` are replaced with spaces.
    pub(super) fn new(time: Timestamp, tag: LogTag, text: &str) -> Self {
        let mut line = String::with_capacity(text.len() + 1);
        line.extend(text.chars().map(|c| if c == '\n' { ' ' } else { c }));
        if tag == LogTag::Full {
            line.push('\n');
        }
        Self { time, tag, text: Bytes::from(line) }
    }

    /// Returns the records of one line, of at most [`MAX_RECORD_BYTES`] each.
    pub(super) fn split_line(time: Timestamp, line: &str) -> Vec<Self> {
        let (mut records, mut rest) = (Vec::new(), line);
        while rest.len() > MAX_RECORD_BYTES {
            let (text, remainder) = rest.split_at(rest.floor_char_boundary(MAX_RECORD_BYTES));
            records.push(Self::new(time, LogTag::Partial, text));
            rest = remainder;
        }
        records.push(Self::new(time, LogTag::Full, rest));
        records
    }

    /// Encodes the record for a file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (tag, end) = match self.tag {
            LogTag::Partial => ("P", "\n"),
            LogTag::Full => ("F", ""),
        };
        [format!("{} stdout {tag} ", self.time).as_bytes(), &self.text, end.as_bytes()].concat()
    }

    /// Decodes a line of a file, `None` when it is invalid.
    pub(super) fn decode(line: &[u8]) -> Option<Self> {
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let (tag, text) = (fields.nth(1)?, fields.next()?);
        // A tag may have further parts after a colon.
        let tag = if tag.split(|byte| *byte == b':').next() == Some(b"P") { LogTag::Partial } else { LogTag::Full };
        let text = match tag {
            LogTag::Partial => text.strip_suffix(b"\n").unwrap_or(text),
            LogTag::Full => text,
        };
        Some(Self { time, tag, text: Bytes::copy_from_slice(text) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoded_record_round_trips(text: String, seconds in 0_i64..4_000_000_000, is_full: bool) {
            let tag = if is_full { LogTag::Full } else { LogTag::Partial };
            let record = LogRecord::new(Timestamp::from_second(seconds).unwrap(), tag, &text);
            prop_assert_eq!(LogRecord::decode(&record.encode()), Some(record));
        }

        #[test]
        fn decodes_any_bytes_without_panic(bytes: Vec<u8>) {
            let _ = LogRecord::decode(&bytes);
        }

        #[test]
        fn split_line_keeps_the_text(line in "[a-zé€]{0,20}", repetitions in 0_usize..4000) {
            let line = line.repeat(repetitions);
            let records = LogRecord::split_line(Timestamp::UNIX_EPOCH, &line);
            let text: Vec<u8> = records.iter().flat_map(|record| record.text.to_vec()).collect();
            prop_assert_eq!(String::from_utf8(text).unwrap(), format!("{line}\n"));
            prop_assert!(records.iter().all(|record| record.text.len() <= MAX_RECORD_BYTES + 1));
        }
    }

    #[test]
    fn long_line_has_partial_records() {
        let records = LogRecord::split_line(Timestamp::UNIX_EPOCH, &"x".repeat(MAX_RECORD_BYTES + 1));
        let encoded: Vec<String> = records.iter().map(|r| String::from_utf8(r.encode()).unwrap()).collect();
        assert_eq!(encoded[0], format!("1970-01-01T00:00:00Z stdout P {}\n", "x".repeat(MAX_RECORD_BYTES)));
        assert_eq!(encoded[1], "1970-01-01T00:00:00Z stdout F x\n");
    }
}
