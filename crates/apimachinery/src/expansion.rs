//! Expansion of `$(NAME)` in variables, commands and arguments of containers.

use std::collections::BTreeMap;

/// Replaces `$(NAME)` with the value of the variable. `$$` is an escaped dollar sign. References to undefined variables are left unchanged
/// (`k8s.io/kubernetes/third_party/forked/golang/expansion`).
#[must_use]
pub fn expand_variables(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after_dollar)) = rest.split_once('$') {
        expanded.push_str(before);
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("plain", "plain")]
    #[case("$(A)-$(B)", "1-$(B)")]
    #[case("$$(A)", "$(A)")]
    #[case("$A ${A} $(A", "$A ${A} $(A")]
    #[case("é$(A)é", "é1é")]
    fn expands_variables(#[case] text: &str, #[case] expect: &str) {
        assert_eq!(expand_variables(text, &BTreeMap::from([("A".to_owned(), "1".to_owned())])), expect);
    }
}
