//! Completes the user's HTTPRoute with the pool as the default backend.

use serde_json::{Value, json};

/// Filter type that responds without a backend; rules with this filter must not have a backend.
const REDIRECT: &str = "RequestRedirect";

/// Returns `spec` with `pool` as the backend of every rule that has none; if there are no rules, adds one.
pub(super) fn with_default_backend(spec: &Value, pool: &str) -> Value {
    let backend = json!([{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": pool}]);
    let mut route = spec.clone();
    if is_empty(&route["rules"]) {
        route["rules"] = json!([{"backendRefs": backend}]);
        return route;
    }
    for rule in route["rules"].as_array_mut().into_iter().flatten() {
        if is_empty(&rule["backendRefs"]) && !redirects(rule) {
            rule["backendRefs"] = backend.clone();
        }
    }
    route
}

fn is_empty(list: &Value) -> bool {
    list.as_array().map_or(list.is_null(), Vec::is_empty)
}

fn redirects(rule: &Value) -> bool {
    rule["filters"].as_array().into_iter().flatten().any(|filter| filter["type"] == REDIRECT)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const TO_POOL: &str = r#"[{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "s-pool"}]"#;

    // spec: TOP-89
    #[rstest]
    #[case::empty("{}", r#"{"rules": [{"backendRefs": POOL}]}"#)]
    #[case::no_rules(r#"{"rules": []}"#, r#"{"rules": [{"backendRefs": POOL}]}"#)]
    #[case::null(r#"{"rules": null}"#, r#"{"rules": [{"backendRefs": POOL}]}"#)]
    #[case::parents_and_hosts(
        r#"{"parentRefs": [{"name": "g", "sectionName": "https"}], "hostnames": ["a.example"]}"#,
        r#"{"parentRefs": [{"name": "g", "sectionName": "https"}], "hostnames": ["a.example"], "rules": [{"backendRefs": POOL}]}"#
    )]
    #[case::each_rule(
        r#"{"rules": [{"matches": [{"path": {"value": "/v1"}}], "filters": [{"type": "URLRewrite"}], "timeouts": {"request": "0s"}}, {"backendRefs": []}]}"#,
        r#"{"rules": [{"matches": [{"path": {"value": "/v1"}}], "filters": [{"type": "URLRewrite"}], "timeouts": {"request": "0s"}, "backendRefs": POOL}, {"backendRefs": POOL}]}"#
    )]
    #[case::existing_backends(
        r#"{"rules": [{"backendRefs": [{"name": "canary", "port": 80, "weight": 1}]}, {}]}"#,
        r#"{"rules": [{"backendRefs": [{"name": "canary", "port": 80, "weight": 1}]}, {"backendRefs": POOL}]}"#
    )]
    #[case::redirect(
        r#"{"rules": [{"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]}]}"#,
        r#"{"rules": [{"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]}]}"#
    )]
    #[case::newer_fields(
        r#"{"future": 1, "rules": [{"name": "r"}]}"#,
        r#"{"future": 1, "rules": [{"name": "r", "backendRefs": POOL}]}"#
    )]
    fn adds_missing_backends_only(#[case] input: &str, #[case] expect: &str) {
        let input: Value = serde_json::from_str(input).unwrap();
        let expect: Value = serde_json::from_str(&expect.replace("POOL", TO_POOL)).unwrap();
        assert_eq!(with_default_backend(&input, "s-pool"), expect);
        assert_eq!(with_default_backend(&expect, "s-pool"), expect, "a complete route is unchanged");
    }
}
