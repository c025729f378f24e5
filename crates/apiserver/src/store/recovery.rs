//! Recovery: reads the checkpoint and the complete writes of a journal file.
//!
//! Batches of writes are persisted one after the other. Therefore only the last batch can be incomplete, and an
//! incomplete batch was never acknowledged. A corrupt frame that is followed by another frame means that acknowledged
//! data was lost, so the file is rejected.

use std::io;

use super::format::{self, CheckpointEnd, Frame, FrameKind, HEADER_LENGTH, HeaderError, JournalEntry};
use super::storage::Storage;

/// Name of the journal file.
pub(super) const JOURNAL_FILE: &str = "objects.log";

/// Temporary name of a new journal file before it replaces the old one.
pub(super) const NEXT_JOURNAL_FILE: &str = "objects.log.next";

/// An error that prevents opening a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// A file cannot be read or written.
    #[error("{file}: {error}")]
    Io {
        /// The file or directory.
        file: String,
        /// The cause.
        error: io::Error,
    },
    /// The file is not an object store journal.
    #[error("{file}: not an object store journal")]
    UnrecognizedFile {
        /// The file.
        file: String,
    },
    /// The file was written by a newer version of this program.
    #[error("{file}: written by a newer version in format {version}; this version reads format {}", format::VERSION)]
    NewerFormat {
        /// The file.
        file: String,
        /// Format version of the file.
        version: u32,
    },
    /// The file is corrupt.
    #[error("{file}: corrupt at byte {offset} of {length}: {reason}")]
    Corrupt {
        /// The file.
        file: String,
        /// Offset in bytes of the corrupt part.
        offset: usize,
        /// Length of the file in bytes.
        length: usize,
        /// The cause.
        reason: &'static str,
    },
}

/// The contents of a journal file.
#[derive(Debug, Default)]
pub(super) struct JournalContents {
    /// Objects of the checkpoint.
    pub(super) objects: Vec<JournalEntry>,
    pub(super) end: Option<CheckpointEnd>,
    /// Writes after the checkpoint, in order.
    pub(super) commits: Vec<JournalEntry>,
    /// Length of the intact part of the file in bytes.
    pub(super) length: usize,
    /// Length of the checkpoint in bytes.
    pub(super) checkpoint_length: usize,
}

/// A corrupt part of a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Corruption {
    pub(super) offset: usize,
    pub(super) reason: &'static str,
}

/// Reads the journal file; `None` when it does not exist.
pub(super) fn load(storage: &dyn Storage) -> Result<Option<JournalContents>, StoreOpenError> {
    let file = || storage.display_path(JOURNAL_FILE);
    let bytes = storage.read(JOURNAL_FILE).map_err(|error| StoreOpenError::Io { file: file(), error })?;
    let Some(bytes) = bytes else { return Ok(None) };
    let corrupt_error =
        |Corruption { offset, reason }| StoreOpenError::Corrupt { file: file(), offset, length: bytes.len(), reason };
    match format::check_header(&bytes) {
        Ok(()) => {}
        Err(HeaderError::UnrecognizedFile) => return Err(StoreOpenError::UnrecognizedFile { file: file() }),
        Err(HeaderError::UnsupportedVersion(version)) => {
            return Err(StoreOpenError::NewerFormat { file: file(), version });
        }
        Err(HeaderError::Corrupt) => {
            return Err(corrupt_error(Corruption { offset: 0, reason: "the header checksum does not match" }));
        }
    }
    let recovered = parse(&bytes).map_err(corrupt_error)?;
    if recovered.length < bytes.len() {
        let bytes = bytes.len() - recovered.length;
        tracing::info!(file = file(), bytes, "discarding an incomplete write at the end of the journal");
    }
    Ok(Some(recovered))
}

/// Parses the frames after the header.
pub(super) fn parse(bytes: &[u8]) -> Result<JournalContents, Corruption> {
    let mut recovered = JournalContents { length: HEADER_LENGTH, ..JournalContents::default() };
    while recovered.length < bytes.len() {
        let offset = recovered.length;
        let Some(frame) = format::frame_at(bytes, offset) else {
            return if recovered.end.is_none() || format::has_frame_after(bytes, offset) {
                Err(Corruption { offset, reason: "the checksum does not match" })
            } else {
                Ok(recovered)
            };
        };
        recovered.add_frame(&frame).map_err(|reason| Corruption { offset, reason })?;
        recovered.length = frame.end;
    }
    if recovered.end.is_none() {
        return Err(Corruption { offset: bytes.len(), reason: "unexpected end of file" });
    }
    Ok(recovered)
}

// === impl JournalContents ===

impl JournalContents {
    /// Adds the entries of a frame.
    fn add_frame(&mut self, frame: &Frame<'_>) -> Result<(), &'static str> {
        const INVALID_ENTRIES: &str = "invalid entries";
        let entries = match (frame.kind, self.end) {
            (FrameKind::Objects, None) => &mut self.objects,
            (FrameKind::CheckpointEnd, None) => {
                self.end = Some(serde_json::from_slice(frame.payload).map_err(|_| INVALID_ENTRIES)?);
                self.checkpoint_length = frame.end;
                return Ok(());
            }
            (FrameKind::Commit, Some(_)) => &mut self.commits,
            (FrameKind::Acknowledged, Some(_)) => return Ok(()),
            _ => return Err("unexpected frame"),
        };
        for entry in format::parse_entries(frame.payload) {
            entries.push(entry.map_err(|_| INVALID_ENTRIES)?);
        }
        Ok(())
    }
}
