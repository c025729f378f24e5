//! What a file holds: the base, and every write behind it that was whole.
//!
//! Groups of writes are on disk one after the other, so only the last one can be unfinished; nobody was told of it. A
//! frame that does not read and has another one behind it was damaged, and the file is refused: what it held was
//! promised.

use std::io;

use super::format::{self, BadHeader, BaseEnd, Entry, Frame, HEADER, Kind};
use super::storage::Storage;

/// The file of the store.
pub(super) const FILE: &str = "objects.log";

/// The next one, before it has the name.
pub(super) const NEXT: &str = "objects.log.next";

/// The folder's objects cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{file}: {error}")]
    Io { file: String, error: io::Error },
    #[error("{file}: not a file of stored objects")]
    Foreign { file: String },
    #[error("{file}: written in format {version} by a newer version; this one reads format {}", format::VERSION)]
    Newer { file: String, version: u32 },
    #[error("{file}: damaged at byte {offset} of {length}: {what}")]
    Damaged { file: String, offset: usize, length: usize, what: &'static str },
}

/// Everything that a file says.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    pub(super) base: Vec<Entry>,
    pub(super) end: Option<BaseEnd>,
    /// Behind the base, in order.
    pub(super) commits: Vec<Entry>,
    /// Up to where the file is sound.
    pub(super) length: usize,
    /// Where the base ends.
    pub(super) base_length: usize,
}

/// A place that does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) offset: usize,
    pub(super) what: &'static str,
}

/// Reads the file; `None` when there is none.
pub(super) fn load(storage: &dyn Storage) -> Result<Option<Recovered>, OpenError> {
    let file = || storage.shown(FILE);
    let bytes = storage.read(FILE).map_err(|error| OpenError::Io { file: file(), error })?;
    let Some(bytes) = bytes else { return Ok(None) };
    let damaged = |Damage { offset, what }| OpenError::Damaged { file: file(), offset, length: bytes.len(), what };
    match format::check_header(&bytes) {
        Ok(()) => {}
        Err(BadHeader::Foreign) => return Err(OpenError::Foreign { file: file() }),
        Err(BadHeader::Version(version)) => return Err(OpenError::Newer { file: file(), version }),
        Err(BadHeader::Damaged) => return Err(damaged(Damage { offset: 0, what: "the header" })),
    }
    let recovered = read(&bytes).map_err(damaged)?;
    if recovered.length < bytes.len() {
        let unfinished = bytes.len() - recovered.length;
        tracing::info!(file = file(), unfinished, "the last write was not finished and is dropped");
    }
    Ok(Some(recovered))
}

/// The frames behind the header.
pub(super) fn read(bytes: &[u8]) -> Result<Recovered, Damage> {
    let mut found = Recovered { length: HEADER, ..Recovered::default() };
    while found.length < bytes.len() {
        let at = found.length;
        let Some(frame) = format::frame_at(bytes, at) else {
            return if found.end.is_none() || format::frame_behind(bytes, at) {
                Err(Damage { offset: at, what: "the checksum does not match" })
            } else {
                Ok(found)
            };
        };
        found.take(&frame).map_err(|what| Damage { offset: at, what })?;
        found.length = frame.end;
    }
    if found.end.is_none() {
        return Err(Damage { offset: bytes.len(), what: "the file ends too early" });
    }
    Ok(found)
}

// === impl Recovered ===

impl Recovered {
    fn take(&mut self, frame: &Frame<'_>) -> Result<(), &'static str> {
        const UNREADABLE: &str = "the entries cannot be read";
        let into = match (frame.kind, self.end) {
            (Kind::Objects, None) => &mut self.base,
            (Kind::BaseEnd, None) => {
                self.end = Some(serde_json::from_slice(frame.payload).map_err(|_| UNREADABLE)?);
                self.base_length = frame.end;
                return Ok(());
            }
            (Kind::Commit, Some(_)) => &mut self.commits,
            (Kind::Acknowledged, Some(_)) => return Ok(()),
            _ => return Err("this part does not belong here"),
        };
        for entry in format::entries(frame.payload) {
            into.push(entry.map_err(|_| UNREADABLE)?);
        }
        Ok(())
    }
}
