//! Reads manifests from files, directories and standard input.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{Document, parse_manifest};

use crate::report::errors::error_with_hint;

/// Maximum size of a file in bytes, larger than a dump of all objects of a large cluster.
const MAX_FILE_SIZE: u64 = 64 << 20;

/// Lists the manifest files of `paths`: files as given, and all YAML and JSON files below directories, sorted.
pub(crate) fn manifests(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            files.push(path.clone());
            continue;
        }
        let metadata = fs::metadata(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                error_with_hint(format!("{}: no such file or directory", path.display()), "check the path")
            }
            _ => anyhow::Error::new(error).context(path.display().to_string()),
        })?;
        if metadata.is_dir() {
            let start = files.len();
            collect(path, &mut files)?;
            files[start..].sort();
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// Reads all documents of a file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Vec<Document>> {
    let name = path.display().to_string();
    let text = if name == "-" { read_limited("standard input", io::stdin())? } else { read_text(path)? };
    Ok(parse_manifest(&name, &text)?)
}

/// Reads a text file.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    read_limited(&name, file)
}

fn read_limited(name: &str, source: impl Read) -> Result<String> {
    let mut text = String::new();
    let size = source.take(MAX_FILE_SIZE + 1).read_to_string(&mut text).with_context(|| name.to_owned())?;
    if u64::try_from(size).unwrap_or(u64::MAX) > MAX_FILE_SIZE {
        let cause = format!("{name}: file is larger than {} MiB", MAX_FILE_SIZE >> 20);
        return Err(error_with_hint(cause, "check that the file is a manifest"));
    }
    Ok(text)
}

/// Reads all documents of `paths` without validating them.
///
/// # Errors
/// Fails if a file cannot be read or parsed, or if `paths` is not empty but contains no documents.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in manifests(paths)? {
        documents.extend(read(&path)?);
    }
    if documents.is_empty() && !paths.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let hint = "specify YAML or JSON files, or a directory with *.yaml, *.yml or *.json files";
        return Err(error_with_hint(format!("{}: no manifests found", names.join(", ")), hint));
    }
    Ok(documents)
}

/// Adds the manifest files below `directory`. Symbolic links to directories are not followed, since they may form cycles.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if is_manifest(&path) && !path.is_dir() {
            files.push(path);
        }
    }
    Ok(())
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
}
