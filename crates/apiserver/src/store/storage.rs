//! The file operations of the journal, as a trait so that tests can simulate a failing disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::parent_directory::parent_directory;

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
        directories_to_sync(&self.0).iter().try_for_each(|directory| File::open(directory)?.sync_all())
    }

    fn remove(&self, name: &str) {
        // An error is ignored: the file may not exist, and a remaining file is overwritten later.
        let _ = fs::remove_file(self.path(name));
    }

    fn display_path(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// Returns the directories whose names make `directory` and its files durable: the directory and its parent.
fn directories_to_sync(directory: &Path) -> [PathBuf; 2] {
    [directory.to_owned(), parent_directory(directory)]
}

impl AppendFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::absolute("/a/b", ["/a/b", "/a"])]
    #[case::name("b", ["b", "."])]
    #[case::working_directory(".", [".", "./.."])]
    fn syncs_the_directory_and_its_parent(#[case] directory: &str, #[case] expect: [&str; 2]) {
        assert_eq!(directories_to_sync(Path::new(directory)), expect.map(PathBuf::from));
    }

    #[test]
    fn fails_if_the_directory_cannot_be_synced() {
        let temporary_directory = tempfile::tempdir().unwrap();
        let storage = StorageDirectory(temporary_directory.path().join("store"));
        assert_eq!(storage.sync_directory().unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(&storage.0).unwrap();
        storage.sync_directory().unwrap();
    }
}
