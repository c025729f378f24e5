//! The data directory of a cluster: objects, credentials, container logs and the list of started processes. One process
//! uses it at a time.

mod lock;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apiserver::{
    Credentials, CredentialsError, StorageDirectory, Store, StoreOpenError, StoreSettings, load_or_generate_credentials,
};
use node_agent::create_private_dir;

pub use lock::{DirectoryLock, DirectoryLockError};

/// A locked data directory.
#[derive(Debug)]
pub struct DataDirectory {
    dir: PathBuf,
    _lock: DirectoryLock,
}

// === impl DataDirectory ===

impl DataDirectory {
    /// Returns the data directory at the path of this lock.
    #[must_use]
    pub fn new(lock: DirectoryLock) -> Self {
        Self { dir: lock.path().to_owned(), _lock: lock }
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Opens the store in `store/`.
    ///
    /// # Errors
    /// When its files cannot be read or written, are corrupt or have a newer format.
    pub fn open_store(&self, settings: StoreSettings) -> Result<Store, StoreOpenError> {
        let dir = self.dir.join("store");
        let io_error = |error: io::Error| StoreOpenError::Io { file: dir.display().to_string(), error };
        create_durable_dir(&dir).map_err(io_error)?;
        Store::open(Arc::new(StorageDirectory(dir.clone())), settings)
    }

    /// Loads the certificate authority, certificates and token, so that saved kubeconfigs stay valid. Generates them at
    /// the first start.
    ///
    /// # Errors
    /// When the file is invalid or readable by other users.
    pub fn credentials(&self) -> Result<Credentials, CredentialsError> {
        load_or_generate_credentials(&self.dir.join("credentials.json"))
    }

    /// Returns the directory of container logs.
    #[must_use]
    pub fn log_directory(&self) -> PathBuf {
        self.dir.join("pod-logs")
    }
}

/// Creates a directory and its parents, accessible only by the owner. What it creates survives a power loss. An existing
/// directory is not changed.
///
/// # Errors
/// When the directory does not exist and cannot be created.
pub fn create_durable_dir(dir: &Path) -> io::Result<()> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let created: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    create_private_dir(dir)?;
    for dir in created {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}
