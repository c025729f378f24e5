//! A data directory whose operations can fail.

use std::io;
use std::path::Path;
use std::sync::Arc;

use apiserver::{AppendFile, Storage, StorageDirectory};

/// Appends bytes to a file, or fails.
type Append = dyn Fn(&mut dyn AppendFile, &[u8]) -> io::Result<()> + Send + Sync;

/// A directory whose appends, and the formatting of paths, are replaced.
pub(crate) struct FaultyStorage {
    directory: StorageDirectory,
    append: Arc<Append>,
    display_path: Box<dyn Fn(&str) -> String + Send + Sync>,
}

/// A file of a [`FaultyStorage`].
struct FaultyFile {
    file: Box<dyn AppendFile>,
    append: Arc<Append>,
}

// === impl FaultyStorage ===

impl FaultyStorage {
    /// Returns a storage whose appends are done by `append`.
    pub(crate) fn new(
        directory: &Path,
        append: impl Fn(&mut dyn AppendFile, &[u8]) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let display_path = Box::new(str::to_owned);
        Self { directory: StorageDirectory(directory.to_owned()), append: Arc::new(append), display_path }
    }

    /// Replaces the function that formats paths.
    pub(crate) fn with_display_path(self, display_path: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self { display_path: Box::new(display_path), ..self }
    }

    fn wrap(&self, file: Box<dyn AppendFile>) -> Box<dyn AppendFile> {
        Box::new(FaultyFile { file, append: Arc::clone(&self.append) })
    }
}

impl Storage for FaultyStorage {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.directory.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        Ok(self.wrap(self.directory.create(name)?))
    }

    fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn AppendFile>> {
        Ok(self.wrap(self.directory.open(name, length)?))
    }

    fn replace(&self, name: &str, replacement: &str) -> io::Result<()> {
        self.directory.replace(name, replacement)
    }

    fn remove(&self, name: &str) {
        self.directory.remove(name);
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_directory()
    }

    fn display_path(&self, name: &str) -> String {
        (self.display_path)(name)
    }
}

// === impl FaultyFile ===

impl AppendFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        (self.append)(&mut *self.file, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}
