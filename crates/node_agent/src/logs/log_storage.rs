//! Log storage of one container run: in memory, or in rotated files.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::line::LogLine;
use crate::private_directory::create_private_dir;

/// Maximum total size in bytes of the lines in memory; the oldest lines are dropped first.
const MAX_MEMORY_BYTES: usize = 1 << 20;

/// Maximum size of a file and maximum number of files: the kubelet's defaults for `containerLogMaxSize` and
/// `containerLogMaxFiles`.
const MAX_FILE_BYTES: u64 = 10 << 20;
const MAX_FILES: usize = 5;

/// Number of bytes per read; must exceed the maximum length of a line.
const CHUNK_SIZE: usize = 64 << 10;

/// Position of a reader, always at the start of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of the log file; 0 for lines in memory.
    file: u64,
    /// Byte offset in the file; for lines in memory, the line number.
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

/// Lines in memory.
#[derive(Debug, Default)]
pub(super) struct RingBuffer {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// Number of lines that were dropped.
    dropped: u64,
}

/// Lines in rotated files.
#[derive(Debug)]
pub(super) struct RotatedFiles {
    dir: PathBuf,
    /// Number of the container run, which is part of the file names.
    run: u64,
    /// The file that lines are written to; `current` is its number, and `size` its size in bytes.
    file: File,
    current: u64,
    size: u64,
    /// Number of lines of each existing file, oldest first.
    lines: VecDeque<u64>,
}

// === impl LogStorage ===

impl LogStorage {
    /// Appends a line.
    pub(super) fn push(&mut self, line: LogLine) {
        match self {
            Self::Memory(ring) => ring.push(line),
            Self::Files(files) => {
                if let Err(error) = files.push(&line) {
                    tracing::warn!(dir = %files.dir.display(), %error, "failed to write a log line of a container");
                }
            }
        }
    }

    /// Returns the position before the last `tail` lines, or before the first line.
    pub(super) fn start_position(&self, tail: Option<usize>) -> Position {
        let tail = tail.and_then(|tail| u64::try_from(tail).ok()).unwrap_or(u64::MAX);
        match self {
            Self::Memory(ring) => Position { file: 0, offset: ring.dropped + (ring.len()).saturating_sub(tail) },
            Self::Files(files) => files.start_position(tail),
        }
    }

    /// Returns the next lines after `from` (none at the end of the log) and the position after them.
    pub(super) fn read(&self, from: Position) -> (Vec<LogLine>, Position) {
        match self {
            Self::Memory(ring) => ring.read(from),
            Self::Files(files) => files.read(from),
        }
    }

    /// Removes the files.
    pub(super) fn remove(&self) {
        if let Self::Files(files) = self {
            for number in files.oldest_number()..=files.current {
                // The file may already have been removed.
                let _ = fs::remove_file(files.path(number));
            }
        }
    }
}

// === impl RingBuffer ===

impl RingBuffer {
    fn push(&mut self, line: LogLine) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.bytes > MAX_MEMORY_BYTES {
            let Some(first) = self.lines.pop_front() else { break };
            self.bytes -= first.text.len();
            self.dropped += 1;
        }
    }

    fn len(&self) -> u64 {
        self.lines.len() as u64
    }

    fn read(&self, from: Position) -> (Vec<LogLine>, Position) {
        let skip = usize::try_from(from.offset.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let lines = self.lines.iter().skip(skip).cloned().collect();
        (lines, Position { file: 0, offset: self.dropped + self.len() })
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
        Ok(Self { dir: dir.to_owned(), run, file, current: 0, size: 0, lines: VecDeque::from([0]) })
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
            lines.push_back(bytes.iter().filter(|byte| **byte == b'\n').count() as u64);
            size = bytes.len() as u64;
        }
        let file = open(&path(dir, run, current))?;
        Ok(Some(Self { dir: dir.to_owned(), run, file, current, size, lines }))
    }

    /// Returns the number of the container run.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    fn push(&mut self, line: &LogLine) -> io::Result<()> {
        let bytes = line.encode();
        if self.size + bytes.len() as u64 > MAX_FILE_BYTES {
            self.rotate()?;
        }
        self.file.write_all(&bytes)?;
        self.size += bytes.len() as u64;
        if let Some(last) = self.lines.back_mut() {
            *last += 1;
        }
        Ok(())
    }

    /// Starts a new file and removes the oldest file if the maximum number of files is exceeded.
    fn rotate(&mut self) -> io::Result<()> {
        self.file = open(&self.path(self.current + 1))?;
        self.current += 1;
        self.size = 0;
        self.lines.push_back(0);
        while self.lines.len() > MAX_FILES {
            fs::remove_file(self.path(self.oldest_number()))?;
            self.lines.pop_front();
        }
        Ok(())
    }

    /// Returns the number of the oldest file.
    fn oldest_number(&self) -> u64 {
        self.current + 1 - self.lines.len() as u64
    }

    fn path(&self, number: u64) -> PathBuf {
        path(&self.dir, self.run, number)
    }

    fn start_position(&self, tail: u64) -> Position {
        let mut skip = self.lines.iter().sum::<u64>().saturating_sub(tail);
        let mut file = self.oldest_number();
        for lines in &self.lines {
            if skip < *lines {
                break;
            }
            skip -= lines;
            file += 1;
        }
        let mut position = Position { file: file.min(self.current), offset: 0 };
        if file > self.current {
            return Position { file: self.current, offset: self.size };
        }
        while skip > 0 {
            let Ok(chunk) = self.read_chunk(position) else { break };
            let Some(end) = end_of_line(&chunk, skip) else { break };
            skip -= chunk[..end].iter().filter(|byte| **byte == b'\n').count() as u64;
            position.offset += end as u64;
        }
        position
    }

    fn read(&self, from: Position) -> (Vec<LogLine>, Position) {
        let mut position = from;
        if position.file < self.oldest_number() {
            position = Position { file: self.oldest_number(), offset: 0 };
        }
        loop {
            let chunk = self.read_chunk(position).unwrap_or_default();
            let complete_length = chunk.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<LogLine> =
                chunk[..complete_length].split_inclusive(|byte| *byte == b'\n').filter_map(LogLine::decode).collect();
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

/// Returns the offset after the first `number` lines, or after the last complete line if the chunk has fewer.
fn end_of_line(chunk: &[u8], number: u64) -> Option<usize> {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let line_ends = chunk.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index + 1);
    line_ends.take(number).last()
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

    use super::*;

    fn line(text: &str) -> LogLine {
        LogLine::new(Timestamp::UNIX_EPOCH, text)
    }

    fn read_all(storage: &LogStorage, tail: Option<usize>) -> Vec<String> {
        let (mut position, mut texts) = (storage.start_position(tail), Vec::new());
        loop {
            let (lines, next) = storage.read(position);
            if lines.is_empty() {
                return texts;
            }
            position = next;
            texts.extend(lines.iter().map(|line| String::from_utf8_lossy(&line.text).trim_end().to_owned()));
        }
    }

    #[test]
    fn limits_memory() {
        let mut ring = RingBuffer::default();
        (0..500).for_each(|_| ring.push(line(&"x".repeat(10_000))));
        assert!(ring.bytes <= MAX_MEMORY_BYTES);
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
