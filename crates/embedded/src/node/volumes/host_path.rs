//! `hostPath`: what has to be at the path, and what is made where nothing is.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Checks the path by its `type` and makes what `…OrCreate` asks for.
///
/// # Errors
/// A kubelet's sentence.
pub(super) fn check(path: &Path, kind: &str) -> Result<(), String> {
    let shown = path.display();
    let io = |error: std::io::Error| format!("{shown}: {error}");
    match kind {
        "DirectoryOrCreate" if !path.exists() => {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(io)
        }
        "FileOrCreate" if !path.exists() => {
            fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path).map(drop).map_err(io)
        }
        _ => found(path, kind),
    }
}

fn found(path: &Path, kind: &str) -> Result<(), String> {
    let is: fn(&fs::FileType) -> bool = match kind {
        "Directory" | "DirectoryOrCreate" => fs::FileType::is_dir,
        "File" | "FileOrCreate" => fs::FileType::is_file,
        "Socket" => FileTypeExt::is_socket,
        "CharDevice" => FileTypeExt::is_char_device,
        "BlockDevice" => FileTypeExt::is_block_device,
        _ => return Ok(()),
    };
    let what = match kind {
        "Directory" | "DirectoryOrCreate" => "a directory",
        "File" | "FileOrCreate" => "a file",
        "Socket" => "a socket file",
        "CharDevice" => "a character device",
        _ => "a block device",
    };
    match fs::metadata(path) {
        Ok(metadata) if is(&metadata.file_type()) => Ok(()),
        _ => Err(format!("hostPath type check failed: {} is not {what}", path.display())),
    }
}
