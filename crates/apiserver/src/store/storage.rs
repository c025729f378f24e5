//! The file operations of the journal, as a trait so that tests can simulate a failing disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A directory of files.
pub trait Storage: Send + Sync {
    /// Reads a file; `None` when it does not exist.
    ///
    /// # Errors
    /// When the file exists but cannot be read.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Creates an empty file, replacing an existing one.
    ///
    /// # Errors
    /// When the file cannot be created.
    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>>;

    /// Opens a file for appending, truncated to `length`.
    ///
    /// # Errors
    /// When the file cannot be opened or truncated.
    fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn AppendFile>>;

    /// Renames the synced file `replacement` to `name`, replacing the existing file. The rename is durable after
    /// [`Self::sync_directory`].
    ///
    /// # Errors
    /// When it is unknown whether the rename took effect.
    fn replace(&self, name: &str, replacement: &str) -> io::Result<()>;

    /// Returns when the names of all files and the directory itself are durable.
    ///
    /// # Errors
    /// When durability is not guaranteed.
    fn sync_directory(&self) -> io::Result<()>;

    /// Removes a file; errors are ignored.
    fn remove(&self, name: &str);

    /// Returns the path of a file for messages.
    fn display_path(&self, name: &str) -> String;
}

/// A file that is open for appending.
pub trait AppendFile: Send {
    /// Appends bytes; after an error, some of them may have been written.
    ///
    /// # Errors
    /// When the disk is full or broken.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all appended bytes are durable, so that they survive a power loss.
    ///
    /// # Errors
    /// When durability is not guaranteed. Calling this again does not help, because the operating system may have
    /// discarded the data.
    fn sync(&mut self) -> io::Result<()>;
}

/// A directory on the host. Files are readable by their owner only, because they contain Secrets.
#[derive(Debug, Clone)]
pub struct StorageDirectory(pub PathBuf);

// === impl StorageDirectory ===

impl StorageDirectory {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Storage for StorageDirectory {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut file = match File::open(self.path(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.path(name))?;
        Ok(Box::new(file))
    }

    fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn AppendFile>> {
        let file = OpenOptions::new().append(true).open(self.path(name))?;
        if file.metadata()?.len() > length {
            file.set_len(length)?;
        }
        Ok(Box::new(file))
    }

    fn replace(&self, name: &str, replacement: &str) -> io::Result<()> {
        fs::rename(self.path(replacement), self.path(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        sync_directory(&self.0)?;
        // The name of a directory is in its parent.
        let parent = self.0.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_directory(parent.unwrap_or(Path::new(".")))
    }

    fn remove(&self, name: &str) {
        // An error is ignored: the file may not exist, and a remaining file is overwritten later.
        let _ = fs::remove_file(self.path(name));
    }

    fn display_path(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// Syncs a directory, which makes the names in it durable.
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

impl AppendFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
