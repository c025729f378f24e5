//! A tree of sentences: what is, and below it why.

use serde::Serialize;

/// One line, and the lines that explain it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Branch {
    pub text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<Branch>,
}

/// Names that share a reason are listed up to here; the rest is counted.
const NAMES: usize = 4;

impl Branch {
    pub(crate) fn leaf(text: impl Into<String>) -> Self {
        Self { text: text.into(), below: Vec::new() }
    }

    pub(crate) fn new(text: impl Into<String>, below: Vec<Branch>) -> Self {
        Self { text: text.into(), below }
    }
}

/// The lines of `branches`, each with its marks.
pub(crate) fn render(branches: &[Branch]) -> Vec<String> {
    let mut lines = Vec::new();
    draw(branches, "", &mut lines);
    lines
}

fn draw(branches: &[Branch], indent: &str, lines: &mut Vec<String>) {
    for (index, branch) in branches.iter().enumerate() {
        let last = index + 1 == branches.len();
        lines.push(format!("{indent}{} {}", if last { "└─" } else { "├─" }, branch.text));
        draw(&branch.below, &format!("{indent}{}", if last { "   " } else { "│  " }), lines);
    }
}

/// One leaf per reason with every name that has it, in the order of the first; at most `most`, the rest counted. The
/// noun stands before the names and may be empty.
pub(crate) fn grouped(noun: &str, rows: impl IntoIterator<Item = (String, String)>, most: usize) -> Vec<Branch> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (name, why) in rows {
        match groups.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => groups.push((why, vec![name])),
        }
    }
    let shown = groups.len().min(most);
    let left: usize = groups[shown..].iter().map(|(_, names)| names.len()).sum();
    let rows: Vec<(String, String)> =
        groups.into_iter().take(shown).map(|(why, mut names)| (called(noun, &mut names), why)).collect();
    let width = rows.iter().map(|(names, _)| names.chars().count()).filter(|width| *width < 40).max().unwrap_or(0);
    let mut leaves: Vec<Branch> =
        rows.into_iter().map(|(names, why)| Branch::leaf(format!("{names:<width$}  {why}").trim_end())).collect();
    if left > 0 {
        leaves.push(Branch::leaf(format!("… {left} more")));
    }
    leaves
}

/// `node a`, `nodes a, b`, or the names alone where there is no noun.
pub(crate) fn called(noun: &str, names: &mut Vec<String>) -> String {
    match (noun, names.len()) {
        ("", _) => listed(names),
        (noun, 1) => format!("{noun} {}", listed(names)),
        (noun, _) => format!("{noun}s {}", listed(names)),
    }
}

/// `1 node`, `3 nodes`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `a, b, c, d and 3 more`.
pub(crate) fn listed(names: &mut Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMES);
    names.truncate(NAMES);
    if more == 0 { names.join(", ") } else { format!("{} and {more} more", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_below_branches() {
        let tree = [
            Branch::new("a", vec![Branch::leaf("b"), Branch::new("c", vec![Branch::leaf("d")])]),
            Branch::new("e", vec![Branch::leaf("f")]),
        ];
        insta::assert_snapshot!(render(&tree).join("\n"), @r"
        ├─ a
        │  ├─ b
        │  └─ c
        │     └─ d
        └─ e
           └─ f
        ");
    }

    #[test]
    fn one_line_per_reason() {
        let row = |name: &str, why: &str| (name.to_owned(), why.to_owned());
        let rows =
            [row("a", "full"), row("b", "cordoned"), row("c", "full"), row("d", "x"), row("e", "y"), row("f", "y")];
        let lines: Vec<_> = grouped("", rows, 3).into_iter().map(|leaf| leaf.text).collect();
        assert_eq!(lines, ["a, c  full", "b     cordoned", "d     x", "… 2 more"]);
        let mut many: Vec<String> = ('a'..='g').map(String::from).collect();
        assert_eq!(listed(&mut many), "a, b, c, d and 3 more");
    }
}
