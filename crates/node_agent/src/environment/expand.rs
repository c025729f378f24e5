//! Expansion of `$(NAME)` in values, commands and arguments.

use std::collections::BTreeMap;

/// Replaces `$(NAME)` with the value of the variable. `$$` is an escaped dollar sign. References to undefined variables
/// are left unchanged (`k8s.io/kubernetes/third_party/forked/golang/expansion`).
pub(crate) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find('$') {
        expanded.push_str(&rest[..position]);
        let after_dollar = &rest[position + 1..];
        if let Some(after) = after_dollar.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = after_dollar.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match variables.get(name) {
                Some(value) => expanded.push_str(value),
                None => {
                    expanded.push_str("$(");
                    expanded.push_str(name);
                    expanded.push(')');
                }
            }
            rest = after;
        } else {
            expanded.push('$');
            rest = after_dollar;
        }
    }
    expanded.push_str(rest);
    expanded
}
