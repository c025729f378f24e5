//! The file of a store: opened again, or begun anew from all objects.

use std::io;

use super::format::{self, Kind};
use super::recovery::{FILE, NEXT};
use super::state::{Base, Lengths};
use super::storage::{Append, Storage};

/// Length of the base's parts in bytes, about.
const PART: usize = 1 << 20;

/// A file that is written to.
pub(super) struct Output {
    pub(super) file: Box<dyn Append>,
    pub(super) lengths: Lengths,
}

/// What another process wrote may not be on disk yet, although it can be read.
pub(super) fn reopen(storage: &dyn Storage, lengths: Lengths) -> io::Result<Output> {
    // Of a process that ended while it began the file anew.
    storage.remove(NEXT);
    let mut file = storage.open(FILE, lengths.file)?;
    file.sync()?;
    Ok(Output { file, lengths })
}

/// A new file in the place of the old one.
pub(super) fn renew(storage: &dyn Storage, base: &Base) -> io::Result<Output> {
    let output = write_base(storage, base)?;
    storage.replace(FILE, NEXT)?;
    Ok(output)
}

/// The file under its later name; there is none after an error.
pub(super) fn write_base(storage: &dyn Storage, base: &Base) -> io::Result<Output> {
    write_next(storage, base).inspect_err(|_| storage.remove(NEXT))
}

fn write_next(storage: &dyn Storage, base: &Base) -> io::Result<Output> {
    let mut file = storage.create(NEXT)?;
    let mut length = 0;
    let mut append = |bytes: &[u8]| {
        length += bytes.len() as u64;
        file.append(bytes)
    };
    append(&format::header())?;
    let mut part = Vec::new();
    for (key, object) in &base.objects {
        format::write_entry(&mut part, base.end.revision, key, Some(object))?;
        if part.len() >= PART {
            append(&format::frame(Kind::Objects, &part))?;
            part.clear();
        }
    }
    append(&format::frame(Kind::Objects, &part))?;
    append(&format::frame(Kind::BaseEnd, &serde_json::to_vec(&base.end)?))?;
    file.sync()?;
    Ok(Output { file, lengths: Lengths { file: length, base: length } })
}

// === impl Output ===

impl Output {
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)?;
        self.lengths.file += bytes.len() as u64;
        Ok(())
    }
}
