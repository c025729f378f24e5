//! Where the journal writes: the little it needs of a folder, so that a test can be a disk that fails.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A folder of files.
pub trait Storage: Send + Sync {
    /// The whole file; `None` when there is none.
    ///
    /// # Errors
    /// When it is there and cannot be read to its end.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// An empty file in place of what had the name.
    ///
    /// # Errors
    /// When it cannot be made.
    fn create(&self, name: &str) -> io::Result<Box<dyn Append>>;

    /// The file cut to `length`, to write behind it.
    ///
    /// # Errors
    /// When it cannot be opened or cut.
    fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn Append>>;

    /// Gives a synced file the name of another, which is gone; when this returns, also after a power loss.
    ///
    /// # Errors
    /// When it is not sure which of them has the name.
    fn replace(&self, name: &str, with: &str) -> io::Result<()>;

    /// Gives its room back, as far as that is possible.
    fn remove(&self, name: &str);

    /// How messages call the file.
    fn shown(&self, name: &str) -> String;
}

/// A file that grows.
pub trait Append: Send {
    /// Writes behind what is there; after an error some of it may be there.
    ///
    /// # Errors
    /// When the disk is full, or broken.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything appended would survive a power loss.
    ///
    /// # Errors
    /// When that is not sure; it will not be sure after another try either.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of this machine. Files are their owner's alone: Secrets are in them.
#[derive(Debug, Clone)]
pub struct Folder(pub PathBuf);

// === impl Folder ===

impl Folder {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Storage for Folder {
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

    fn create(&self, name: &str) -> io::Result<Box<dyn Append>> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.path(name))?;
        Ok(Box::new(file))
    }

    fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn Append>> {
        let file = OpenOptions::new().append(true).open(self.path(name))?;
        if file.metadata()?.len() > length {
            file.set_len(length)?;
        }
        Ok(Box::new(file))
    }

    fn replace(&self, name: &str, with: &str) -> io::Result<()> {
        fs::rename(self.path(with), self.path(name))?;
        sync_folder(&self.0)
    }

    fn remove(&self, name: &str) {
        // One that is not there is removed; one that stays is written over.
        let _ = fs::remove_file(self.path(name));
    }

    fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

impl Append for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
