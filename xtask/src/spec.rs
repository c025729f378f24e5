//! Which rows of `docs/conformance/*.md` are shown by a test.
//!
//! A test that shows a row carries `// spec: ID` (several, separated by commas) on a line above it.
//! The tables get a last column `tests` naming the files; an ID that no table knows is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Row ID → files (relative to the workspace) whose tests cite it.
type Citations = BTreeMap<String, BTreeSet<String>>;

/// Rewrites the tables and prints how many rows are shown.
pub(crate) fn write() -> Result<()> {
    let citations = check()?;
    for path in tables()? {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        fs::write(&path, with_tests_column(&text, &citations))?;
        let ids: Vec<_> = text.lines().filter_map(row_id).collect();
        let shown = ids.iter().filter(|id| citations.contains_key(**id)).count();
        println!("{:<16} {shown:>4} of {}", name(&path), ids.len());
    }
    Ok(())
}

/// Reads all citations; fails on one that no table knows.
pub(crate) fn check() -> Result<Citations> {
    let mut known = BTreeSet::new();
    for path in tables()? {
        known.extend(fs::read_to_string(path)?.lines().filter_map(row_id).map(str::to_owned));
    }
    let citations = citations()?;
    let unknown: Vec<_> = citations.iter().filter(|(id, _)| !known.contains(*id)).collect();
    if let Some((id, files)) = unknown.first() {
        bail!("`// spec: {id}` in {files:?}: no table in docs/conformance has this row");
    }
    Ok(citations)
}

fn tables() -> Result<Vec<PathBuf>> {
    let mut paths = files_under(&crate::root().join("docs/conformance"), "md")?;
    paths.sort();
    Ok(paths)
}

fn citations() -> Result<Citations> {
    let root = crate::root();
    let mut found = Citations::new();
    for path in files_under(&root.join("crates"), "rs")? {
        let text = fs::read_to_string(&path)?;
        let file = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        for id in text.lines().flat_map(cited_ids) {
            found.entry(id.to_owned()).or_default().insert(file.clone());
        }
    }
    Ok(found)
}

fn cited_ids(line: &str) -> impl Iterator<Item = &str> {
    let list = line.trim_start().strip_prefix("// spec: ").unwrap_or("");
    list.split(',').map(str::trim).filter(|id| !id.is_empty())
}

/// `RT-12` of the table row `| RT-12 | … |`.
fn row_id(line: &str) -> Option<&str> {
    let id = line.strip_prefix("| ")?.split(" |").next()?;
    let (letters, number) = id.split_once('-')?;
    let is_id = !letters.is_empty() && letters.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<u32>().is_ok();
    is_id.then_some(id)
}

fn with_tests_column(text: &str, citations: &Citations) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        out.push_str(&table_line(line, citations));
        out.push('\n');
    }
    out
}

fn table_line(line: &str, citations: &Citations) -> String {
    const COLUMNS: usize = 4;
    if !line.starts_with('|') {
        return line.to_owned();
    }
    let cells: Vec<&str> = line.trim_matches('|').split('|').take(COLUMNS).collect();
    let last = match row_id(line) {
        Some(id) => {
            citations.get(id).map(|files| files.iter().cloned().collect::<Vec<_>>().join(", ")).unwrap_or_default()
        }
        None if line.starts_with("|--") => "---".to_owned(),
        None if line.starts_with("| id ") => "tests".to_owned(),
        None => return line.to_owned(),
    };
    if last == "---" {
        return format!("|{}|---|", cells.join("|"));
    }
    format!("|{}| {last} |", cells.join("|"))
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn files_under(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files_under(&path, extension)?);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_citations_are_found() {
        assert_eq!(row_id("| RT-12 | text | x | unit |"), Some("RT-12"));
        assert_eq!(row_id("| id | requirement |"), None);
        assert_eq!(cited_ids("    // spec: RT-1, ACC-2").collect::<Vec<_>>(), ["RT-1", "ACC-2"]);
    }

    #[test]
    fn the_column_is_replaced_not_repeated() {
        let citations = Citations::from([("RT-1".into(), BTreeSet::from(["a.rs".into()]))]);
        let once = with_tests_column("| RT-1 | t | s | unit |", &citations);
        assert_eq!(once, "| RT-1 | t | s | unit | a.rs |\n");
        assert_eq!(with_tests_column(&once, &citations), once);
    }
}
