//! Node selector terms of node affinity: terms are alternatives, expressions within a term all hold.

use std::collections::BTreeMap;

use serde_json::Value;

use super::label::Requirement;

/// Whether any of `terms` (an array of `NodeSelectorTerm`) selects a node with `labels`.
/// `matchFields` holds for no node here; with the node at hand use [`node_matches`].
pub fn node_selector_matches(terms: &Value, labels: &BTreeMap<String, String>) -> bool {
    any_term(terms, |key| labels.get(key).map(String::as_str), None)
}

/// As [`node_selector_matches`] for a Node object; `matchFields` knows `metadata.name`, as Kubernetes does.
pub fn node_matches(terms: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    any_term(terms, |key| labels.get(key).and_then(Value::as_str), node["metadata"]["name"].as_str())
}

fn any_term<'a>(terms: &Value, label: impl Fn(&str) -> Option<&'a str>, name: Option<&str>) -> bool {
    terms.as_array().into_iter().flatten().any(|term| {
        let expressions = list(term, "matchExpressions");
        let fields = list(term, "matchFields");
        // A term without any condition selects nothing.
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|e| holds(e, &label))
            && fields.iter().all(|e| holds(e, |key| name.filter(|_| key == "metadata.name")))
    })
}

fn list<'v>(term: &'v Value, key: &str) -> &'v [Value] {
    term[key].as_array().map_or(&[], Vec::as_slice)
}

/// An expression that cannot be read selects nothing.
fn holds<'a>(expression: &Value, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
    Requirement::from_json(expression).is_ok_and(|r| r.matches(value_of(&r.key)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::none(json!([]), false)]
    #[case::empty_term(json!([{}]), false)]
    #[case::either(json!([{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["x"]}]},
                          {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]), true)]
    #[case::both(json!([{"matchExpressions": [{"key": "gpu", "operator": "Exists"},
                                              {"key": "mem", "operator": "Gt", "values": ["80"]}]}]), false)]
    #[case::less(json!([{"matchExpressions": [{"key": "mem", "operator": "Lt", "values": ["81"]}]}]), true)]
    #[case::not_in_absent(json!([{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}]), true)]
    #[case::by_name(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]), true)]
    fn selects(#[case] terms: Value, #[case] expect: bool) {
        let node = json!({"metadata": {"name": "n1", "labels": {"gpu": "h100", "mem": "80"}}});
        assert_eq!(node_matches(&terms, &node), expect);
    }
}
