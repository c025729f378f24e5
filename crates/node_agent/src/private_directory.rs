//! Directories that only the owner of this process can access.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates a directory and its parents, accessible only by the owner. An existing directory is not changed.
///
/// # Errors
/// When the directory does not exist and cannot be created.
pub fn create_private_dir(dir: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
