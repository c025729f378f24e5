//! Counts and lists of names in sentences.

/// Maximum number of names that are listed; further ones are counted.
const MAX_NAMES: usize = 4;

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
    fn limits_and_counts_names() {
        let mut names: Vec<String> = ('a'..='g').map(String::from).collect();
        assert_eq!(names_with_noun("node", &mut names.clone()), "nodes a, b, c, d and 3 more");
        assert_eq!(join_names(&mut names), "a, b, c, d and 3 more");
        assert_eq!([format_count(1, "node"), format_count(3, "node")], ["1 node", "3 nodes"]);
    }
}
