//! The copy of an engine's log that a controller sends to the requester in pieces.

use std::io::Write;

/// Why a piece is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LogError {
    /// The position is absent or no number.
    #[error("parameter startPos is missing or not a non-negative integer")]
    InvalidPosition,
    /// Bytes between the received ones and the piece are missing.
    #[error("startPos {position} is beyond the end {end} of the log")]
    Gap {
        /// Position of the piece.
        position: u64,
        /// Number of received bytes.
        end: u64,
    },
    /// The piece could not be written.
    #[error("failed to write the log: {0}")]
    Write(String),
}

/// Number of bytes that were received and written.
#[derive(Debug, Default)]
pub(super) struct LogCopy {
    end: u64,
}

// === impl LogCopy ===

impl LogCopy {
    /// Appends a piece that begins at `position`. Bytes that were received before are skipped, so that a piece may be sent
    /// repeatedly.
    pub(super) fn append(&mut self, position: &str, piece: &[u8], output: &mut impl Write) -> Result<(), LogError> {
        let position: u64 = position.parse().map_err(|_| LogError::InvalidPosition)?;
        let overlap = self.end.checked_sub(position).ok_or(LogError::Gap { position, end: self.end })?;
        let new = usize::try_from(overlap).ok().and_then(|overlap| piece.get(overlap..)).unwrap_or_default();
        output.write_all(new).and_then(|()| output.flush()).map_err(|error| LogError::Write(error.to_string()))?;
        self.end = self.end.saturating_add(u64::try_from(new.len()).unwrap_or(u64::MAX));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn pieces_overlap() {
        let (mut log, mut output) = (LogCopy::default(), Vec::new());
        for (position, piece) in [("0", "abc"), ("1", "bcd"), ("0", "ab"), ("4", ""), ("4", "e")] {
            log.append(position, piece.as_bytes(), &mut output).unwrap();
        }
        assert_eq!(output, b"abcde");
    }

    #[rstest]
    #[case::gap("2", LogError::Gap { position: 2, end: 0 })]
    #[case::negative("-1", LogError::InvalidPosition)]
    #[case::missing("", LogError::InvalidPosition)]
    fn invalid_positions(#[case] position: &str, #[case] expected: LogError) {
        assert_eq!(LogCopy::default().append(position, b"x", &mut Vec::new()), Err(expected));
    }
}
