//! Trees of sentences: each line is a fact, and its children explain it.

use std::fmt;

use serde::Serialize;

use super::names::names_with_noun;

/// A line with the lines that explain it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TreeNode {
    pub text: String,
    /// The message in `text`, without the names and the code before it; empty if there is none.
    #[serde(skip)]
    pub message: String,
    #[serde(rename = "below", skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TreeNode>,
}

/// The reason for a state: `CODE: message`, or only one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reason {
    code: String,
    message: String,
}

/// Names of this width and wider ones do not determine the width of the column of names.
const MAX_NAMES_WIDTH: usize = 40;

// === impl TreeNode ===

impl TreeNode {
    /// Returns a line without children.
    pub(crate) fn leaf(text: impl Into<String>) -> Self {
        Self::new(text, Vec::new())
    }

    /// Returns a line that is a message or a title.
    pub(crate) fn new(text: impl Into<String>, children: Vec<TreeNode>) -> Self {
        let text = text.into();
        Self { message: text.clone(), text, children }
    }

    /// Returns the line `names  CODE: message`. The names are padded to `width` characters.
    pub(crate) fn with_reason(names: &str, width: usize, reason: Reason, children: Vec<TreeNode>) -> Self {
        let text = format!("{names:<width$}  {reason}").trim_end().to_owned();
        Self { text, message: reason.message, children }
    }

    /// Returns a branch with a title, or `None` if it has no children.
    pub(crate) fn branch(title: impl Into<String>, children: Vec<TreeNode>) -> Option<Self> {
        (!children.is_empty()).then(|| Self::new(title, children))
    }

    /// Returns the messages of this line and all lines below it.
    pub(crate) fn messages(&self) -> Vec<String> {
        let own_message = Some(&self.message).filter(|message| !message.is_empty()).cloned();
        self.children.iter().flat_map(Self::messages).chain(own_message).collect()
    }
}

// === impl Reason ===

impl Reason {
    /// Returns a reason with a code, and a message that may be empty.
    pub(crate) fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }

    /// Returns a reason without a code.
    pub(crate) fn message(message: impl Into<String>) -> Self {
        Self::new("", message)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.code.is_empty() || self.message.is_empty() { "" } else { ": " };
        write!(f, "{}{separator}{}", self.code, self.message)
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
    rows: impl IntoIterator<Item = (String, Reason)>,
    max_groups: usize,
) -> Vec<TreeNode> {
    let mut groups: Vec<(Reason, Vec<String>)> = Vec::new();
    for (name, reason) in rows {
        match groups.iter_mut().find(|(group_key, _)| *group_key == reason) {
            Some((_, names)) => names.push(name),
            None => groups.push((reason, vec![name])),
        }
    }
    let shown_count = groups.len().min(max_groups);
    let omitted_count: usize = groups[shown_count..].iter().map(|(_, names)| names.len()).sum();
    let rows: Vec<(String, Reason)> = groups
        .into_iter()
        .take(shown_count)
        .map(|(reason, mut names)| (names_with_noun(noun, &mut names), reason))
        .collect();
    let width =
        rows.iter().map(|(names, _)| names.chars().count()).filter(|width| *width < MAX_NAMES_WIDTH).max().unwrap_or(0);
    let mut leaves: Vec<TreeNode> =
        rows.into_iter().map(|(names, reason)| TreeNode::with_reason(&names, width, reason, Vec::new())).collect();
    if omitted_count > 0 {
        leaves.push(TreeNode::leaf(format!("… {omitted_count} more")));
    }
    leaves
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
        let row = |name: &str, reason: &str| (name.to_owned(), Reason::message(reason));
        let rows =
            [row("a", "full"), row("b", "cordoned"), row("c", "full"), row("d", "x"), row("e", "y"), row("f", "y")];
        let lines: Vec<_> = group_by_reason("", rows, 3).into_iter().map(|leaf| leaf.text).collect();
        assert_eq!(lines, ["a, c  full", "b     cordoned", "d     x", "… 2 more"]);
    }
}
