//! Location of the workspace.

use std::path::PathBuf;

/// Returns the workspace root.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable when it runs the program. The value at build time may be of another checkout that shares
    // the target directory.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(manifest).parent().map(PathBuf::from).unwrap_or_default()
}
