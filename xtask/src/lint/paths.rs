//! Files that the documents of the repository name: each must exist.

use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace;

/// Documents whose paths are checked, relative to the workspace root.
const DOCUMENTS: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"];

/// Returns `DOCUMENT: PATH` for every path in backquotes that starts with a directory of the repository, or of
/// `crates/`, and does not exist.
pub(super) fn missing() -> Result<Vec<String>> {
    let root = workspace::root();
    let mut missing = Vec::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root.join(document)).context(document)?;
        for path in paths(&text) {
            let bases = [root.clone(), root.join("crates")];
            let is_ours = |base: &Path| path.split_once('/').is_some_and(|(first, _)| base.join(first).is_dir());
            let bases: Vec<_> = bases.iter().filter(|base| is_ours(base)).collect();
            if !bases.is_empty() && !bases.iter().any(|base| base.join(&path).exists()) {
                missing.push(format!("{document}: `{path}`"));
            }
        }
    }
    Ok(missing)
}

/// Returns the words in backquotes that contain a slash and no placeholder, with `{a,b}` expanded.
fn paths(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_path =
        |word: &&str| word.contains('/') && !word.contains(|c: char| c.is_whitespace() || "*$<>:=@".contains(c));
    quoted.filter(is_path).flat_map(expand_braces).collect()
}

fn expand_braces(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((names, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    names.split(',').map(|name| format!("{before}{name}{after}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_paths_in_backquotes() {
        let text = "see `api/src/lint/` and `a/{b,c}.rs`, not `kind/NAME name`, `crates/*/x`, plain/text or `word`";
        assert_eq!(paths(text), ["api/src/lint/", "a/b.rs", "a/c.rs"]);
    }
}
