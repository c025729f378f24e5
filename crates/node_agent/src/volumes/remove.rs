//! Removal of directories that containers have written to.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a directory with all its contents.
pub(crate) fn remove_dir(dir: &Path) {
    if !dir.exists() {
        return;
    }
    // If this fails, makes all directories writable and retries, because some programs create directories without write
    // permission.
    let removed = fs::remove_dir_all(dir).or_else(|_| {
        make_writable(dir);
        fs::remove_dir_all(dir)
    });
    if let Err(error) = removed {
        tracing::warn!(dir = %dir.display(), %error, "failed to remove a directory");
    }
}

fn make_writable(dir: &Path) {
    // If this fails, the removal that follows reports an error.
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}
