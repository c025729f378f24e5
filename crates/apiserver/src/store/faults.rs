//! A simulated disk with fault injection. After a crash, its contents are a state that a real disk could be in.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::storage::{AppendFile, Storage};

/// A fault of one disk operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The host crashes during the operation, after this many bytes have been written.
    Crash { bytes: usize },
    /// The operation fails. A write fails after this many bytes have been written.
    Error { bytes: usize, kind: io::ErrorKind },
}

/// The effect of a crash on unsynced data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CrashKind {
    /// The process was killed: all written data is retained.
    Kill,
    /// Power loss: the first `share`/256 of the unsynced data of each file is retained. If `holes` is set, the rest
    /// reads as zeros. Of the creations, renames and removals since the last sync of the directory, the first
    /// `names`/256 are retained.
    PowerLoss { share: u8, holes: bool, names: u8 },
}

/// A disk with faults; clones share the disk.
#[derive(Clone, Default)]
pub(super) struct FaultyDisk(Arc<Mutex<DiskContents>>, Arc<SyncGate>);

/// Blocks syncs while the disk is slow.
#[derive(Default)]
struct SyncGate {
    closed: Mutex<bool>,
    changed: Condvar,
}

#[derive(Default)]
struct DiskContents {
    /// Files by id.
    files: BTreeMap<usize, SimulatedFile>,
    /// File names that a running process sees, with the file ids.
    names: BTreeMap<String, usize>,
    /// File names that are durable, with the file ids.
    durable_names: BTreeMap<String, usize>,
    /// File names after each change of the directory since it was last synced.
    unsynced_names: Vec<BTreeMap<String, usize>>,
    next_id: usize,
    operations: usize,
    syncs: usize,
    fault: Option<(usize, Fault)>,
    has_crashed: bool,
    is_full: bool,
}

#[derive(Default, Clone)]
struct SimulatedFile {
    bytes: Vec<u8>,
    synced_length: usize,
}

struct FileHandle {
    disk: FaultyDisk,
    file: usize,
}

// === impl FaultyDisk ===

impl FaultyDisk {
    fn contents(&self) -> MutexGuard<'_, DiskContents> {
        self.0.lock().unwrap()
    }

    /// Injects a fault into the operation that follows `after` other operations.
    pub(super) fn inject(&self, after: usize, fault: Fault) {
        let mut contents = self.contents();
        contents.fault = Some((contents.operations + after, fault));
    }

    /// Sets whether the disk is full, so that every write fails.
    pub(super) fn set_full(&self, is_full: bool) {
        self.contents().is_full = is_full;
    }

    /// Sets whether the disk is slow, which blocks all syncs.
    pub(super) fn set_slow(&self, slow: bool) {
        *self.1.closed.lock().unwrap() = slow;
        self.1.changed.notify_all();
    }

    /// Returns the number of syncs.
    pub(super) fn syncs(&self) -> usize {
        self.contents().syncs
    }

    pub(super) fn crash(&self) {
        self.contents().has_crashed = true;
    }

    /// Returns the disk with the contents that the next process finds after a crash.
    pub(super) fn after_crash(&self, crash_kind: CrashKind) -> Self {
        let mut contents = self.contents();
        contents.has_crashed = true;
        let mut remaining = DiskContents { next_id: contents.next_id, ..DiskContents::default() };
        match crash_kind {
            CrashKind::Kill => {
                remaining.names = contents.names.clone();
                remaining.durable_names = contents.durable_names.clone();
                remaining.unsynced_names = contents.unsynced_names.clone();
            }
            CrashKind::PowerLoss { names, .. } => {
                let retained = (contents.unsynced_names.len() + 1) * usize::from(names) / 256;
                let last_retained = retained.checked_sub(1).map(|index| &contents.unsynced_names[index]);
                remaining.names = last_retained.unwrap_or(&contents.durable_names).clone();
                remaining.durable_names = remaining.names.clone();
            }
        }
        for (id, file) in &contents.files {
            let remaining_file = match crash_kind {
                CrashKind::Kill => file.clone(),
                CrashKind::PowerLoss { share, holes, .. } => file.after_power_loss(share, holes),
            };
            remaining.files.insert(*id, remaining_file);
        }
        Self(Arc::new(Mutex::new(remaining)), Arc::default())
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let contents = self.contents();
        contents.names.get(name).map(|id| contents.files[id].bytes.clone()).unwrap_or_default()
    }

    pub(super) fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let mut contents = self.contents();
        let id = contents.names[name];
        contents.files.insert(id, SimulatedFile { synced_length: bytes.len(), bytes });
    }
}

// === impl DiskContents ===

impl DiskContents {
    /// Counts an operation and applies the injected fault. Returns how many bytes to write, and the result of the
    /// operation.
    fn run_operation(&mut self, length: usize) -> (usize, io::Result<()>) {
        let index = self.operations;
        self.operations += 1;
        if self.has_crashed {
            return (0, Err(io::Error::other("crashed")));
        }
        match self.fault {
            Some((fault_index, Fault::Crash { bytes })) if fault_index == index => {
                self.has_crashed = true;
                (bytes.min(length), Err(io::Error::other("crashing")))
            }
            Some((fault_index, Fault::Error { bytes, kind })) if fault_index == index => {
                (bytes.min(length), Err(kind.into()))
            }
            _ if self.is_full && length > 0 => (length / 2, Err(io::ErrorKind::StorageFull.into())),
            _ => (length, Ok(())),
        }
    }

    /// Changes the file names. The change is not durable yet.
    fn change_names(&mut self, change: impl FnOnce(&mut BTreeMap<String, usize>)) {
        change(&mut self.names);
        self.unsynced_names.push(self.names.clone());
    }

    fn create_file(&mut self) -> usize {
        self.next_id += 1;
        self.files.insert(self.next_id, SimulatedFile::default());
        self.next_id
    }
}

impl Storage for FaultyDisk {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut contents = self.contents();
        contents.run_operation(0).1?;
        Ok(contents.names.get(name).map(|id| contents.files[id].bytes.clone()))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        let mut contents = self.contents();
        contents.run_operation(0).1?;
        let file = contents.create_file();
        contents.change_names(|names| {
            names.insert(name.to_owned(), file);
        });
        Ok(Box::new(FileHandle { disk: self.clone(), file }))
    }

    fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn AppendFile>> {
        let mut contents = self.contents();
        contents.run_operation(0).1?;
        let file = *contents.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let length = usize::try_from(length).unwrap();
        contents.files.entry(file).and_modify(|file| {
            file.bytes.truncate(length);
            file.synced_length = file.synced_length.min(length);
        });
        Ok(Box::new(FileHandle { disk: self.clone(), file }))
    }

    fn replace(&self, name: &str, replacement: &str) -> io::Result<()> {
        let mut contents = self.contents();
        contents.run_operation(0).1?;
        let file = *contents.names.get(replacement).ok_or(io::ErrorKind::NotFound)?;
        contents.change_names(|names| {
            names.remove(replacement);
            names.insert(name.to_owned(), file);
        });
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut contents = self.contents();
        contents.run_operation(0).1?;
        contents.durable_names = contents.names.clone();
        contents.unsynced_names.clear();
        Ok(())
    }

    fn remove(&self, name: &str) {
        let mut contents = self.contents();
        if contents.run_operation(0).1.is_ok() {
            contents.change_names(|names| {
                names.remove(name);
            });
        }
    }

    fn display_path(&self, name: &str) -> String {
        format!("disk/{name}")
    }
}

// === impl SimulatedFile ===

impl SimulatedFile {
    /// Returns the file after a power loss that retains the first `share`/256 of the unsynced data.
    fn after_power_loss(&self, share: u8, holes: bool) -> Self {
        let unsynced = self.bytes.len() - self.synced_length;
        let mut bytes = self.bytes[..self.synced_length + unsynced * usize::from(share) / 256].to_vec();
        if holes {
            bytes.resize(self.bytes.len(), 0);
        }
        Self { synced_length: bytes.len(), bytes }
    }
}

// === impl FileHandle ===

impl AppendFile for FileHandle {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut contents = self.disk.contents();
        let (count, result) = contents.run_operation(bytes.len());
        let file = contents.files.entry(self.file).or_default();
        file.bytes.extend(&bytes[..count]);
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        let gate = &self.disk.1;
        drop(gate.changed.wait_while(gate.closed.lock().unwrap(), |closed| *closed).unwrap());
        let mut contents = self.disk.contents();
        contents.run_operation(0).1?;
        contents.syncs += 1;
        let file = contents.files.entry(self.file).or_default();
        file.synced_length = file.bytes.len();
        Ok(())
    }
}
