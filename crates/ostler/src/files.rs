//! Manifests from files, folders and standard input.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::lint::{self, Severity};
use api::manifest::{self, Document};

use crate::report::errors::hinted;

/// The manifest files that `paths` name: files as they are, folders with every YAML and JSON file below them, sorted.
pub(crate) fn manifests(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = found.len();
            collect(path, &mut found)?;
            found[before..].sort();
        } else if path.as_os_str() == "-" || path.exists() {
            found.push(path.clone());
        } else {
            return Err(hinted(format!("{}: no such file or folder", path.display()), "check the path given with -f"));
        }
    }
    Ok(found)
}

/// Every document of one file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Vec<Document>> {
    let name = path.display().to_string();
    let text = if name == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
        text
    } else {
        fs::read_to_string(path).with_context(|| name.clone())?
    };
    Ok(manifest::read(&name, &text)?)
}

/// Every document of every file, for use: what `lint` calls an error is refused here.
///
/// The first such finding ends it, with file, document and field.
pub(crate) fn read_valid(paths: &[PathBuf]) -> Result<Vec<Document>> {
    let documents = read_all(paths)?;
    for document in &documents {
        if let Some(finding) = lint::check(document).into_iter().find(|finding| finding.severity == Severity::Error) {
            return Err(finding.refuse(document).into());
        }
    }
    Ok(documents)
}

/// Every document of every file, whatever it says.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in manifests(paths)? {
        documents.extend(read(&path)?);
    }
    Ok(documents)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|known| e == *known)) {
            found.push(path);
        }
    }
    Ok(())
}
