//! Files that only their owner can read.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::parent_directory::parent_directory;

/// Atomically replaces the file at `path` with one of mode 600 that contains `text`.
pub(super) fn write_private_file(path: &Path, text: &str) -> io::Result<()> {
    let directory = parent_directory(path);
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(0o600)).tempfile_in(&directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The name of the file is durable once its directory is synced.
    File::open(directory)?.sync_all()
}
