//! Where the lines of one run of a container are kept: in memory, or in files that take turns.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::line::Line;

/// Lines in memory are dropped beyond this many bytes, oldest first.
const RING_BYTES: usize = 1 << 20;

/// A file ends at this many bytes; as kubelet's `containerLogMaxSize` and `containerLogMaxFiles`.
const FILE_BYTES: u64 = 10 << 20;
const FILES: usize = 5;

/// Read at once; more than the longest line.
const CHUNK: usize = 64 << 10;

/// The place before a line; grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of the file; 0 in memory.
    file: u64,
    /// Bytes into the file; count of lines in memory.
    at: u64,
}

#[derive(Debug)]
pub(super) enum Kept {
    Ring(Ring),
    Files(Files),
}

#[derive(Debug, Default)]
pub(super) struct Ring {
    lines: VecDeque<Line>,
    bytes: usize,
    /// How many lines were dropped from the front.
    dropped: u64,
}

#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// Which run of the container; part of the names.
    run: u64,
    /// The file that is written, its number and size.
    file: File,
    current: u64,
    size: u64,
    /// Lines in each file that is there, the oldest first.
    lines: VecDeque<u64>,
}

// === impl Kept ===

impl Kept {
    pub(super) fn push(&mut self, line: Line) {
        match self {
            Self::Ring(ring) => ring.push(line),
            Self::Files(files) => {
                if let Err(error) = files.push(&line) {
                    tracing::warn!(folder = %files.folder.display(), %error, "a line of a container's log was lost");
                }
            }
        }
    }

    /// Before the last `tail` lines, or before the first.
    pub(super) fn start(&self, tail: Option<usize>) -> Position {
        let tail = tail.and_then(|tail| u64::try_from(tail).ok()).unwrap_or(u64::MAX);
        match self {
            Self::Ring(ring) => Position { file: 0, at: ring.dropped + (ring.len()).saturating_sub(tail) },
            Self::Files(files) => files.start(tail),
        }
    }

    /// Some lines after `from`, none at the end, and the place after them.
    pub(super) fn read(&self, from: Position) -> (Vec<Line>, Position) {
        match self {
            Self::Ring(ring) => ring.read(from),
            Self::Files(files) => files.read(from),
        }
    }

    /// Leaves nothing on disk.
    pub(super) fn remove(&self) {
        if let Self::Files(files) = self {
            for number in files.oldest()..=files.current {
                // Files that somebody else removed are removed.
                let _ = fs::remove_file(files.path(number));
            }
        }
    }
}

// === impl Ring ===

impl Ring {
    fn push(&mut self, line: Line) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.bytes > RING_BYTES {
            let Some(first) = self.lines.pop_front() else { break };
            self.bytes -= first.text.len();
            self.dropped += 1;
        }
    }

    fn len(&self) -> u64 {
        self.lines.len() as u64
    }

    fn read(&self, from: Position) -> (Vec<Line>, Position) {
        let skip = usize::try_from(from.at.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let lines = self.lines.iter().skip(skip).cloned().collect();
        (lines, Position { file: 0, at: self.dropped + self.len() })
    }
}

// === impl Files ===

impl Files {
    /// # Errors
    /// When the folder cannot be made or written to.
    pub(super) fn create(folder: &Path, run: u64) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let file = open(&path(folder, run, 0))?;
        Ok(Self { folder: folder.to_owned(), run, file, current: 0, size: 0, lines: VecDeque::from([0]) })
    }

    /// The last run that is kept in the folder; what is there of earlier ones is removed. `None` when there is none.
    ///
    /// # Errors
    /// When the folder cannot be read or written to.
    pub(super) fn last(folder: &Path) -> io::Result<Option<Self>> {
        if !folder.is_dir() {
            return Ok(None);
        }
        let names = fs::read_dir(folder)?.flatten().filter_map(|entry| numbers(&entry.file_name().to_string_lossy()));
        let names: BTreeSet<(u64, u64)> = names.collect();
        let Some((run, current)) = names.last().copied() else { return Ok(None) };
        let (mut lines, mut size) = (VecDeque::new(), 0);
        for (of, number) in names {
            if of != run {
                fs::remove_file(path(folder, of, number))?;
                continue;
            }
            let bytes = fs::read(path(folder, of, number))?;
            lines.push_back(bytes.iter().filter(|byte| **byte == b'\n').count() as u64);
            size = bytes.len() as u64;
        }
        let file = open(&path(folder, run, current))?;
        Ok(Some(Self { folder: folder.to_owned(), run, file, current, size, lines }))
    }

    pub(super) fn run(&self) -> u64 {
        self.run
    }

    fn push(&mut self, line: &Line) -> io::Result<()> {
        let bytes = line.encode();
        if self.size + bytes.len() as u64 > FILE_BYTES {
            self.turn()?;
        }
        self.file.write_all(&bytes)?;
        self.size += bytes.len() as u64;
        if let Some(last) = self.lines.back_mut() {
            *last += 1;
        }
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        self.file = open(&self.path(self.current + 1))?;
        self.current += 1;
        self.size = 0;
        self.lines.push_back(0);
        while self.lines.len() > FILES {
            fs::remove_file(self.path(self.oldest()))?;
            self.lines.pop_front();
        }
        Ok(())
    }

    fn oldest(&self) -> u64 {
        self.current + 1 - self.lines.len() as u64
    }

    fn path(&self, number: u64) -> PathBuf {
        path(&self.folder, self.run, number)
    }

    fn start(&self, tail: u64) -> Position {
        let mut skip = self.lines.iter().sum::<u64>().saturating_sub(tail);
        let mut file = self.oldest();
        for lines in &self.lines {
            if skip < *lines {
                break;
            }
            skip -= lines;
            file += 1;
        }
        let mut position = Position { file: file.min(self.current), at: 0 };
        if file > self.current {
            return Position { file: self.current, at: self.size };
        }
        while skip > 0 {
            let Ok(chunk) = self.chunk(position) else { break };
            let Some(end) = nth_line(&chunk, skip) else { break };
            skip -= chunk[..end].iter().filter(|byte| **byte == b'\n').count() as u64;
            position.at += end as u64;
        }
        position
    }

    fn read(&self, from: Position) -> (Vec<Line>, Position) {
        let mut position = from;
        if position.file < self.oldest() {
            position = Position { file: self.oldest(), at: 0 };
        }
        loop {
            let chunk = self.chunk(position).unwrap_or_default();
            let whole = chunk.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<Line> =
                chunk[..whole].split_inclusive(|byte| *byte == b'\n').filter_map(Line::decode).collect();
            position.at += whole as u64;
            if whole > 0 || position.file >= self.current {
                return (lines, position);
            }
            position = Position { file: position.file + 1, at: 0 };
        }
    }

    fn chunk(&self, position: Position) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.path(position.file))?;
        file.seek(SeekFrom::Start(position.at))?;
        let mut chunk = Vec::with_capacity(CHUNK);
        file.take(CHUNK as u64).read_to_end(&mut chunk)?;
        Ok(chunk)
    }
}

/// The end of the line with this number, or of the last whole one before it.
fn nth_line(chunk: &[u8], number: u64) -> Option<usize> {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let ends = chunk.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    ends.take(number).last()
}

fn path(folder: &Path, run: u64, number: u64) -> PathBuf {
    folder.join(format!("{run}.{number}.log"))
}

/// Run and number of a file by its name.
fn numbers(name: &str) -> Option<(u64, u64)> {
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

    fn line(text: &str) -> Line {
        Line::new(Timestamp::UNIX_EPOCH, text)
    }

    fn all(kept: &Kept, tail: Option<usize>) -> Vec<String> {
        let (mut position, mut found) = (kept.start(tail), Vec::new());
        loop {
            let (lines, next) = kept.read(position);
            if lines.is_empty() {
                return found;
            }
            position = next;
            found.extend(lines.iter().map(|line| String::from_utf8_lossy(&line.text).trim_end().to_owned()));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut ring = Ring::default();
        (0..500).for_each(|_| ring.push(line(&"x".repeat(10_000))));
        assert!(ring.bytes <= RING_BYTES);
    }

    #[test]
    fn files_take_turns_and_the_oldest_goes() {
        let kept_in = tempfile::tempdir().unwrap();
        let folder = kept_in.path().join("logs");
        let mut kept = Kept::Files(Files::create(&folder, 0).unwrap());
        // Six files of some thousand lines.
        let count = 6 * FILE_BYTES / 10_000;
        (0..count).for_each(|n| kept.push(line(&format!("{n} {}", "x".repeat(10_000)))));
        let there = fs::read_dir(&folder).unwrap().count();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let newest = folder.join(format!("0.{FILES}.log"));
        assert_eq!([mode(&folder), mode(&newest)], [0o700, 0o600], "whose folder it is may read it");
        assert_eq!(there, FILES);
        let found = all(&kept, None);
        let first: u64 = found[0].split(' ').next().unwrap().parse().unwrap();
        assert!(first > 0, "the oldest are gone");
        assert_eq!(found.len() as u64, count - first, "and no other");
        for tail in [0, 1, 7, 1500] {
            let last = all(&kept, Some(tail));
            assert_eq!(last, found[found.len() - tail..], "{tail}");
        }
        kept.remove();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
