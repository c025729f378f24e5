//! The output of an instance in a file of limited size: a ring, whose oldest bytes are overwritten.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::byte_range::ByteRange;

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogPiece {
    /// Position of the first byte, counted from the first byte that the instance wrote.
    pub(super) first: u64,
    pub(super) bytes: Vec<u8>,
}

/// The log of one instance. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct InstanceLog {
    path: PathBuf,
    file: File,
    /// Number of bytes that are retained.
    capacity: u64,
    /// Number of bytes that were written. Held while the file is read or written.
    end: Mutex<u64>,
}

// === impl InstanceLog ===

impl InstanceLog {
    /// Creates the file, which only the user of the launcher can read.
    ///
    /// # Errors
    /// The file exists, or the directory is missing or not writable.
    pub(super) fn create(path: &Path, capacity: u64) -> io::Result<InstanceLog> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        Ok(InstanceLog { path: path.to_owned(), file, capacity: capacity.max(1), end: Mutex::new(0) })
    }

    /// Appends bytes. Blocks on file I/O.
    ///
    /// # Errors
    /// The file system is full, for example. The bytes count as written, so that positions remain right.
    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let start = *end;
        *end += length(bytes);
        let retained = bytes.get(bytes.len().saturating_sub(self.capacity_bytes())..).unwrap_or_default();
        self.for_each_run(start + length(bytes) - length(retained), retained.len(), |offset, from, to| {
            self.file.write_all_at(retained.get(from..to).unwrap_or_default(), offset)
        })
    }

    /// Returns the retained part of `range`, at most `limit` bytes, or `None` if there is none; and the number of bytes that were
    /// written. Blocks on file I/O.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(&self, range: ByteRange, limit: u64) -> io::Result<(Option<LogPiece>, u64)> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let start = end.saturating_sub(self.capacity);
        let Some((first, stop)) = range.resolve(start, *end, limit) else { return Ok((None, *end)) };
        let mut bytes = vec![0; usize::try_from(stop - first).unwrap_or_default()];
        let count = bytes.len();
        self.for_each_run(first, count, |offset, from, to| {
            self.file.read_exact_at(bytes.get_mut(from..to).unwrap_or_default(), offset)
        })?;
        Ok((Some(LogPiece { first, bytes }), *end))
    }

    fn capacity_bytes(&self) -> usize {
        usize::try_from(self.capacity).unwrap_or(usize::MAX)
    }

    /// Calls `transfer` with the offset in the file and the part of the buffer, for each run of adjacent bytes in the file.
    fn for_each_run(
        &self,
        position: u64,
        count: usize,
        mut transfer: impl FnMut(u64, usize, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let offset = position % self.capacity;
        let until_end = usize::try_from(self.capacity - offset).unwrap_or(usize::MAX).min(count);
        transfer(offset, 0, until_end)?;
        match until_end < count {
            true => transfer(0, until_end, count),
            false => Ok(()),
        }
    }
}

impl Drop for InstanceLog {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "failed to remove the log of an instance");
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: ByteRange = ByteRange::From { first: 0, last: None };

    fn read(log: &InstanceLog, range: ByteRange) -> (Option<(u64, String)>, u64) {
        let (piece, end) = log.read(range, 100).unwrap();
        (piece.map(|piece| (piece.first, String::from_utf8(piece.bytes).unwrap())), end)
    }

    #[test]
    fn newest_bytes_are_retained() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = InstanceLog::create(&path, 8).unwrap();
        assert_eq!(read(&log, ALL), (None, 0));
        log.append(b"abcde").unwrap();
        assert_eq!(read(&log, ALL), (Some((0, "abcde".to_owned())), 5));
        log.append(b"fghij").unwrap();
        assert_eq!(read(&log, ALL), (Some((2, "cdefghij".to_owned())), 10));
        log.append(b"0123456789klmnopqrst").unwrap();
        assert_eq!(read(&log, ALL), (Some((22, "mnopqrst".to_owned())), 30));
        assert_eq!(read(&log, ByteRange::Suffix(3)), (Some((27, "rst".to_owned())), 30));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8);
        drop(log);
        assert!(!path.exists());
    }
}
