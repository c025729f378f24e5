//! The bytes of the file: a header with the version, then frames. Numbers are little-endian.
//!
//! | part | bytes |
//! |---|---|
//! | header | magic 16, version 4, zero 4, xxh64 of these 8 |
//! | frame | mark 4, kind 4, length of the payload 8, xxh64 of the payload 8, xxh64 of these 8, payload |
//!
//! The frames are those of the base (every object as it was when the file was begun) up to [`Kind::BaseEnd`], then
//! one [`Kind::Commit`] for each group of writes, with a [`Kind::Acknowledged`] behind it once it was on disk. A payload
//! is text, two lines for each entry: `[revision, resource, namespace, name]` and the object, `null` for a removal. The
//! mark is no UTF-8, so it is in no payload, and a reader finds the next frame behind a damaged one.

use std::io;

use serde_json::Value;
use xxhash_rust::xxh64::xxh64;

use super::{Kept, Key};

/// Version of the layout; another one is refused.
pub(super) const VERSION: u32 = 1;

/// Length of the header.
pub(super) const HEADER: usize = 32;

const MAGIC: [u8; 16] = *b"\xFFostler objects\n";
const MARK: [u8; 4] = *b"\xFF\xFEF\n";
const FRAME_HEADER: usize = 32;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A part of the base.
    Objects,
    /// The base is whole: `{"revision": …, "issued": …}`.
    BaseEnd,
    /// Writes that became durable together.
    Commit,
    /// Everything before was on disk, and writers were told so. Empty.
    Acknowledged,
}

/// One write, or one object of the base.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) revision: u64,
    pub(super) key: Key,
    /// Absent when the object was removed.
    pub(super) object: Option<Value>,
}

/// Where the base stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct BaseEnd {
    /// Of the newest write in the base.
    pub(super) revision: u64,
    /// The highest revision that any write was given, those that were undone included: it is not given again.
    pub(super) issued: u64,
}

/// A frame in the bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: Kind,
    pub(super) payload: &'a [u8],
    /// Where the next one begins.
    pub(super) end: usize,
}

/// The first bytes are no header of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// Of another program, or damaged beyond recognition.
    Foreign,
    Damaged,
    Version(u32),
}

/// The first bytes of every file.
pub(super) fn header() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(xxh64(&bytes, 0).to_le_bytes());
    bytes
}

/// Whether the file is of this version.
pub(super) fn check_header(bytes: &[u8]) -> Result<(), BadHeader> {
    let header = bytes.get(..HEADER).ok_or(BadHeader::Foreign)?;
    if header[..MAGIC.len()] != MAGIC {
        return Err(BadHeader::Foreign);
    }
    if number(&header[24..]) != xxh64(&header[..24], 0) {
        return Err(BadHeader::Damaged);
    }
    match small(&header[16..]) {
        VERSION => Ok(()),
        other => Err(BadHeader::Version(other)),
    }
}

/// A frame around a payload.
pub(super) fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FRAME_HEADER + payload.len());
    bytes.extend(MARK);
    bytes.extend(kind.number().to_le_bytes());
    bytes.extend((payload.len() as u64).to_le_bytes());
    bytes.extend(xxh64(payload, 0).to_le_bytes());
    bytes.extend(xxh64(&bytes, 0).to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// The frame that begins at `at`; `None` when there is none or it is not whole.
pub(super) fn frame_at(bytes: &[u8], at: usize) -> Option<Frame<'_>> {
    let header = frame_header(bytes, at)?;
    let kind = Kind::of(small(&header[4..]))?;
    let length = usize::try_from(number(&header[8..])).ok()?;
    let start = at + FRAME_HEADER;
    let end = start.checked_add(length)?;
    let payload = bytes.get(start..end)?;
    (xxh64(payload, 0) == number(&header[16..])).then_some(Frame { kind, payload, end })
}

/// Whether a frame was begun anywhere behind `at`.
pub(super) fn frame_behind(bytes: &[u8], at: usize) -> bool {
    let rest = bytes.get(at + 1..).unwrap_or_default();
    let marks = rest.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    marks.into_iter().any(|(distance, _)| frame_header(bytes, at + 1 + distance).is_some())
}

fn frame_header(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let header = bytes.get(at..at.checked_add(FRAME_HEADER)?)?;
    (header[..4] == MARK && number(&header[24..]) == xxh64(&header[..24], 0)).then_some(header)
}

/// Appends an entry to a payload.
pub(super) fn write_entry(
    payload: &mut Vec<u8>,
    revision: u64,
    key: &Key,
    object: Option<&Kept>,
) -> Result<(), io::Error> {
    serde_json::to_writer(&mut *payload, &(revision, &key.resource, &key.namespace, &key.name))?;
    payload.push(b'\n');
    payload.extend_from_slice(object.map_or(b"null", Kept::text));
    payload.push(b'\n');
    Ok(())
}

/// The entries of a payload, in order.
pub(super) fn entries(payload: &[u8]) -> impl Iterator<Item = Result<Entry, serde_json::Error>> {
    let mut lines = payload.split(|byte| *byte == b'\n');
    std::iter::from_fn(move || {
        let (head, object) = (lines.next().filter(|line| !line.is_empty())?, lines.next().unwrap_or_default());
        Some(entry(head, object))
    })
}

fn entry(head: &[u8], object: &[u8]) -> Result<Entry, serde_json::Error> {
    let (revision, resource, namespace, name) = serde_json::from_slice(head)?;
    let object = serde_json::from_slice(object)?;
    Ok(Entry { revision, key: Key { resource, namespace, name }, object })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn small(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

// === impl Kind ===

impl Kind {
    fn number(self) -> u32 {
        match self {
            Self::Objects => 1,
            Self::BaseEnd => 2,
            Self::Commit => 3,
            Self::Acknowledged => 4,
        }
    }

    fn of(number: u32) -> Option<Self> {
        [Self::Objects, Self::BaseEnd, Self::Commit, Self::Acknowledged]
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

    fn key() -> Key {
        Key { resource: "configmaps".into(), namespace: "default".into(), name: "a".into() }
    }

    #[test]
    fn entries_read_as_written() {
        let object = json!({"metadata": {"name": "a"}, "data": {"k": "line\nbreak", "n": "ÿþ"}});
        let mut payload = Vec::new();
        write_entry(&mut payload, 7, &key(), Some(&Kept::new(&Arc::new(object.clone())))).unwrap();
        write_entry(&mut payload, 8, &key(), None).unwrap();
        let read: Vec<Entry> = entries(&payload).map(Result::unwrap).collect();
        assert_eq!(read[0], Entry { revision: 7, key: key(), object: Some(object) });
        assert_eq!(read[1], Entry { revision: 8, key: key(), object: None });
    }

    #[test]
    fn every_flipped_bit_of_a_frame_shows() {
        let whole = frame(Kind::Commit, b"payload");
        assert_eq!(frame_at(&whole, 0), Some(Frame { kind: Kind::Commit, payload: b"payload", end: whole.len() }));
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(frame_at(&flipped, 0), None, "bit {bit}");
        }
    }

    #[rstest]
    #[case::ours(header(), Ok(()))]
    #[case::empty(Vec::new(), Err(BadHeader::Foreign))]
    #[case::of_another_program(b"SQLite format 3\0, and what comes behind".to_vec(), Err(BadHeader::Foreign))]
    #[case::damaged({ let mut bytes = header(); bytes[17] ^= 4; bytes }, Err(BadHeader::Damaged))]
    fn headers(#[case] bytes: Vec<u8>, #[case] expected: Result<(), BadHeader>) {
        assert_eq!(check_header(&bytes), expected);
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let mut bytes = header();
        bytes[16] = 2;
        let sum = xxh64(&bytes[..24], 0).to_le_bytes();
        bytes[24..].copy_from_slice(&sum);
        assert_eq!(check_header(&bytes), Err(BadHeader::Version(2)));
    }
}
