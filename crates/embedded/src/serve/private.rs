//! Files that only their owner can read.

use std::io::{self, Write as _};
use std::path::Path;

/// Writes one, replacing what was there at once: there is the old one or the new one, never a part.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let partial = path.with_extension("partial");
    if partial.exists() {
        std::fs::remove_file(&partial)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&partial)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&partial, path)
}
