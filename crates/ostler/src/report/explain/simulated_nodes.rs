//! How to add nodes to a cluster of `ostler up`, whose nodes are arguments.

use serde_json::Value;

use super::fields::text;
use crate::host_node::HOST_ANNOTATION;
use crate::node_groups::{ACCELERATORS_ANNOTATION, SIMULATED_ANNOTATION};

/// Returns how to restart `ostler up` with `count` more nodes like the node named `template`. `None` if the cluster has nodes
/// that are not arguments of `ostler up`.
pub(super) fn restart_hint(nodes: &[Value], template: &str, count: usize) -> Option<String> {
    let mut groups: Vec<(&str, usize)> = Vec::new();
    let added = nodes.iter().find(|node| text(node, "/metadata/name") == template)?;
    for node in nodes.iter().chain(std::iter::repeat_n(added, count)) {
        let group = group_of(node)?;
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, count)) => *count += 1,
            None => groups.push((group, 1)),
        }
    }
    let entry = |(group, count): &(&str, usize)| match count {
        1 => (*group).to_owned(),
        count => format!("{group} ×{count}"),
    };
    let entries: Vec<String> = groups.iter().map(entry).collect();
    Some(format!("restart `ostler up` with --nodes '{}'", entries.join(", ")))
}

/// Returns the entry of `--nodes` for a node: `this`, or its accelerators such as `8×h100`.
fn group_of(node: &Value) -> Option<&str> {
    let annotations = node["metadata"]["annotations"].as_object()?;
    if annotations.contains_key(HOST_ANNOTATION) {
        return Some("this");
    }
    let accelerators = annotations.get(ACCELERATORS_ANNOTATION)?.as_str();
    accelerators.filter(|_| annotations.get(SIMULATED_ANNOTATION).is_some_and(|simulated| simulated == "true"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::node_groups;

    fn simulated(name: &str, accelerators: &str) -> Value {
        json!({"metadata": {"name": name, "annotations":
            {ACCELERATORS_ANNOTATION: accelerators, SIMULATED_ANNOTATION: "true"}}})
    }

    #[rstest]
    #[case::one("l", 1, Some("1×l40s ×2, 8×h100, this"))]
    #[case::several("h", 2, Some("1×l40s, 8×h100 ×3, this"))]
    #[case::unknown_node("x", 1, None)]
    fn lists_all_nodes(#[case] template: &str, #[case] count: usize, #[case] expected: Option<&str>) {
        let host = json!({"metadata": {"name": "this", "annotations": {HOST_ANNOTATION: "true"}}});
        let mut nodes = vec![simulated("l", "1×l40s"), simulated("h", "8×h100"), host];
        let hint = restart_hint(&nodes, template, count);
        assert_eq!(hint, expected.map(|nodes| format!("restart `ostler up` with --nodes '{nodes}'")));
        assert!(expected.is_none_or(|expected| node_groups::parse(expected).is_ok()));
        nodes.push(json!({"metadata": {"name": "other"}}));
        assert_eq!(restart_hint(&nodes, template, count), None, "a node of another origin");
    }
}
