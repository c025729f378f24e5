//! The `tests` column of the requirement tables in `docs/conformance/*.md`.
//!
//! A test that verifies a requirement has a line `// spec: ID` above it, with several IDs separated by commas. The last
//! column of the tables lists the files of these tests; an ID that is in no table is an error. The column before it states the
//! kinds of tests that show the requirement. The path of a test determines its kinds ([`kinds_of`]); a row that lacks a kind is
//! shown in part.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Requirement ID → files, relative to the workspace, with tests that cite it.
type Citations = BTreeMap<String, BTreeSet<String>>;

/// Kinds of tests.
const UNIT: &str = "unit";
const PLAN: &str = "plan snapshot";
const EMBEDDED: &str = "embedded integration";
const SIMULATION: &str = "simulation";
const REAL: &str = "real component";
const KINDS: [&str; 5] = [UNIT, PLAN, EMBEDDED, SIMULATION, REAL];

/// Beginning of a path → kinds of the tests below it; the first one that matches applies.
const KINDS_BY_PATH: [(&str, &[&str]); 17] = [
    ("crates/ostler/tests/it/realcluster/", &[REAL]),
    ("crates/ostler/tests/it/kubectl.rs", &[REAL, EMBEDDED]),
    ("crates/ostler/tests/it/vllm.rs", &[REAL]),
    ("crates/picker/tests/it/envoy.rs", &[REAL]),
    ("crates/picker/tests/it/upstream_picker.rs", &[REAL]),
    // Commands that only read files.
    ("crates/ostler/tests/it/catalog/", &[UNIT, PLAN]),
    ("crates/ostler/tests/it/lint", &[UNIT]),
    ("crates/ostler/tests/it/", &[PLAN, EMBEDDED]),
    ("crates/plan/src/", &[UNIT, PLAN]),
    ("crates/operator/tests/it/planned_objects.rs", &[PLAN, EMBEDDED]),
    ("crates/simulation/", &[SIMULATION]),
    // The state machine with a virtual clock and faults.
    ("crates/actuation/tests/", &[EMBEDDED, SIMULATION]),
    ("crates/picker/examples/scheduling/", &[SIMULATION]),
    ("crates/picker/src/scheduler/overload_simulation.rs", &[SIMULATION]),
    ("crates/picker/src/scheduler/change_simulation.rs", &[SIMULATION]),
    ("crates/picker/src/scheduler/objective_simulation.rs", &[SIMULATION]),
    ("crates/picker/src/scheduler/route_simulation.rs", &[SIMULATION]),
];

/// Updates the tables. Prints the number of rows with tests, and the rows whose tests lack a promised kind.
pub(crate) fn write() -> Result<()> {
    let citations = check()?;
    for path in table_files()? {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        fs::write(&path, with_tests_column(&text, &citations))?;
        let ids: Vec<_> = text.lines().filter_map(row_id).collect();
        let tested = ids.iter().filter(|id| citations.contains_key(**id)).count();
        println!("{:<16} {tested:>4} of {}", name(&path), ids.len());
        for row in text.lines() {
            let missing = missing_kinds(row, &citations);
            if let Some(id) = row_id(row).filter(|_| !missing.is_empty()) {
                let extent = if citations.contains_key(id) { "in part" } else { "not shown" };
                println!("  {id:<8} {extent}; missing: {}", missing.join(", "));
            }
        }
    }
    Ok(())
}

/// Returns all citations; fails if a cited ID is in no table.
pub(crate) fn check() -> Result<Citations> {
    let mut known = BTreeSet::new();
    for path in table_files()? {
        known.extend(fs::read_to_string(path)?.lines().filter_map(row_id).map(str::to_owned));
    }
    let citations = citations()?;
    let unknown: Vec<_> = citations.iter().filter(|(id, _)| !known.contains(*id)).collect();
    if let Some((id, files)) = unknown.first() {
        bail!("`// spec: {id}` in {files:?}: no table in docs/conformance has this row");
    }
    for path in table_files()? {
        for row in fs::read_to_string(&path)?.lines() {
            if let Some((id, kind)) =
                row_id(row).and_then(|id| Some((id, promised_kinds(row).find(|kind| !KINDS.contains(kind))?)))
            {
                bail!("{}: {id} is shown by `{kind}`; expected one of {}", name(&path), KINDS.join(", "));
            }
        }
    }
    Ok(citations)
}

/// Returns the kinds of the tests in a file. Tests in `tests/` run several crates or processes, others are unit tests.
fn kinds_of(file: &str) -> &'static [&'static str] {
    let by_path = KINDS_BY_PATH.iter().find(|(start, _)| file.starts_with(start));
    match by_path {
        Some((_, kinds)) => kinds,
        None if file.contains("/tests/") && !file.contains("/src/") => &[EMBEDDED],
        None => &[UNIT],
    }
}

/// Returns the kinds of tests that show a row; details in parentheses, such as the component, are omitted.
fn promised_kinds(row: &str) -> impl Iterator<Item = &str> {
    const SHOWN_BY: usize = 3;
    let cell = split_cells(row).get(SHOWN_BY).copied().unwrap_or_default();
    let without_details = cell.split(['(', ')']).step_by(2);
    without_details.flat_map(|part| part.split(',')).map(str::trim).filter(|kind| !kind.is_empty())
}

/// Returns the promised kinds that none of the tests of a row has.
fn missing_kinds<'a>(row: &'a str, citations: &Citations) -> Vec<&'a str> {
    let Some(id) = row_id(row) else { return Vec::new() };
    let files = citations.get(id).into_iter().flatten();
    let shown: BTreeSet<&str> = files.flat_map(|file| kinds_of(file)).copied().collect();
    promised_kinds(row).filter(|kind| !shown.contains(kind)).collect()
}

fn table_files() -> Result<Vec<PathBuf>> {
    let mut paths = files_under(&workspace::root().join("docs/conformance"), "md")?;
    paths.sort();
    Ok(paths)
}

fn citations() -> Result<Citations> {
    let root = workspace::root();
    let mut citations = Citations::new();
    for path in files_under(&root.join("crates"), "rs")? {
        let text = fs::read_to_string(&path)?;
        let file = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        for id in text.lines().flat_map(cited_ids) {
            citations.entry(id.to_owned()).or_default().insert(file.clone());
        }
    }
    Ok(citations)
}

/// Returns the IDs in a `// spec:` line.
fn cited_ids(line: &str) -> impl Iterator<Item = &str> {
    let list = line.trim_start().strip_prefix("// spec: ").unwrap_or("");
    list.split(',').map(str::trim).filter(|id| !id.is_empty())
}

/// Returns the ID of a table row, such as `RT-12` of `| RT-12 | … |`.
fn row_id(line: &str) -> Option<&str> {
    let id = line.strip_prefix("| ")?.split(" |").next()?;
    let (letters, number) = id.split_once('-')?;
    let is_id = !letters.is_empty() && letters.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<u32>().is_ok();
    is_id.then_some(id)
}

fn with_tests_column(text: &str, citations: &Citations) -> String {
    let mut updated = String::with_capacity(text.len());
    for line in text.lines() {
        updated.push_str(&table_line(line, citations));
        updated.push('\n');
    }
    updated
}

fn table_line(line: &str, citations: &Citations) -> String {
    const COLUMNS: usize = 4;
    if !line.starts_with('|') {
        return line.to_owned();
    }
    let cells: Vec<&str> = split_cells(line).into_iter().take(COLUMNS).collect();
    let tests = match row_id(line) {
        Some(id) => {
            citations.get(id).map(|files| files.iter().cloned().collect::<Vec<_>>().join(", ")).unwrap_or_default()
        }
        None if line.starts_with("|--") => "---".to_owned(),
        None if line.starts_with("| id ") => "tests".to_owned(),
        None => return line.to_owned(),
    };
    if tests == "---" {
        return format!("|{}|---|", cells.join("|"));
    }
    format!("|{}| {tests} |", cells.join("|"))
}

/// Splits a table row into cells at each `|` that is neither escaped (`\|`) nor inside backticks.
fn split_cells(row: &str) -> Vec<&str> {
    let row = row.strip_prefix('|').unwrap_or(row);
    let mut cells = Vec::new();
    let (mut start, mut position) = (0, 0);
    while let Some(c) = row[position..].chars().next() {
        let length = match c {
            '\\' => 1 + row[position + 1..].chars().next().map_or(0, char::len_utf8),
            '`' => code_span_length(&row[position..]),
            _ => c.len_utf8(),
        };
        if c == '|' {
            cells.push(&row[start..position]);
            start = position + 1;
        }
        position += length;
    }
    if start < row.len() {
        cells.push(&row[start..]);
    }
    cells
}

/// Returns the length of the code span at the start of `text`, or of its backticks alone if the span is not closed.
fn code_span_length(text: &str) -> usize {
    let content = text.trim_start_matches('`');
    let delimiter = &text[..text.len() - content.len()];
    content.find(delimiter).map_or(delimiter.len(), |end| end + 2 * delimiter.len())
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn files_under(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_under(&path, extension)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_row_ids_and_citations() {
        assert_eq!(row_id("| RT-12 | text | x | unit |"), Some("RT-12"));
        assert_eq!(row_id("| id | requirement |"), None);
        assert_eq!(cited_ids("    // spec: RT-1, ACC-2").collect::<Vec<_>>(), ["RT-1", "ACC-2"]);
    }

    #[test]
    fn finds_rows_that_are_shown_in_part() {
        let citations = |files: &[&str]| {
            Citations::from([("RT-1".to_owned(), files.iter().map(|file| (*file).to_owned()).collect())])
        };
        let row = "| RT-1 | a, b | s | unit, real component (LWS, Volcano), plan snapshot | |";
        assert_eq!(promised_kinds(row).collect::<Vec<_>>(), ["unit", "real component", "plan snapshot"]);
        let missing = |files: &[&str]| missing_kinds(row, &citations(files));
        assert_eq!(missing(&[]), ["unit", "real component", "plan snapshot"]);
        assert_eq!(missing(&["crates/plan/src/tests/roles.rs"]), ["real component"]);
        assert_eq!(missing(&["crates/decide/src/tests.rs"]), ["real component", "plan snapshot"]);
        assert_eq!(missing(&["crates/operator/tests/it/router.rs"]), ["unit", "real component", "plan snapshot"]);
        let real = "crates/ostler/tests/it/realcluster/gangs.rs";
        assert!(missing(&["crates/plan/src/launch/ray.rs", real]).is_empty());
        assert!(missing_kinds("| id | requirement |", &citations(&[])).is_empty());
    }

    #[test]
    fn updating_the_tests_column_is_idempotent() {
        let citations = Citations::from([("RT-1".into(), BTreeSet::from(["a.rs".into()]))]);
        let updated_once = with_tests_column("| RT-1 | t | s | unit |", &citations);
        assert_eq!(updated_once, "| RT-1 | t | s | unit | a.rs |\n");
        assert_eq!(with_tests_column(&updated_once, &citations), updated_once);
    }

    #[test]
    fn splits_cells_at_unescaped_pipes_only() {
        assert_eq!(split_cells("| a | b |"), [" a ", " b "]);
        assert_eq!(split_cells(r"| a \| b | c |"), [r" a \| b ", " c "]);
        assert_eq!(split_cells("| `a | b` | ``c ` | d`` | e |"), [" `a | b` ", " ``c ` | d`` ", " e "]);
        assert_eq!(split_cells("| a ` b | c |"), [" a ` b ", " c "]);
        assert_eq!(split_cells("| a | b"), [" a ", " b"]);
    }

    #[test]
    fn keeps_cells_that_contain_pipes() {
        let citations = Citations::from([("RT-1".into(), BTreeSet::from(["a.rs".into()]))]);
        let updated_once = with_tests_column(r"| RT-1 | `a | b` or c \| d | s | unit |", &citations);
        assert_eq!(updated_once, "| RT-1 | `a | b` or c \\| d | s | unit | a.rs |\n");
        assert_eq!(with_tests_column(&updated_once, &citations), updated_once);
    }
}
