//! Files that change together: written into a folder of their own, then shown by swapping one link, as kubelets do.
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

use super::private;

/// One file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
}

const DATA: &str = "..data";

/// Makes `folder` hold exactly `files`, by relative path. Nothing is touched when it does already.
pub(super) fn write(folder: &Path, files: &BTreeMap<String, File>) -> io::Result<()> {
    private(folder)?;
    let current = fs::read_link(folder.join(DATA)).ok();
    if current.as_deref().is_some_and(|name| holds(&folder.join(name), files)) {
        return Ok(());
    }
    let number = current.as_deref().and_then(|name| name.to_str()?.strip_prefix("..")?.parse::<u64>().ok());
    let name = format!("..{}", number.unwrap_or(0) + 1);
    let next = folder.join(&name);
    remove(&next)?;
    private(&next)?;
    for (path, file) in files {
        let path = next.join(path);
        path.parent().map_or(Ok(()), private)?;
        let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(file.mode).open(path)?;
        out.write_all(&file.content)?;
    }
    let swap = folder.join("..data_tmp");
    remove(&swap)?;
    symlink(&name, &swap)?;
    fs::rename(&swap, folder.join(DATA))?;
    show(folder, files)?;
    current.map_or(Ok(()), |old| remove(&folder.join(old)))
}

/// Links to the first part of every path; those of files that are gone go.
fn show(folder: &Path, files: &BTreeMap<String, File>) -> io::Result<()> {
    let wanted: BTreeSet<&str> = files.keys().map(|path| path.split('/').next().unwrap_or(path)).collect();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let gone = name.to_str().is_some_and(|name| !name.starts_with("..") && !wanted.contains(name));
        if gone {
            remove(&folder.join(name))?;
        }
    }
    for name in wanted {
        match symlink(Path::new(DATA).join(name), folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Whether the folder holds these files and no others. Their modes come from the Pod, which does not change.
fn holds(folder: &Path, files: &BTreeMap<String, File>) -> bool {
    count(folder) == files.len()
        && files.iter().all(|(path, file)| fs::read(folder.join(path)).is_ok_and(|content| content == file.content))
}

fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.file_type().is_ok_and(|it| it.is_dir()) { count(&entry.path()) } else { 1 }).sum()
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> BTreeMap<String, File> {
        let file = |content: &str| File { content: content.as_bytes().to_vec(), mode: 0o644 };
        all.iter().map(|(path, content)| ((*path).to_owned(), file(content))).collect()
    }

    #[test]
    fn an_update_is_seen_whole_or_not_at_all() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().join("volume");
        write(&folder, &files(&[("a", "1"), ("below/b", "1"), ("old", "1")])).unwrap();
        let before = fs::canonicalize(folder.join("a")).unwrap();
        write(&folder, &files(&[("a", "1"), ("below/b", "1"), ("old", "1")])).unwrap();
        assert_eq!(fs::canonicalize(folder.join("a")).unwrap(), before, "what is there already is not written again");

        write(&folder, &files(&[("a", "2"), ("below/b", "2")])).unwrap();
        // Both are reached over the one link that was swapped.
        assert_eq!(fs::read_link(folder.join("a")).unwrap(), Path::new("..data/a"));
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "2");
        assert_eq!(fs::read_to_string(folder.join("below/b")).unwrap(), "2");
        assert!(!folder.join("old").exists() && !before.exists());
    }
}
