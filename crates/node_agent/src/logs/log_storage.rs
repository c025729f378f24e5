//! Log storage of one container run: in memory, or in rotated files.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::record::{LogRecord, LogTag};
use crate::private_directory::create_private_dir;

/// Maximum total size in bytes of the records in memory; the oldest records are dropped first.
const MAX_MEMORY_BYTES: usize = 1 << 20;

/// Maximum size of a file and maximum number of files: the kubelet's defaults for `containerLogMaxSize` and
/// `containerLogMaxFiles`.
const MAX_FILE_BYTES: u64 = 10 << 20;
const MAX_FILES: usize = 5;

/// Number of bytes per read; must exceed the maximum length of a record.
const CHUNK_SIZE: usize = 64 << 10;

/// Position of a reader, always at the start of a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of the log file; 0 for records in memory.
    file: u64,
    /// Byte offset in the file; for records in memory, the number of the record.
    offset: u64,
}

/// Log storage of one container run.
#[derive(Debug)]
pub(super) enum LogStorage {
    /// Lost when the process ends.
    Memory(RingBuffer),
    /// Readable after a restart of the process.
    Files(RotatedFiles),
}

/// Records in memory.
#[derive(Debug)]
pub(super) struct RingBuffer {
    records: VecDeque<LogRecord>,
    max_bytes: usize,
    /// Size of the records, including the memory for their metadata: many short lines must not exceed the limit.
    bytes: usize,
    /// Number of records that were dropped.
    dropped: u64,
}

/// Records in rotated files.
#[derive(Debug)]
pub(super) struct RotatedFiles {
    files: LogFiles,
    /// The last file, which lines are written to.
    file: File,
}

/// The files of a log at one moment. They are read without holding up the writer; a file that was removed since is skipped.
#[derive(Debug, Clone)]
pub(super) struct LogFiles {
    dir: PathBuf,
    /// Number of the container run, which is part of the file names.
    run: u64,
    /// Number of the last file.
    current: u64,
    /// Size of the last file in bytes.
    size: u64,
    /// Number of lines that end in each existing file, oldest first.
    lines: VecDeque<u64>,
}

impl Default for RingBuffer {
    /// Returns a buffer of 1 MiB.
    fn default() -> Self {
        Self::new(MAX_MEMORY_BYTES)
    }
}

/// The result of [`skip_lines`].
struct SkippedLines {
    /// Offset after the last skipped record.
    end: usize,
    /// Number of lines that were skipped.
    skipped: u64,
}

// === impl LogStorage ===

impl LogStorage {
    /// Appends a record.
    pub(super) fn push(&mut self, record: LogRecord) {
        match self {
            Self::Memory(ring) => ring.push(record),
            Self::Files(rotated) => {
                if let Err(error) = rotated.push(&record) {
                    tracing::warn!(dir = %rotated.files.dir.display(), %error, "failed to write a log line of a container");
                }
            }
        }
    }

    /// Returns the position before the last `tail` lines, or before the first line.
    pub(super) fn start_position(&self, tail: Option<usize>) -> Position {
        match self {
            Self::Memory(ring) => ring.start_position(line_count(tail)),
            Self::Files(rotated) => rotated.files.start_position(tail),
        }
    }

    /// Returns the files of the log; `None` if it is in memory.
    pub(super) fn files(&self) -> Option<LogFiles> {
        match self {
            Self::Memory(_) => None,
            Self::Files(rotated) => Some(rotated.files.clone()),
        }
    }

    /// Returns the next records after `from` (none at the end of the log) and the position after them.
    pub(super) fn read(&self, from: Position) -> (Vec<LogRecord>, Position) {
        match self {
            Self::Memory(ring) => ring.read(from),
            Self::Files(rotated) => rotated.files.read(from),
        }
    }

    /// Removes the files.
    pub(super) fn remove(&self) {
        if let Self::Files(RotatedFiles { files, .. }) = self {
            for number in files.oldest_number()..=files.current {
                // The file may already have been removed.
                let _ = fs::remove_file(files.path(number));
            }
        }
    }
}

// === impl RingBuffer ===

impl RingBuffer {
    /// Returns a buffer that keeps the last `max_bytes` bytes.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { records: VecDeque::new(), max_bytes, bytes: 0, dropped: 0 }
    }

    fn push(&mut self, record: LogRecord) {
        let size = |record: &LogRecord| record.text.len() + size_of::<LogRecord>();
        self.bytes += size(&record);
        self.records.push_back(record);
        while self.bytes > self.max_bytes {
            let Some(first) = self.records.pop_front() else { break };
            self.bytes -= size(&first);
            self.dropped += 1;
        }
    }

    fn start_position(&self, tail: u64) -> Position {
        let mut remaining = tail;
        let in_tail = |record: &&LogRecord| match record.tag {
            LogTag::Partial => true,
            LogTag::Full if remaining == 0 => false,
            LogTag::Full => {
                remaining -= 1;
                true
            }
        };
        let count = if tail == 0 { 0 } else { self.records.iter().rev().take_while(in_tail).count() };
        Position { file: 0, offset: self.end() - count as u64 }
    }

    /// Returns the number of the next record.
    fn end(&self) -> u64 {
        self.dropped + self.records.len() as u64
    }

    fn read(&self, from: Position) -> (Vec<LogRecord>, Position) {
        let skip = usize::try_from(from.offset.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let records = self.records.iter().skip(skip).cloned().collect();
        (records, Position { file: 0, offset: self.end() })
    }
}

// === impl RotatedFiles ===

impl RotatedFiles {
    /// Creates the first log file of a container run.
    ///
    /// # Errors
    /// When the directory cannot be created or written to.
    pub(super) fn create(dir: &Path, run: u64) -> io::Result<Self> {
        create_private_dir(dir)?;
        let file = open(&path(dir, run, 0))?;
        let files = LogFiles { dir: dir.to_owned(), run, current: 0, size: 0, lines: VecDeque::from([0]) };
        Ok(Self { files, file })
    }

    /// Opens the log of the last container run in the directory and removes the logs of earlier runs. Returns `None`
    /// when the directory has no files.
    ///
    /// # Errors
    /// When the directory cannot be read or written to.
    pub(super) fn open_last_run(dir: &Path) -> io::Result<Option<Self>> {
        if !dir.is_dir() {
            return Ok(None);
        }
        let files =
            fs::read_dir(dir)?.flatten().filter_map(|entry| parse_file_name(&entry.file_name().to_string_lossy()));
        let files: BTreeSet<(u64, u64)> = files.collect();
        let Some((run, current)) = files.last().copied() else { return Ok(None) };
        let (mut lines, mut size) = (VecDeque::new(), 0);
        for (file_run, number) in files {
            if file_run != run {
                fs::remove_file(path(dir, file_run, number))?;
                continue;
            }
            let bytes = fs::read(path(dir, file_run, number))?;
            lines.push_back(skip_lines(&bytes, u64::MAX).skipped);
            size = bytes.len() as u64;
        }
        let file = open(&path(dir, run, current))?;
        Ok(Some(Self { files: LogFiles { dir: dir.to_owned(), run, current, size, lines }, file }))
    }

    /// Returns the number of the container run.
    pub(super) fn run(&self) -> u64 {
        self.files.run
    }

    fn push(&mut self, record: &LogRecord) -> io::Result<()> {
        let bytes = record.encode();
        if self.files.size + bytes.len() as u64 > MAX_FILE_BYTES {
            self.rotate()?;
        }
        self.file.write_all(&bytes)?;
        self.files.size += bytes.len() as u64;
        if let Some(last) = self.files.lines.back_mut().filter(|_| record.tag == LogTag::Full) {
            *last += 1;
        }
        Ok(())
    }

    /// Starts a new file and removes the oldest file if the maximum number of files is exceeded.
    fn rotate(&mut self) -> io::Result<()> {
        let files = &mut self.files;
        self.file = open(&files.path(files.current + 1))?;
        files.current += 1;
        files.size = 0;
        files.lines.push_back(0);
        while files.lines.len() > MAX_FILES {
            fs::remove_file(files.path(files.oldest_number()))?;
            files.lines.pop_front();
        }
        Ok(())
    }
}

// === impl LogFiles ===

impl LogFiles {
    /// Returns the position before the last `tail` lines, or before the first line.
    pub(super) fn start_position(&self, tail: Option<usize>) -> Position {
        let tail = line_count(tail);
        if tail == 0 {
            return Position { file: self.current, offset: self.size };
        }
        let mut skip = self.lines.iter().sum::<u64>().saturating_sub(tail);
        let mut file = self.oldest_number();
        for lines in &self.lines {
            // If all lines that end in this file are skipped, the next line may begin in it.
            if skip <= *lines {
                break;
            }
            skip -= lines;
            file += 1;
        }
        let mut position = Position { file, offset: 0 };
        while skip > 0 {
            let SkippedLines { end, skipped } = skip_lines(&self.read_chunk(position).unwrap_or_default(), skip);
            if end == 0 {
                break;
            }
            skip -= skipped;
            position.offset += end as u64;
        }
        position
    }

    /// Returns the number of the oldest file.
    fn oldest_number(&self) -> u64 {
        self.current + 1 - self.lines.len() as u64
    }

    fn path(&self, number: u64) -> PathBuf {
        path(&self.dir, self.run, number)
    }

    /// Returns the next records after `from` (none at the end of the log) and the position after them.
    pub(super) fn read(&self, from: Position) -> (Vec<LogRecord>, Position) {
        let mut position = from;
        if position.file < self.oldest_number() {
            position = Position { file: self.oldest_number(), offset: 0 };
        }
        loop {
            let chunk = self.read_chunk(position).unwrap_or_default();
            let complete_length = chunk.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<LogRecord> =
                chunk[..complete_length].split_inclusive(|byte| *byte == b'\n').filter_map(LogRecord::decode).collect();
            position.offset += complete_length as u64;
            if complete_length > 0 || position.file >= self.current {
                return (lines, position);
            }
            position = Position { file: position.file + 1, offset: 0 };
        }
    }

    fn read_chunk(&self, position: Position) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.path(position.file))?;
        file.seek(SeekFrom::Start(position.offset))?;
        let mut chunk = Vec::with_capacity(CHUNK_SIZE);
        file.take(CHUNK_SIZE as u64).read_to_end(&mut chunk)?;
        Ok(chunk)
    }
}

/// Returns the number of lines to return, for `None` more than any log has.
fn line_count(tail: Option<usize>) -> u64 {
    tail.and_then(|tail| u64::try_from(tail).ok()).unwrap_or(u64::MAX)
}

/// Skips the records of the first `number` lines, or all complete records if the chunk has fewer lines.
fn skip_lines(chunk: &[u8], number: u64) -> SkippedLines {
    let mut position = SkippedLines { end: 0, skipped: 0 };
    for record in chunk.split_inclusive(|byte| *byte == b'\n').filter(|record| record.ends_with(b"\n")) {
        if position.skipped == number {
            break;
        }
        position.end += record.len();
        // An invalid record is not returned to readers.
        let ends_line = LogRecord::decode(record).is_some_and(|record| record.tag == LogTag::Full);
        position.skipped += u64::from(ends_line);
    }
    position
}

fn path(dir: &Path, run: u64, number: u64) -> PathBuf {
    dir.join(format!("{run}.{number}.log"))
}

/// Parses the run number and the file number from the name of a log file.
fn parse_file_name(name: &str) -> Option<(u64, u64)> {
    let (run, number) = name.strip_suffix(".log")?.split_once('.')?;
    Some((run.parse().ok()?, number.parse().ok()?))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;

    fn line(text: &str) -> LogRecord {
        LogRecord::new(Timestamp::UNIX_EPOCH, LogTag::Full, text)
    }

    fn read_all(storage: &LogStorage, tail: Option<usize>) -> Vec<String> {
        let (mut position, mut text) = (storage.start_position(tail), Vec::new());
        loop {
            let (records, next) = storage.read(position);
            if records.is_empty() {
                return String::from_utf8(text).unwrap().lines().map(str::to_owned).collect();
            }
            position = next;
            records.iter().for_each(|record| text.extend_from_slice(&record.text));
        }
    }

    #[rstest]
    #[case::long_lines(10_000, 500)]
    #[case::empty_lines(0, 1_000_000)]
    fn limits_memory(#[case] length: usize, #[case] count: usize) {
        let mut ring = RingBuffer::default();
        (0..count).for_each(|_| ring.push(line(&"x".repeat(length))));
        let memory =
            ring.records.len() * size_of::<LogRecord>() + ring.records.iter().map(|r| r.text.len()).sum::<usize>();
        assert!(memory <= MAX_MEMORY_BYTES, "{memory}");
    }

    /// Lines of several records count as one line for `tail`, in memory and across files.
    #[test]
    fn tail_counts_lines_of_several_records_once() {
        let parent_dir = tempfile::tempdir().unwrap();
        let files = LogStorage::Files(RotatedFiles::create(&parent_dir.path().join("logs"), 0).unwrap());
        for mut storage in [LogStorage::Memory(RingBuffer::new(usize::MAX)), files] {
            // Four lines of 4.5 MiB each: the third one begins in the first file and ends in the second.
            let lines: Vec<String> = (0..4).map(|n| n.to_string().repeat((9 << 20) / 2)).collect();
            for line in &lines {
                LogRecord::split_line(Timestamp::UNIX_EPOCH, line).into_iter().for_each(|record| storage.push(record));
            }
            for tail in 0..=4 {
                let last = read_all(&storage, Some(tail));
                assert!(last == lines[4 - tail..], "{tail}: {:?}", last.iter().map(String::len).collect::<Vec<_>>());
            }
        }
        let reopened = RotatedFiles::open_last_run(&parent_dir.path().join("logs")).unwrap().unwrap();
        assert_eq!(reopened.files.lines.iter().sum::<u64>(), 4);
    }

    #[test]
    fn rotates_files_and_removes_oldest() {
        let parent_dir = tempfile::tempdir().unwrap();
        let dir = parent_dir.path().join("logs");
        let mut storage = LogStorage::Files(RotatedFiles::create(&dir, 0).unwrap());
        // Enough lines for six files of about a thousand lines each.
        let count = 6 * MAX_FILE_BYTES / 10_000;
        (0..count).for_each(|n| storage.push(line(&format!("{n} {}", "x".repeat(10_000)))));
        let file_count = fs::read_dir(&dir).unwrap().count();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let newest = dir.join(format!("0.{MAX_FILES}.log"));
        assert_eq!([mode(&dir), mode(&newest)], [0o700, 0o600], "readable by the owner only");
        assert_eq!(file_count, MAX_FILES);
        let texts = read_all(&storage, None);
        let first: u64 = texts[0].split(' ').next().unwrap().parse().unwrap();
        assert!(first > 0, "the oldest lines are removed");
        assert_eq!(texts.len() as u64, count - first, "and no others");
        for tail in [0, 1, 7, 1500] {
            let last = read_all(&storage, Some(tail));
            assert_eq!(last, texts[texts.len() - tail..], "{tail}");
        }
        storage.remove();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }
}
