//! The folder that a running `ostler up` keeps: its kubeconfig, readable by its user alone.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::report::errors::hinted;

/// The folder, of one process as long as this lives: two would write, and remove, each other's kubeconfig.
#[derive(Debug)]
pub(crate) struct Home {
    pub folder: PathBuf,
    /// The system lets go of it however the process ends.
    _lock: File,
}

/// The folder, made private if it is new; one that others can write to is refused, and one that is in use.
pub(crate) fn prepare(folder: PathBuf) -> Result<Home> {
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
    let lock = lock(&folder)?;
    Ok(Home { folder, _lock: lock })
}

fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("up.lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.with_context(|| path.display().to_string())?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(hinted(
            format!("{}: another `ostler up` is running there", folder.display()),
            "give this one a folder of its own with --data-dir, or end the other",
        )),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("ostler-home-test-{name}-{}", std::process::id()))
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
        assert!(refused.ends_with("another `ostler up` is running there"), "{refused}");
        drop(first);
        prepare(folder.clone()).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}
