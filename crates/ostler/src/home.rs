//! The folder that a running `ostler up` keeps: its kubeconfig, readable by its user alone.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::report::errors::hinted;

/// The folder, made private if it is new; one that others can write to is refused.
pub(crate) fn prepare(folder: PathBuf) -> Result<PathBuf> {
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
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let folder = std::env::temp_dir().join(format!("ostler-home-test-{}", std::process::id()));
        prepare(folder.clone()).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(prepare(folder.clone()).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
