//! A disk in memory that fails where a test says, and shows afterwards what a real one might hold.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::storage::{Append, Storage};

/// What goes wrong, and when: counted in operations, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The machine is dead from this operation on; of what it writes, so many bytes arrive.
    Dies { bytes: usize },
    /// This one operation fails, a write after so many bytes.
    Fails { bytes: usize, kind: io::ErrorKind },
}

/// What happened to the data that was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The process was killed: the system has everything that was written.
    Kill,
    /// The power was lost: of what was not synced, this share in 256ths is there, and zeros up to its length if `holes`.
    PowerLoss { share: u8, holes: bool, names: bool },
}

/// Clones are the same disk.
#[derive(Clone, Default)]
pub(super) struct Disk(Arc<Mutex<Contents>>, Arc<Gate>);

/// Where syncs wait while the disk is slow.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
}

#[derive(Default)]
struct Contents {
    /// Files by their identity.
    files: BTreeMap<usize, File>,
    /// As a running program sees them.
    names: BTreeMap<String, usize>,
    /// As they are after a power loss.
    durable_names: BTreeMap<String, usize>,
    next: usize,
    operations: usize,
    syncs: usize,
    fault: Option<(usize, Fault)>,
    dead: bool,
    full: bool,
}

#[derive(Default, Clone)]
struct File {
    bytes: Vec<u8>,
    synced: usize,
}

struct Handle {
    disk: Disk,
    file: usize,
}

impl Disk {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }

    /// From now on, counted from the next operation.
    pub(super) fn inject(&self, after: usize, fault: Fault) {
        let mut contents = self.contents();
        contents.fault = Some((contents.operations + after, fault));
    }

    /// Every write fails for want of room, or no longer.
    pub(super) fn set_full(&self, full: bool) {
        self.contents().full = full;
    }

    /// No sync ends while the disk is slow.
    pub(super) fn set_slow(&self, slow: bool) {
        *self.1.closed.lock().unwrap() = slow;
        self.1.changed.notify_all();
    }

    /// How many there were.
    pub(super) fn syncs(&self) -> usize {
        self.contents().syncs
    }

    pub(super) fn die(&self) {
        self.contents().dead = true;
    }

    /// The disk as the next process finds it.
    pub(super) fn after(&self, ending: Ending) -> Self {
        let mut contents = self.contents();
        contents.dead = true;
        let mut left = Contents { next: contents.next, ..Contents::default() };
        left.names = match ending {
            Ending::PowerLoss { names: false, .. } => contents.durable_names.clone(),
            _ => contents.names.clone(),
        };
        left.durable_names = left.names.clone();
        for (id, file) in &contents.files {
            let bytes = match ending {
                Ending::Kill => file.bytes.clone(),
                Ending::PowerLoss { share, holes, .. } => {
                    let unsynced = file.bytes.len() - file.synced;
                    let mut bytes = file.bytes[..file.synced + unsynced * usize::from(share) / 256].to_vec();
                    if holes {
                        bytes.resize(file.bytes.len(), 0);
                    }
                    bytes
                }
            };
            left.files.insert(*id, File { synced: bytes.len(), bytes });
        }
        Self(Arc::new(Mutex::new(left)), Arc::default())
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let contents = self.contents();
        contents.names.get(name).map(|id| contents.files[id].bytes.clone()).unwrap_or_default()
    }

    pub(super) fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let mut contents = self.contents();
        let id = contents.names[name];
        contents.files.insert(id, File { synced: bytes.len(), bytes });
    }
}

impl Contents {
    /// Counts an operation; how many bytes of it happen, and its error.
    fn operate(&mut self, length: usize) -> (usize, io::Result<()>) {
        let number = self.operations;
        self.operations += 1;
        if self.dead {
            return (0, Err(io::Error::other("dead")));
        }
        match self.fault {
            Some((at, Fault::Dies { bytes })) if at == number => {
                self.dead = true;
                (bytes.min(length), Err(io::Error::other("died")))
            }
            Some((at, Fault::Fails { bytes, kind })) if at == number => (bytes.min(length), Err(kind.into())),
            _ if self.full && length > 0 => (length / 2, Err(io::ErrorKind::StorageFull.into())),
            _ => (length, Ok(())),
        }
    }

    fn make(&mut self) -> usize {
        self.next += 1;
        self.files.insert(self.next, File::default());
        self.next
    }
}

impl Storage for Disk {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut contents = self.contents();
        contents.operate(0).1?;
        Ok(contents.names.get(name).map(|id| contents.files[id].bytes.clone()))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Append>> {
        let mut contents = self.contents();
        contents.operate(0).1?;
        let file = contents.make();
        contents.names.insert(name.to_owned(), file);
        Ok(Box::new(Handle { disk: self.clone(), file }))
    }

    fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn Append>> {
        let mut contents = self.contents();
        contents.operate(0).1?;
        let file = *contents.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let length = usize::try_from(length).unwrap();
        contents.files.entry(file).and_modify(|file| {
            file.bytes.truncate(length);
            file.synced = file.synced.min(length);
        });
        Ok(Box::new(Handle { disk: self.clone(), file }))
    }

    fn replace(&self, name: &str, with: &str) -> io::Result<()> {
        let mut contents = self.contents();
        contents.operate(0).1?;
        let file = contents.names.remove(with).ok_or(io::ErrorKind::NotFound)?;
        contents.names.insert(name.to_owned(), file);
        // Between the two: renamed, and not yet durable.
        contents.operate(0).1?;
        contents.durable_names = contents.names.clone();
        Ok(())
    }

    fn remove(&self, name: &str) {
        let mut contents = self.contents();
        if contents.operate(0).1.is_ok() {
            contents.names.remove(name);
        }
    }

    fn shown(&self, name: &str) -> String {
        format!("disk/{name}")
    }
}

impl Append for Handle {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut contents = self.disk.contents();
        let (count, result) = contents.operate(bytes.len());
        let file = contents.files.entry(self.file).or_default();
        file.bytes.extend(&bytes[..count]);
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        let gate = &self.disk.1;
        drop(gate.changed.wait_while(gate.closed.lock().unwrap(), |closed| *closed).unwrap());
        let mut contents = self.disk.contents();
        contents.operate(0).1?;
        contents.syncs += 1;
        let file = contents.files.entry(self.file).or_default();
        file.synced = file.bytes.len();
        Ok(())
    }
}
