//! The folder that a running `ostler up` keeps: its kubeconfig, readable by its user alone, and with `--data-dir`
//! everything that outlives it.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use embedded::data_directory::{DataDirectory, Lock, LockError};
use embedded::node::Folders;
use embedded::node::processes::{LeftBehind, Processes};
use embedded::ports::{Random, SystemRandom};
use embedded::serve::Credentials;
use embedded::serve::kept::KeptError;
use embedded::store::{HISTORY, OpenError, Settings, Store};

use crate::connect;
use crate::report::errors::hinted;

/// The folder, of one process as long as this lives: two would write, and remove, each other's kubeconfig.
#[derive(Debug)]
pub(crate) enum Home {
    /// Of the user; the cluster is in memory.
    Runtime(Lock),
    /// Of `--data-dir`; the cluster is in it.
    Data(DataDirectory),
}

/// The folder of `--data-dir`, or the user's.
pub(crate) fn of(data_dir: Option<PathBuf>) -> Result<Home> {
    Ok(match data_dir {
        Some(folder) => Home::Data(DataDirectory::of(prepare(folder)?)),
        None => Home::Runtime(prepare(connect::runtime_directory())?),
    })
}

/// The folder, made private if it is new; one that others can write to is refused, and one that is in use.
fn prepare(folder: PathBuf) -> Result<Lock> {
    let shown = folder.display().to_string();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|error| {
        hinted(format!("{shown}: cannot make this folder: {error}"), "choose another with --data-dir")
    })?;
    let metadata = fs::symlink_metadata(&folder).with_context(|| shown.clone())?;
    if !metadata.is_dir() || metadata.permissions().mode() & 0o022 != 0 {
        return Err(hinted(
            format!("{shown}: not a folder that only you can write to"),
            "choose another with --data-dir, or `chmod go-w` it",
        ));
    }
    Lock::take(&folder).map_err(|error| match &error {
        LockError::Held { .. } => {
            hinted(error.to_string(), "give this one a folder of its own with --data-dir, or end the other")
        }
        LockError::Io { .. } => error.into(),
    })
}

// === impl Home ===

impl Home {
    fn folder(&self) -> &Path {
        match self {
            Self::Runtime(lock) => lock.folder(),
            Self::Data(directory) => directory.folder(),
        }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// The objects of the cluster.
    pub(crate) fn store(&self) -> Result<Store> {
        match self {
            Self::Runtime(_) => Ok(Store::new(HISTORY)),
            Self::Data(directory) => directory.store(Settings::default()).map_err(|error| unusable(&error)),
        }
    }

    pub(crate) fn credentials(&self) -> Result<Credentials> {
        let Self::Data(directory) = self else { return Ok(Credentials::generate()?) };
        directory.credentials().map_err(|error| match &error {
            KeptError::Exposed { file, .. } => hinted(
                error.to_string(),
                format!("`chmod 600 {file}`; if it was read, remove it: the next start makes new ones"),
            ),
            KeptError::Damaged { file, .. } => hinted(
                error.to_string(),
                format!("remove {file}: the next start makes new ones, and kubeconfigs copied before are void"),
            ),
            _ => error.into(),
        })
    }

    /// Kills the processes that an earlier start left behind, and keeps which ones this one starts.
    pub(crate) fn processes(&self) -> Result<(Processes, LeftBehind)> {
        let file = self.folder().join("processes.json");
        Processes::open(file.clone(), SystemRandom.uuid()).with_context(|| file.display().to_string())
    }

    /// Where the node agent keeps what is not in the API.
    pub(crate) fn folders(&self) -> Folders {
        let logs = match self {
            Self::Runtime(_) => None,
            Self::Data(directory) => Some(directory.logs()),
        };
        Folders { logs, pods: Some(self.folder().join("pods")), volumes: Some(self.folder().join("volumes")) }
    }

    /// What becomes of the objects, in a few words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Runtime(_) => "in memory".to_owned(),
            Self::Data(_) => format!("in {}", self.folder().display()),
        }
    }
}

/// Why there are no objects to serve, and what to do about it.
fn unusable(error: &OpenError) -> anyhow::Error {
    let hint = match error {
        OpenError::Damaged { file, .. } => format!(
            "put a copy of {file} in its place; without one, move it away and apply your manifests again: the next start begins an empty cluster"
        ),
        OpenError::Newer { .. } => {
            "start the version that wrote it, or choose another folder with --data-dir".to_owned()
        }
        OpenError::Foreign { .. } => "choose another folder with --data-dir, or move the file away".to_owned(),
        OpenError::Io { .. } => {
            "make room or set its permissions right, or choose another folder with --data-dir".to_owned()
        }
    };
    hinted(error.to_string(), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not there yet; what an earlier process of this number left is gone.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ostler-home-test-{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        folder
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let folder = folder("open");
        prepare(folder.clone()).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(prepare(folder.clone()).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_is_of_one_at_a_time() {
        let folder = folder("used");
        let first = prepare(folder.clone()).unwrap();
        let refused = prepare(folder.clone()).unwrap_err().to_string();
        let expected = format!("{}: in use by process {}", folder.display(), std::process::id());
        assert_eq!(refused, expected);
        drop(first);
        prepare(folder.clone()).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}
