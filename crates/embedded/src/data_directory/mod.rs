//! The data directory of a cluster: objects, credentials, container logs and the list of started processes. One process
//! uses it at a time.

mod lock;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apiserver::{
    Credentials, CredentialsError, StorageDirectory, Store, StoreOpenError, StoreSettings,
    load_or_generate_credentials, parent_directory,
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
    let directories = directories_to_sync(dir, |dir| !dir.exists());
    create_private_dir(dir)?;
    directories.iter().try_for_each(|directory| File::open(directory)?.sync_all())
}

/// Returns the directories that will contain the names of `dir` and its missing parents, the innermost first.
fn directories_to_sync(dir: &Path, is_missing: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let missing = dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && is_missing(dir));
    missing.map(parent_directory).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::existing("/a/b", &["/a/b", "/a", "/"], &[])]
    #[case::absolute("/a/b", &["/a", "/"], &["/a"])]
    #[case::missing_parents("/a/b/c", &["/"], &["/a/b", "/a", "/"])]
    #[case::name("b", &[], &["."])]
    #[case::relative_with_missing_parent("a/b", &[], &["a", "."])]
    #[case::below_the_working_directory("./b", &["."], &["."])]
    #[case::working_directory(".", &["."], &[])]
    fn syncs_the_parents_of_created_directories(#[case] dir: &str, #[case] existing: &[&str], #[case] expect: &[&str]) {
        let is_missing = |dir: &Path| !existing.iter().any(|existing| dir == Path::new(existing));
        assert_eq!(
            directories_to_sync(Path::new(dir), is_missing),
            expect.iter().map(PathBuf::from).collect::<Vec<_>>()
        );
    }

    #[test]
    fn creates_private_directories() {
        let temporary_directory = tempfile::tempdir().unwrap();
        let dir = temporary_directory.path().join("a/b");
        for _ in 0..2 {
            create_durable_dir(&dir).unwrap();
            assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
    }
}
