//! Atomic updates of the files of a volume, like the kubelet's `AtomicWriter`: new files are written to a separate
//! directory, which is then exposed by replacing one symbolic link.
//!
//! ```text
//! level    -> ..data/level
//! ..data   -> ..2
//! ..2/level
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;

use crate::private_directory::create_private_dir;

/// One file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VolumeFile {
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
}

const DATA_LINK: &str = "..data";

/// Writes exactly `files`, by relative path, to `dir`. Writes nothing if the files are up to date.
pub(super) fn write(dir: &Path, files: &BTreeMap<String, VolumeFile>) -> io::Result<()> {
    create_private_dir(dir)?;
    let current = fs::read_link(dir.join(DATA_LINK)).ok();
    if current.as_deref().is_some_and(|name| is_up_to_date(&dir.join(name), files)) {
        return Ok(());
    }
    let number = current.as_deref().and_then(|name| name.to_str()?.strip_prefix("..")?.parse::<u64>().ok());
    let name = format!("..{}", number.unwrap_or(0).wrapping_add(1));
    let next_dir = dir.join(&name);
    remove(&next_dir)?;
    create_private_dir(&next_dir)?;
    for (path, file) in files {
        let path = next_dir.join(path);
        path.parent().map_or(Ok(()), create_private_dir)?;
        let mut output = fs::OpenOptions::new().write(true).create_new(true).mode(file.mode).open(path)?;
        output.write_all(&file.content)?;
    }
    let temporary_link = dir.join("..data_tmp");
    remove(&temporary_link)?;
    symlink(&name, &temporary_link)?;
    fs::rename(&temporary_link, dir.join(DATA_LINK))?;
    update_links(dir, files)?;
    current.map_or(Ok(()), |old| remove(&dir.join(old)))
}

/// Links the first component of every path and removes the links of files that no longer exist.
fn update_links(dir: &Path, files: &BTreeMap<String, VolumeFile>) -> io::Result<()> {
    let expected: BTreeSet<&str> = files.keys().map(|path| path.split('/').next().unwrap_or(path)).collect();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let is_obsolete = name.to_str().is_some_and(|name| !name.starts_with("..") && !expected.contains(name));
        if is_obsolete {
            remove(&dir.join(name))?;
        }
    }
    for name in expected {
        match symlink(Path::new(DATA_LINK).join(name), dir.join(name)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Whether the directory contains exactly these files. File modes are not compared, because the Pod defines them and
/// its volumes are immutable.
fn is_up_to_date(dir: &Path, files: &BTreeMap<String, VolumeFile>) -> bool {
    count_files(dir) == files.len()
        && files.iter().all(|(path, file)| fs::read(dir.join(path)).is_ok_and(|content| content == file.content))
}

/// Returns the number of files below a directory.
fn count_files(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(
            |entry| {
                if entry.file_type().is_ok_and(|file_type| file_type.is_dir()) { count_files(&entry.path()) } else { 1 }
            },
        )
        .sum()
}

/// Removes a file, link or directory if it exists.
fn remove(path: &Path) -> io::Result<()> {
    let result = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> BTreeMap<String, VolumeFile> {
        let file = |content: &str| VolumeFile { content: content.as_bytes().to_vec(), mode: 0o644 };
        entries.iter().map(|(path, content)| ((*path).to_owned(), file(content))).collect()
    }

    #[test]
    fn updates_files_atomically() {
        let temp_dir = tempfile::tempdir().unwrap();
        let dir = temp_dir.path().join("volume");
        write(&dir, &files(&[("a", "1"), ("below/b", "1"), ("old", "1")])).unwrap();
        let first_path = fs::canonicalize(dir.join("a")).unwrap();
        write(&dir, &files(&[("a", "1"), ("below/b", "1"), ("old", "1")])).unwrap();
        assert_eq!(fs::canonicalize(dir.join("a")).unwrap(), first_path, "unchanged files are not rewritten");

        write(&dir, &files(&[("a", "2"), ("below/b", "2")])).unwrap();
        // Both files are accessible through the replaced link `..data`.
        assert_eq!(fs::read_link(dir.join("a")).unwrap(), Path::new("..data/a"));
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "2");
        assert_eq!(fs::read_to_string(dir.join("below/b")).unwrap(), "2");
        assert!(!dir.join("old").exists() && !first_path.exists());
    }
}
