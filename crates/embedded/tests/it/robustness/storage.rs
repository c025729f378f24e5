//! A storage in memory, from which a server can be restarted.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use apiserver::{AppendFile, Storage};

/// Files in memory; clones share them.
#[derive(Clone, Default)]
pub(super) struct MemoryStorage(Arc<Mutex<BTreeMap<String, MemoryFile>>>);

#[derive(Clone, Default)]
struct MemoryFile(Arc<Mutex<Vec<u8>>>);

// === impl MemoryStorage ===

impl Storage for MemoryStorage {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().get(name).map(|file| file.0.lock().unwrap().clone()))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        let file = MemoryFile::default();
        self.0.lock().unwrap().insert(name.to_owned(), file.clone());
        Ok(Box::new(file))
    }

    fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn AppendFile>> {
        let file = self.0.lock().unwrap().get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        file.0.lock().unwrap().truncate(usize::try_from(length).unwrap());
        Ok(Box::new(file))
    }

    fn replace(&self, name: &str, replacement: &str) -> io::Result<()> {
        let mut files = self.0.lock().unwrap();
        let file = files.remove(replacement).ok_or(io::ErrorKind::NotFound)?;
        files.insert(name.to_owned(), file);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, name: &str) {
        self.0.lock().unwrap().remove(name);
    }

    fn display_path(&self, name: &str) -> String {
        name.to_owned()
    }
}

// === impl MemoryFile ===

impl AppendFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().extend(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
