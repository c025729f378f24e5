//! Every manifest that the deployed upstream projects ship reads, and those of our kinds lint without errors.
//! Run by `cargo xtask test --with corpus`, which sets `OSTLER_CORPUS` to the folder.

use std::path::{Path, PathBuf};

use api::lint::{self, Severity};
use api::manifest;

#[test]
#[ignore = "needs the corpus: cargo xtask test --with corpus"]
fn every_manifest_reads_and_ours_lint_without_errors() {
    let corpus = std::env::var_os("OSTLER_CORPUS").expect("OSTLER_CORPUS names the folder of the corpus");
    let files = manifests(Path::new(&corpus)).unwrap();
    assert!(!files.is_empty(), "no manifest in {}", corpus.display());
    let (mut documents, mut ours, mut warnings, mut faults) = (0, 0, 0, Vec::new());
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let read = match manifest::read(&file.to_string_lossy(), &text) {
            Ok(read) => read,
            Err(error) => {
                faults.push(error.to_string());
                continue;
            }
        };
        for document in read {
            documents += 1;
            ours += usize::from(is_ours(&document));
            let (errors, warned): (Vec<_>, Vec<_>) =
                lint::check(&document).into_iter().partition(|finding| finding.severity == Severity::Error);
            warnings += warned.len();
            faults.extend(errors.iter().map(|finding| finding.render(&document)));
            warned.iter().for_each(|finding| eprintln!("{}", finding.render(&document)));
        }
    }
    eprintln!("{} files, {documents} documents, {ours} of our kinds, {warnings} warnings", files.len());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn is_ours(document: &manifest::Document) -> bool {
    ["ome.io/", "fusioninfer.io/", "inference.networking.x-k8s.io/"]
        .iter()
        .any(|group| document.api_version().starts_with(group))
}

/// YAML files below `folder`, sorted.
fn manifests(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(manifests(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
