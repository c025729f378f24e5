//! Exclusive lock on a directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The locked file, which contains the id of the process that holds or held the lock.
const LOCK_FILE: &str = "up.lock";

/// An exclusively locked directory. The operating system releases the lock when the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    dir: PathBuf,
    file: File,
}

/// An error that prevents locking a directory.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryLockError {
    /// Another process has locked the directory.
    #[error("{dir}: in use by {}", holder(*.process))]
    InUse {
        /// The directory.
        dir: String,
        /// Id of the other process, if known.
        process: Option<u32>,
    },
    /// The lock file cannot be opened or locked.
    #[error("{file}: {error}")]
    Io {
        /// The lock file.
        file: String,
        /// The cause.
        error: io::Error,
    },
}

/// Describes the process that holds the lock.
fn holder(process: Option<u32>) -> String {
    process.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"))
}

// === impl DirectoryLock ===

impl DirectoryLock {
    /// Locks an existing directory.
    ///
    /// # Errors
    /// When another process has locked it.
    pub fn acquire(dir: &Path) -> Result<Self, DirectoryLockError> {
        let path = dir.join(LOCK_FILE);
        let io_error = |error| DirectoryLockError::Io { file: path.display().to_string(), error };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(io_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The id is unknown while the other process is still writing it.
                let process = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(DirectoryLockError::InUse { dir: dir.display().to_string(), process });
            }
            Err(TryLockError::Error(error)) => return Err(io_error(error)),
        }
        // The lock is held even if the disk is full.
        if let Err(error) = write_process_id(&mut file) {
            tracing::warn!(file = %path.display(), %error, "failed to write the process id to the lock file");
        }
        Ok(Self { dir: dir.to_owned(), file })
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for DirectoryLock {
    /// Unlocks explicitly: a child process between `fork` and `exec` shares the open file and would keep it locked.
    fn drop(&mut self) {
        // The operating system releases the lock when the process ends.
        let _ = self.file.unlock();
    }
}

/// Writes the id of this process to the lock file.
fn write_process_id(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}
