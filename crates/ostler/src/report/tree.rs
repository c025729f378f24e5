//! Trees of sentences: each line is a fact, and its children explain it.

use serde::Serialize;

/// A line with the lines that explain it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TreeNode {
    pub text: String,
    #[serde(rename = "below", skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TreeNode>,
}

/// Maximum number of names that a line lists; further ones are counted.
const MAX_NAMES: usize = 4;

impl TreeNode {
    pub(crate) fn leaf(text: impl Into<String>) -> Self {
        Self { text: text.into(), children: Vec::new() }
    }

    pub(crate) fn new(text: impl Into<String>, children: Vec<TreeNode>) -> Self {
        Self { text: text.into(), children }
    }
}

/// Renders `nodes` as lines with box-drawing characters.
pub(crate) fn render(nodes: &[TreeNode]) -> Vec<String> {
    let mut lines = Vec::new();
    draw(nodes, "", &mut lines);
    lines
}

fn draw(nodes: &[TreeNode], indent: &str, lines: &mut Vec<String>) {
    for (index, node) in nodes.iter().enumerate() {
        let is_last = index + 1 == nodes.len();
        lines.push(format!("{indent}{} {}", if is_last { "└─" } else { "├─" }, node.text));
        draw(&node.children, &format!("{indent}{}", if is_last { "   " } else { "│  " }), lines);
    }
}

/// Groups rows of name and reason by reason, in order of first occurrence: one leaf per reason, at most `max_groups`
/// leaves, and a count of the remaining names. `noun` is written before the names and may be empty.
pub(crate) fn group_by_reason(
    noun: &str,
    rows: impl IntoIterator<Item = (String, String)>,
    max_groups: usize,
) -> Vec<TreeNode> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (name, reason) in rows {
        match groups.iter_mut().find(|(group_key, _)| *group_key == reason) {
            Some((_, names)) => names.push(name),
            None => groups.push((reason, vec![name])),
        }
    }
    let shown_count = groups.len().min(max_groups);
    let omitted_count: usize = groups[shown_count..].iter().map(|(_, names)| names.len()).sum();
    let rows: Vec<(String, String)> = groups
        .into_iter()
        .take(shown_count)
        .map(|(reason, mut names)| (names_with_noun(noun, &mut names), reason))
        .collect();
    let width = rows.iter().map(|(names, _)| names.chars().count()).filter(|width| *width < 40).max().unwrap_or(0);
    let mut leaves: Vec<TreeNode> = rows
        .into_iter()
        .map(|(names, reason)| TreeNode::leaf(format!("{names:<width$}  {reason}").trim_end()))
        .collect();
    if omitted_count > 0 {
        leaves.push(TreeNode::leaf(format!("… {omitted_count} more")));
    }
    leaves
}

/// Formats `node a` or `nodes a, b`, or only the names if `noun` is empty.
pub(crate) fn names_with_noun(noun: &str, names: &mut Vec<String>) -> String {
    match (noun, names.len()) {
        ("", _) => join_names(names),
        (noun, 1) => format!("{noun} {}", join_names(names)),
        (noun, _) => format!("{noun}s {}", join_names(names)),
    }
}

/// Formats a count with its noun: `1 node`, `3 nodes`.
pub(crate) fn format_count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Joins names: `a, b, c, d and 3 more`.
pub(crate) fn join_names(names: &mut Vec<String>) -> String {
    let omitted_count = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    if omitted_count == 0 { names.join(", ") } else { format!("{} and {omitted_count} more", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_nested_nodes() {
        let tree = [
            TreeNode::new("a", vec![TreeNode::leaf("b"), TreeNode::new("c", vec![TreeNode::leaf("d")])]),
            TreeNode::new("e", vec![TreeNode::leaf("f")]),
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
    fn groups_names_by_reason() {
        let row = |name: &str, reason: &str| (name.to_owned(), reason.to_owned());
        let rows =
            [row("a", "full"), row("b", "cordoned"), row("c", "full"), row("d", "x"), row("e", "y"), row("f", "y")];
        let lines: Vec<_> = group_by_reason("", rows, 3).into_iter().map(|leaf| leaf.text).collect();
        assert_eq!(lines, ["a, c  full", "b     cordoned", "d     x", "… 2 more"]);
        let mut names: Vec<String> = ('a'..='g').map(String::from).collect();
        assert_eq!(join_names(&mut names), "a, b, c, d and 3 more");
    }
}
