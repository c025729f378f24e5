//! Manifests from files, folders and standard input.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::lint::{self, Severity};
use api::manifest::{self, Document};

use crate::output;
use crate::report::errors::hinted;

/// More is no manifest: all of Kubernetes' own objects of a large cluster are smaller.
const LARGEST: u64 = 64 << 20;

/// The manifest files that `paths` name: files as they are, folders with every YAML and JSON file below them, sorted.
pub(crate) fn manifests(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            found.push(path.clone());
            continue;
        }
        let metadata = fs::metadata(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => hinted(format!("{}: no such file or folder", path.display()), "check the path"),
            _ => anyhow::Error::new(error).context(path.display().to_string()),
        })?;
        if metadata.is_dir() {
            let before = found.len();
            collect(path, &mut found)?;
            found[before..].sort();
        } else {
            found.push(path.clone());
        }
    }
    Ok(found)
}

/// Every document of one file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Vec<Document>> {
    let name = path.display().to_string();
    let text = if name == "-" { text("standard input", io::stdin())? } else { text_of(path)? };
    Ok(manifest::read(&name, &text)?)
}

/// The text of a file.
pub(crate) fn text_of(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    text(&name, file)
}

fn text(name: &str, source: impl Read) -> Result<String> {
    let mut text = String::new();
    let read = source.take(LARGEST + 1).read_to_string(&mut text).with_context(|| name.to_owned())?;
    if u64::try_from(read).unwrap_or(u64::MAX) > LARGEST {
        let cause = format!("{name}: larger than {} MiB", LARGEST >> 20);
        return Err(hinted(cause, "a manifest is smaller; is this another kind of file?"));
    }
    Ok(text)
}

/// Every document of every file, for use: what `lint` calls an error is refused here, what it warns of is told.
///
/// The first error ends it, with file, document and field.
pub(crate) fn read_valid(paths: &[PathBuf]) -> Result<Vec<Document>> {
    let documents = read_all(paths)?;
    for document in &documents {
        let (errors, warnings): (Vec<_>, Vec<_>) =
            lint::check(document).into_iter().partition(|finding| finding.severity == Severity::Error);
        if let Some(error) = errors.into_iter().next() {
            return Err(error.refuse(document).into());
        }
        warnings.iter().for_each(|warning| output::tell(&warning.render(document)));
    }
    Ok(documents)
}

/// Every document of every file, whatever it says. Paths without a single document are a mistake.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in manifests(paths)? {
        documents.extend(read(&path)?);
    }
    if documents.is_empty() && !paths.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let hint = "a file has documents in YAML or JSON; of a folder the files *.yaml, *.yml and *.json are read";
        return Err(hinted(format!("{}: no manifests", names.join(", ")), hint));
    }
    Ok(documents)
}

/// Links to files count, links to folders do not: they may lead in circles.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, found)?;
        } else if is_manifest(&path) && !path.is_dir() {
            found.push(path);
        }
    }
    Ok(())
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|known| e == *known))
}
