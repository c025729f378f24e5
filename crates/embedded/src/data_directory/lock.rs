//! One process at a time, and which one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file that is locked. It holds the number of the process that has, or had, the lock.
const FILE: &str = "up.lock";

/// A folder that no other process has. The system lets go of it however the process ends.
#[derive(Debug)]
pub struct Lock {
    folder: PathBuf,
    file: File,
}

/// The folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{folder}: in use by {}", holder(*.process))]
    Held { folder: String, process: Option<u32> },
    #[error("{file}: {error}")]
    Io { file: String, error: io::Error },
}

fn holder(process: Option<u32>) -> String {
    process.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"))
}

// === impl Lock ===

impl Lock {
    /// Takes a folder that exists.
    ///
    /// # Errors
    /// When another process has it.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(FILE);
        let failed = |error| LockError::Io { file: path.display().to_string(), error };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // It may be just being written.
                let process = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(LockError::Held { folder: folder.display().to_string(), process });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // On a full disk the folder is ours all the same.
        if let Err(error) = write_number(&mut file) {
            tracing::warn!(file = %path.display(), %error, "the number of this process is not kept");
        }
        Ok(Self { folder: folder.to_owned(), file })
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a container that is just being started shares it until its program runs.
    fn drop(&mut self) {
        // The system lets go of it at the latest when the process ends.
        let _ = self.file.unlock();
    }
}

fn write_number(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}
