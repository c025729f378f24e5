//! A folder in which a cluster outlives its process: the objects, the credentials of its API, containers' logs, and which
//! processes were started. One process at a time has it.

mod lock;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use lock::{Lock, LockError};

use crate::serve::Credentials;
use crate::serve::kept::{self, KeptError};
use crate::store::storage::Folder;
use crate::store::{OpenError, Settings, Store};

/// The folder, ours as long as this lives.
#[derive(Debug)]
pub struct DataDirectory {
    folder: PathBuf,
    _lock: Lock,
}

// === impl DataDirectory ===

impl DataDirectory {
    /// A folder that was locked.
    #[must_use]
    pub fn of(lock: Lock) -> Self {
        Self { folder: lock.folder().to_owned(), _lock: lock }
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The objects, from `store/` below.
    ///
    /// # Errors
    /// When they cannot be read or written, are damaged or of a newer version.
    pub fn store(&self, settings: Settings) -> Result<Store, OpenError> {
        let folder = self.folder.join("store");
        let failed = |error: io::Error| OpenError::Io { file: folder.display().to_string(), error };
        make_private(&folder).map_err(failed)?;
        Store::open(Arc::new(Folder(folder.clone())), settings)
    }

    /// The same authority, certificates and token at every start, so that a kubeconfig that was saved stays valid.
    ///
    /// # Errors
    /// When they are damaged, or others can read them.
    pub fn credentials(&self) -> Result<Credentials, KeptError> {
        kept::load_or_make(&self.folder.join("credentials.json"))
    }

    /// Containers' logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.folder.join("pod-logs")
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
