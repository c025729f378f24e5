//! `hostPath` volumes: type checks and creation.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Checks that the path has the given `type`. Creates it for `DirectoryOrCreate` and `FileOrCreate`.
///
/// # Errors
/// The kubelet's error message.
pub(super) fn check(path: &Path, kind: &str) -> Result<(), String> {
    let display = path.display();
    let io_error = |error: std::io::Error| format!("{display}: {error}");
    match kind {
        "DirectoryOrCreate" if !path.exists() => {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(io_error)
        }
        "FileOrCreate" if !path.exists() => fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(path)
            .map(drop)
            .map_err(io_error),
        _ => check_type(path, kind),
    }
}

fn check_type(path: &Path, kind: &str) -> Result<(), String> {
    let is_type: fn(&fs::FileType) -> bool = match kind {
        "Directory" | "DirectoryOrCreate" => fs::FileType::is_dir,
        "File" | "FileOrCreate" => fs::FileType::is_file,
        "Socket" => FileTypeExt::is_socket,
        "CharDevice" => FileTypeExt::is_char_device,
        "BlockDevice" => FileTypeExt::is_block_device,
        _ => return Ok(()),
    };
    let expected = match kind {
        "Directory" | "DirectoryOrCreate" => "a directory",
        "File" | "FileOrCreate" => "a file",
        "Socket" => "a socket file",
        "CharDevice" => "a character device",
        _ => "a block device",
    };
    match fs::metadata(path) {
        Ok(metadata) if is_type(&metadata.file_type()) => Ok(()),
        _ => Err(format!("hostPath type check failed: {} is not {expected}", path.display())),
    }
}
