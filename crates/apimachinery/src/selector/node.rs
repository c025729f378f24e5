//! Node selector terms of node affinity: terms are ORed, expressions within a term are ANDed.

use serde_json::Value;

use super::label::Requirement;

/// Reports whether any of `terms` (an array of `NodeSelectorTerm`) selects `node`, a Node object.
///
/// `matchFields` supports `metadata.name` only, as in Kubernetes.
pub fn node_selector_terms_match(terms: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let name = node["metadata"]["name"].as_str();
    terms.as_array().into_iter().flatten().any(|term| {
        let expressions = list(term, "matchExpressions");
        let fields = list(term, "matchFields");
        // A term without any condition selects nothing.
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|e| expression_matches(e, |key| labels.get(key).and_then(Value::as_str)))
            && fields.iter().all(|e| expression_matches(e, |key| name.filter(|_| key == "metadata.name")))
    })
}

fn list<'v>(term: &'v Value, key: &str) -> &'v [Value] {
    term[key].as_array().map_or(&[], Vec::as_slice)
}

/// An expression that cannot be parsed matches nothing.
fn expression_matches<'a>(expression: &Value, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
    Requirement::from_json(expression).is_ok_and(|requirement| requirement.matches(value_of(&requirement.key)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::none(json!([]), false)]
    #[case::empty_term(json!([{}]), false)]
    #[case::terms_are_ored(json!([{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["x"]}]},
                          {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]), true)]
    #[case::both(json!([{"matchExpressions": [{"key": "gpu", "operator": "Exists"},
                                              {"key": "mem", "operator": "Gt", "values": ["80"]}]}]), false)]
    #[case::less(json!([{"matchExpressions": [{"key": "mem", "operator": "Lt", "values": ["81"]}]}]), true)]
    #[case::not_in_absent(json!([{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}]), true)]
    #[case::by_name(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]), true)]
    fn matches_nodes(#[case] terms: Value, #[case] expect: bool) {
        let node = json!({"metadata": {"name": "n1", "labels": {"gpu": "h100", "mem": "80"}}});
        assert_eq!(node_selector_terms_match(&terms, &node), expect);
    }
}
