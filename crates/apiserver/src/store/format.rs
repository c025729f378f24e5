//! Format of the journal file: a header with the version, then frames. Numbers are little-endian.
//!
//! | part | bytes |
//! |---|---|
//! | header | magic 16, version 4, zero 4, xxh64 of these 8 |
//! | frame | mark 4, kind 4, length of the payload 8, xxh64 of the payload 8, xxh64 of these 8, payload |
//!
//! The first frames are the checkpoint (every object at the time the file was created) up to
//! [`FrameKind::CheckpointEnd`]. They are followed by one [`FrameKind::Commit`] per batch of writes, each with a
//! [`FrameKind::Acknowledged`] after it once the batch was durable. A payload is text with two lines per entry:
//! `[revision, resource, namespace, name]`, then the object (`null` for a deletion). The mark is invalid UTF-8 and
//! therefore never occurs in a payload, so a reader can find the next frame after a corrupt one.

use std::io;

use serde_json::Value;
use xxhash_rust::xxh64::xxh64;

use super::{ObjectKey, StoredObject};

/// Version of the format; other versions are rejected.
pub(super) const VERSION: u32 = 1;

/// Length of the header in bytes.
pub(super) const HEADER_LENGTH: usize = 32;

const MAGIC: [u8; 16] = *b"\xFFostler objects\n";
const FRAME_MARK: [u8; 4] = *b"\xFF\xFEF\n";
const FRAME_HEADER_LENGTH: usize = 32;

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Objects of the checkpoint.
    Objects,
    /// End of the checkpoint: `{"revision": …, "issued": …}`.
    CheckpointEnd,
    /// A batch of writes that became durable together.
    Commit,
    /// All frames before this one were durable and acknowledged to the writers. The payload is empty.
    Acknowledged,
}

/// One write, or one object of the checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JournalEntry {
    pub(super) revision: u64,
    pub(super) key: ObjectKey,
    /// `None` when the object was deleted.
    pub(super) object: Option<Value>,
}

/// The revisions of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct CheckpointEnd {
    /// The revision of the newest write in the checkpoint.
    pub(super) revision: u64,
    /// The highest revision that was ever assigned, including writes that were rolled back; it is not assigned again.
    pub(super) issued: u64,
}

/// A frame of a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: FrameKind,
    pub(super) payload: &'a [u8],
    /// Offset of the next frame.
    pub(super) end: usize,
}

/// A frame to which entries are appended, without its header.
pub(super) struct FrameBuffer(Vec<u8>);

/// The reason for rejecting a file header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// Not a journal file, or its magic bytes are corrupt.
    UnrecognizedFile,
    /// The checksum does not match.
    Corrupt,
    /// Another version of the format.
    UnsupportedVersion(u32),
}

/// Returns the header of a journal file.
pub(super) fn header() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(xxh64(&bytes, 0).to_le_bytes());
    bytes
}

/// Checks the header and its version.
pub(super) fn check_header(bytes: &[u8]) -> Result<(), HeaderError> {
    let header = bytes.get(..HEADER_LENGTH).ok_or(HeaderError::UnrecognizedFile)?;
    if header[..MAGIC.len()] != MAGIC {
        return Err(HeaderError::UnrecognizedFile);
    }
    if read_u64(&header[24..]) != xxh64(&header[..24], 0) {
        return Err(HeaderError::Corrupt);
    }
    match read_u32(&header[16..]) {
        VERSION => Ok(()),
        version => Err(HeaderError::UnsupportedVersion(version)),
    }
}

/// Encodes a frame with this payload.
pub(super) fn frame(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    let mut frame = FrameBuffer::with_capacity(payload.len());
    frame.0.extend_from_slice(payload);
    frame.finish(kind)
}

/// Returns the frame at an offset, `None` when it is missing, incomplete or corrupt.
pub(super) fn frame_at(bytes: &[u8], offset: usize) -> Option<Frame<'_>> {
    let header = frame_header(bytes, offset)?;
    let kind = FrameKind::from_number(read_u32(&header[4..]))?;
    let length = usize::try_from(read_u64(&header[8..])).ok()?;
    let start = offset + FRAME_HEADER_LENGTH;
    let end = start.checked_add(length)?;
    let payload = bytes.get(start..end)?;
    (xxh64(payload, 0) == read_u64(&header[16..])).then_some(Frame { kind, payload, end })
}

/// Whether a frame header exists anywhere after `offset`.
pub(super) fn has_frame_after(bytes: &[u8], offset: usize) -> bool {
    let rest = bytes.get(offset + 1..).unwrap_or_default();
    let marks = rest.windows(FRAME_MARK.len()).enumerate().filter(|(_, window)| *window == FRAME_MARK);
    marks.into_iter().any(|(distance, _)| frame_header(bytes, offset + 1 + distance).is_some())
}

/// Returns the frame header at an offset if its checksum matches.
fn frame_header(bytes: &[u8], offset: usize) -> Option<&[u8]> {
    let header = bytes.get(offset..offset.checked_add(FRAME_HEADER_LENGTH)?)?;
    (header[..4] == FRAME_MARK && read_u64(&header[24..]) == xxh64(&header[..24], 0)).then_some(header)
}

/// Returns the entries of a payload in order.
pub(super) fn parse_entries(payload: &[u8]) -> impl Iterator<Item = Result<JournalEntry, serde_json::Error>> {
    let mut lines = payload.split(|byte| *byte == b'\n');
    std::iter::from_fn(move || {
        let (key_line, object_line) = (lines.next().filter(|line| !line.is_empty())?, lines.next().unwrap_or_default());
        Some(parse_entry(key_line, object_line))
    })
}

fn parse_entry(key_line: &[u8], object: &[u8]) -> Result<JournalEntry, serde_json::Error> {
    let (revision, resource, namespace, name) = serde_json::from_slice(key_line)?;
    let object = serde_json::from_slice(object)?;
    Ok(JournalEntry { revision, key: ObjectKey { resource, namespace, name }, object })
}

fn read_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn read_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

// === impl FrameBuffer ===

impl FrameBuffer {
    /// Returns an empty frame with memory for a payload of `length` bytes.
    pub(super) fn with_capacity(length: usize) -> Self {
        let mut bytes = Vec::with_capacity(FRAME_HEADER_LENGTH + length);
        bytes.resize(FRAME_HEADER_LENGTH, 0);
        Self(bytes)
    }

    /// Returns the length of the payload in bytes.
    pub(super) fn payload_length(&self) -> usize {
        self.0.len() - FRAME_HEADER_LENGTH
    }

    /// Appends an entry.
    pub(super) fn write_entry(
        &mut self,
        revision: u64,
        key: &ObjectKey,
        object: Option<&StoredObject>,
    ) -> Result<(), io::Error> {
        serde_json::to_writer(&mut self.0, &(revision, &key.resource, &key.namespace, &key.name))?;
        self.0.push(b'\n');
        self.0.extend_from_slice(object.map_or(b"null", StoredObject::json));
        self.0.push(b'\n');
        Ok(())
    }

    /// Returns the encoded frame.
    pub(super) fn finish(self, kind: FrameKind) -> Vec<u8> {
        let Self(mut bytes) = self;
        let (header, payload) = bytes.split_at_mut(FRAME_HEADER_LENGTH);
        header[..4].copy_from_slice(&FRAME_MARK);
        header[4..8].copy_from_slice(&kind.number().to_le_bytes());
        header[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        header[16..24].copy_from_slice(&xxh64(payload, 0).to_le_bytes());
        let checksum = xxh64(&header[..24], 0);
        header[24..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

// === impl FrameKind ===

impl FrameKind {
    fn number(self) -> u32 {
        match self {
            Self::Objects => 1,
            Self::CheckpointEnd => 2,
            Self::Commit => 3,
            Self::Acknowledged => 4,
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        [Self::Objects, Self::CheckpointEnd, Self::Commit, Self::Acknowledged]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn key() -> ObjectKey {
        ObjectKey { resource: "configmaps".into(), namespace: "default".into(), name: "a".into() }
    }

    #[test]
    fn entries_round_trip() {
        let object = json!({"metadata": {"name": "a"}, "data": {"k": "line\nbreak", "n": "ÿþ"}});
        let mut buffer = FrameBuffer::with_capacity(0);
        buffer.write_entry(7, &key(), Some(&StoredObject::new(&Arc::new(object.clone())))).unwrap();
        buffer.write_entry(8, &key(), None).unwrap();
        let bytes = buffer.finish(FrameKind::Commit);
        let frame = frame_at(&bytes, 0).unwrap();
        let entries: Vec<JournalEntry> = parse_entries(frame.payload).map(Result::unwrap).collect();
        assert_eq!((frame.kind, frame.end), (FrameKind::Commit, bytes.len()));
        assert_eq!(entries[0], JournalEntry { revision: 7, key: key(), object: Some(object) });
        assert_eq!(entries[1], JournalEntry { revision: 8, key: key(), object: None });
    }

    #[test]
    fn detects_every_flipped_bit() {
        let intact = frame(FrameKind::Commit, b"payload");
        assert_eq!(
            frame_at(&intact, 0),
            Some(Frame { kind: FrameKind::Commit, payload: b"payload", end: intact.len() })
        );
        for bit in 0..intact.len() * 8 {
            let mut flipped = intact.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(frame_at(&flipped, 0), None, "bit {bit}");
        }
    }

    #[rstest]
    #[case::valid(header(), Ok(()))]
    #[case::empty(Vec::new(), Err(HeaderError::UnrecognizedFile))]
    #[case::other_file_format(b"SQLite format 3\0, followed by other bytes".to_vec(), Err(HeaderError::UnrecognizedFile))]
    #[case::corrupt({ let mut bytes = header(); bytes[17] ^= 4; bytes }, Err(HeaderError::Corrupt))]
    fn checks_headers(#[case] bytes: Vec<u8>, #[case] expected: Result<(), HeaderError>) {
        assert_eq!(check_header(&bytes), expected);
    }

    #[test]
    fn detects_newer_version() {
        let mut bytes = header();
        bytes[16] = 2;
        let checksum = xxh64(&bytes[..24], 0).to_le_bytes();
        bytes[24..].copy_from_slice(&checksum);
        assert_eq!(check_header(&bytes), Err(HeaderError::UnsupportedVersion(2)));
    }
}
