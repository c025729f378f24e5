//! The journal file: reopened, or rewritten from a checkpoint of all objects.

use std::io;
use std::thread;

use super::format::{self, FrameBuffer, FrameKind};
use super::recovery::{JOURNAL_FILE, NEXT_JOURNAL_FILE};
use super::state::{Checkpoint, JournalLengths};
use super::storage::{AppendFile, Storage};

/// Approximate size in bytes of a frame of the checkpoint.
const FRAME_SIZE: usize = 1 << 20;

/// Maximum number of bytes that are appended to a file at a time.
const MAX_APPEND_BYTES: usize = 128 * 1024;

/// A journal file that is open for appending.
pub(super) struct JournalFile {
    pub(super) handle: Box<dyn AppendFile>,
    pub(super) lengths: JournalLengths,
}

/// Opens an existing journal file. The file and its name are synced first, because writes and a rename of an earlier
/// process may be visible without being durable.
pub(super) fn reopen_journal(storage: &dyn Storage, lengths: JournalLengths) -> io::Result<JournalFile> {
    // Removes a file left by a process that ended while writing a checkpoint.
    storage.remove(NEXT_JOURNAL_FILE);
    let mut handle = storage.open(JOURNAL_FILE, lengths.file)?;
    handle.sync()?;
    storage.sync_directory()?;
    Ok(JournalFile { handle, lengths })
}

/// Writes a new journal file with a checkpoint and replaces the old one.
pub(super) fn replace_journal(storage: &dyn Storage, checkpoint: &Checkpoint) -> io::Result<JournalFile> {
    let file = write_checkpoint(storage, checkpoint)?;
    switch_journal(storage)?;
    Ok(file)
}

/// Durably replaces the journal file with the new one.
pub(super) fn switch_journal(storage: &dyn Storage) -> io::Result<()> {
    storage.replace(JOURNAL_FILE, NEXT_JOURNAL_FILE)?;
    storage.sync_directory()
}

/// Writes a new journal file under its temporary name; it is removed after an error.
pub(super) fn write_checkpoint(storage: &dyn Storage, checkpoint: &Checkpoint) -> io::Result<JournalFile> {
    write_new_file(storage, checkpoint).inspect_err(|_| storage.remove(NEXT_JOURNAL_FILE))
}

fn write_new_file(storage: &dyn Storage, checkpoint: &Checkpoint) -> io::Result<JournalFile> {
    let mut file = storage.create(NEXT_JOURNAL_FILE)?;
    let mut length = 0;
    let mut append = |bytes: &[u8]| {
        length += bytes.len() as u64;
        append_parts(file.as_mut(), bytes)
    };
    append(&format::header())?;
    let mut frame = FrameBuffer::with_capacity(FRAME_SIZE);
    for (key, object) in &checkpoint.objects {
        frame.write_entry(checkpoint.end.revision, key, Some(object))?;
        if frame.payload_length() >= FRAME_SIZE {
            let complete = std::mem::replace(&mut frame, FrameBuffer::with_capacity(FRAME_SIZE));
            append(&complete.finish(FrameKind::Objects))?;
        }
    }
    append(&frame.finish(FrameKind::Objects))?;
    append(&format::frame(FrameKind::CheckpointEnd, &serde_json::to_vec(&checkpoint.end)?))?;
    file.sync()?;
    Ok(JournalFile { handle: file, lengths: JournalLengths { file: length, checkpoint: length } })
}

/// Appends bytes to a file. Between the parts, it offers the CPU to other threads, as [`crate::cpu_threads`] do: an async worker
/// may wait for it.
fn append_parts(file: &mut dyn AppendFile, bytes: &[u8]) -> io::Result<()> {
    for part in bytes.chunks(MAX_APPEND_BYTES) {
        file.append(part)?;
        thread::yield_now();
    }
    Ok(())
}

// === impl JournalFile ===

impl JournalFile {
    /// Appends bytes to the file.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        append_parts(self.handle.as_mut(), bytes)?;
        self.lengths.file += bytes.len() as u64;
        Ok(())
    }
}
