//! Parses all manifests of the upstream projects and lints those of ostler kinds. Run by
//! `cargo xtask test --with corpus`, which sets `OSTLER_CORPUS` to the directory.

use std::path::{Path, PathBuf};

use api::{Document, Severity, lint_document, parse_manifest};

#[test]
#[ignore = "needs the corpus: cargo xtask test --with corpus"]
fn corpus_parses_and_ostler_kinds_have_no_errors() {
    let corpus = std::env::var_os("OSTLER_CORPUS").expect("OSTLER_CORPUS must be set to the corpus directory");
    let files = manifests(Path::new(&corpus)).unwrap();
    assert!(!files.is_empty(), "no manifests in {}", corpus.display());
    let (mut document_count, mut ostler_count, mut warning_count, mut errors) = (0, 0, 0, Vec::new());
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let documents = match parse_manifest(&file.to_string_lossy(), &text) {
            Ok(documents) => documents,
            Err(error) => {
                errors.push(error.to_string());
                continue;
            }
        };
        for document in documents {
            document_count += 1;
            ostler_count += usize::from(is_ostler_kind(&document));
            let (error_findings, warnings): (Vec<_>, Vec<_>) =
                lint_document(&document).into_iter().partition(|finding| finding.severity == Severity::Error);
            warning_count += warnings.len();
            errors.extend(error_findings.iter().map(|finding| finding.render(&document)));
            warnings.iter().for_each(|finding| eprintln!("{}", finding.render(&document)));
        }
    }
    eprintln!(
        "{} files, {document_count} documents, {ostler_count} of ostler kinds, {warning_count} warnings",
        files.len()
    );
    assert!(errors.is_empty(), "{} errors:\n{}", errors.len(), errors.join("\n"));
}

fn is_ostler_kind(document: &Document) -> bool {
    ["ome.io/", "fusioninfer.io/", "inference.networking.x-k8s.io/"]
        .iter()
        .any(|group| document.api_version().starts_with(group))
}

/// Returns the YAML files below `directory`, sorted.
fn manifests(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
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
