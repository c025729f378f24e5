//! The state directory of `ostler up`: the kubeconfig, which only the user can read, and with `--data-dir` the persistent
//! cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use embedded::ports::{Random, SystemRandom};
use embedded::{
    Credentials, CredentialsError, DEFAULT_HISTORY_SIZE, DataDirectory, DirectoryLock, DirectoryLockError,
    NodeDirectories, OrphanedProcesses, ProcessTracker, Store, StoreOpenError, StoreSettings,
};

use crate::connect;
use crate::report::errors::error_with_hint;

/// A directory that stays locked while this value exists, since two processes would overwrite and remove each other's
/// kubeconfig.
#[derive(Debug)]
pub(crate) enum StateDirectory {
    /// The runtime directory of the user; the cluster is in memory.
    Runtime(DirectoryLock),
    /// The directory of `--data-dir`, which contains the cluster.
    Data(DataDirectory),
}

/// Opens the directory of `--data-dir`, or the runtime directory of the user. Its path is absolute: containers that run as
/// processes have another working directory.
pub(crate) fn open(data_dir: Option<PathBuf>) -> Result<StateDirectory> {
    Ok(match data_dir {
        Some(path) => StateDirectory::Data(DataDirectory::new(lock_directory(std::path::absolute(path)?)?)),
        None => StateDirectory::Runtime(lock_directory(connect::runtime_directory())?),
    })
}

/// Creates the directory, private to the user, if it does not exist, and locks it.
///
/// # Errors
/// Fails if the directory cannot be created, other users can write to it, or another process has locked it.
fn lock_directory(path: PathBuf) -> Result<DirectoryLock> {
    let display_path = path.display().to_string();
    embedded::create_durable_dir(&path).map_err(|error| {
        error_with_hint(
            format!("{display_path}: failed to create directory: {error}"),
            "choose another directory with --data-dir",
        )
    })?;
    let metadata = fs::symlink_metadata(&path).with_context(|| display_path.clone())?;
    if !metadata.is_dir() || metadata.permissions().mode() & 0o022 != 0 {
        return Err(error_with_hint(
            format!("{display_path}: not a directory, or writable by other users"),
            format!("choose another directory with --data-dir, or run `chmod go-w {display_path}`"),
        ));
    }
    DirectoryLock::acquire(&path).map_err(|error| match &error {
        DirectoryLockError::InUse { .. } => {
            error_with_hint(error.to_string(), "choose another directory with --data-dir, or stop the other process")
        }
        DirectoryLockError::Io { .. } => error_with_hint(
            error.to_string(),
            "free disk space or correct the permissions, or choose another directory with --data-dir",
        ),
    })
}

// === impl StateDirectory ===

impl StateDirectory {
    fn path(&self) -> &Path {
        match self {
            Self::Runtime(lock) => lock.path(),
            Self::Data(directory) => directory.path(),
        }
    }

    /// Returns the path of the kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path().join("kubeconfig")
    }

    /// Opens the object store of the cluster.
    pub(crate) fn open_store(&self) -> Result<Store> {
        match self {
            Self::Runtime(_) => Ok(Store::new(DEFAULT_HISTORY_SIZE)),
            Self::Data(directory) => {
                directory.open_store(StoreSettings::default()).map_err(|error| store_error(&error))
            }
        }
    }

    /// Reads the credentials of the API server, or generates them.
    pub(crate) fn credentials(&self) -> Result<Credentials> {
        let Self::Data(directory) = self else { return Ok(Credentials::generate()?) };
        directory.credentials().map_err(|error| match &error {
            CredentialsError::InsecurePermissions { file, .. } => error_with_hint(
                error.to_string(),
                format!("run `chmod 600 {file}`; if another user may have read it, delete it: the next start generates new credentials"),
            ),
            CredentialsError::Corrupt { file, .. } => error_with_hint(
                error.to_string(),
                format!("delete {file}: the next start generates new credentials, which invalidates copied kubeconfigs"),
            ),
            _ => error.into(),
        })
    }

    /// Opens the process tracker, which kills the processes of an earlier start that are still running.
    pub(crate) fn process_tracker(&self) -> Result<(ProcessTracker, OrphanedProcesses)> {
        let file = self.path().join("processes.json");
        ProcessTracker::open(file.clone(), SystemRandom.uuid()).with_context(|| file.display().to_string())
    }

    /// Returns the directories of the node agent.
    pub(crate) fn node_directories(&self) -> NodeDirectories {
        let logs = match self {
            Self::Runtime(_) => None,
            Self::Data(directory) => Some(directory.log_directory()),
        };
        NodeDirectories { logs, pods: Some(self.path().join("pods")), volumes: Some(self.path().join("volumes")) }
    }

    /// Describes where the cluster is stored.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Runtime(_) => "in memory".to_owned(),
            Self::Data(_) => format!("in {}", self.path().display()),
        }
    }
}

/// Adds a hint to an error of the store.
fn store_error(error: &StoreOpenError) -> anyhow::Error {
    let hint = match error {
        StoreOpenError::Corrupt { file, .. } => format!(
            "restore {file} from a backup, or move it away and apply your manifests again: the next start creates an empty cluster"
        ),
        StoreOpenError::NewerFormat { .. } => {
            "use the version of ostler that wrote it, or choose another directory with --data-dir".to_owned()
        }
        StoreOpenError::UnrecognizedFile { .. } => {
            "choose another directory with --data-dir, or move the file away".to_owned()
        }
        StoreOpenError::Io { .. } => {
            "free disk space or correct the permissions, or choose another directory with --data-dir".to_owned()
        }
    };
    error_with_hint(error.to_string(), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the path of a directory that does not exist yet.
    fn temporary_path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ostler-state-test-{name}-{}", std::process::id()));
        // An earlier process with this id may not have removed it.
        fs::remove_dir_all(&path).ok();
        path
    }

    #[test]
    fn rejects_directory_that_others_can_write_to() {
        let path = temporary_path("writable");
        lock_directory(path.clone()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(lock_directory(path.clone()).is_err());
        fs::remove_dir_all(path).unwrap();
    }

    /// The superuser writes to a read-only directory, but not to a directory in place of the lock file.
    #[test]
    fn directory_that_cannot_be_locked_is_an_error_with_a_hint() {
        let path = temporary_path("unwritable");
        fs::create_dir_all(path.join("up.lock")).unwrap();
        let error = lock_directory(path.clone()).unwrap_err();
        let expected = format!(
            "error: {}/up.lock: Is a directory (os error 21)\n\
             hint: free disk space or correct the permissions, or choose another directory with --data-dir",
            path.display()
        );
        assert_eq!(crate::report::errors::render(&error), expected);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn locks_directory_for_one_process() {
        let path = temporary_path("locked");
        let lock = lock_directory(path.clone()).unwrap();
        let error = lock_directory(path.clone()).unwrap_err().to_string();
        let expected = format!("{}: in use by process {}", path.display(), std::process::id());
        assert_eq!(error, expected);
        drop(lock);
        lock_directory(path.clone()).unwrap();
        fs::remove_dir_all(path).unwrap();
    }
}
