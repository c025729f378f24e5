//! The `httproute` of a router role: its schema is open, so that fields newer than ostler pass; its shape is looked at here.

use serde_json::Value;

use super::Finding;
use crate::fusioninfer::{ComponentType, InferenceService};

/// What a field of an HTTPRouteSpec is.
#[derive(Clone, Copy)]
enum Shape {
    Maps,
    Texts,
    Map,
}

const ROUTE: [(&str, Shape); 3] = [("parentRefs", Shape::Maps), ("hostnames", Shape::Texts), ("rules", Shape::Maps)];
const RULE: [(&str, Shape); 4] =
    [("matches", Shape::Maps), ("filters", Shape::Maps), ("backendRefs", Shape::Maps), ("timeouts", Shape::Map)];
/// Fields of the whole object, which belong around a spec.
const WHOLE: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];

/// Findings about the routes of a role-based service.
pub(super) fn check(service: &InferenceService) -> Vec<Finding> {
    let roles = service.spec.roles.iter().enumerate();
    let routers = roles.filter(|(_, role)| role.component_type == ComponentType::Router);
    let fault = |(at, route): (usize, &Value)| {
        let (path, cause) = route_fault(route)?;
        let finding = Finding::error(format!("spec.roles[{at}].httproute{path}"), cause);
        Some(finding.hint("httproute takes what stands under `spec` of an HTTPRoute (gateway.networking.k8s.io/v1)"))
    };
    routers.filter_map(|(at, role)| Some((at, role.httproute.as_ref()?))).filter_map(fault).collect()
}

/// The first field that keeps `route` from being the spec of an HTTPRoute: its path, such as `.rules[0].backendRefs`, and what
/// is wrong. Fields that are not known here are not looked at.
#[must_use]
pub fn route_fault(route: &Value) -> Option<(String, String)> {
    if !route.is_object() {
        return Some((String::new(), "expected a map".to_owned()));
    }
    if let Some(field) = WHOLE.iter().find(|field| route.get(**field).is_some()) {
        return Some((format!(".{field}"), "is a field of a whole HTTPRoute, not of its spec".to_owned()));
    }
    let rules = route["rules"].as_array().into_iter().flatten().enumerate();
    let of_rules = |(at, rule): (usize, &Value)| fault_of(rule, &RULE, &format!(".rules[{at}]"));
    fault_of(route, &ROUTE, "").or_else(|| rules.map(of_rules).find_map(|fault| fault))
}

fn fault_of(value: &Value, fields: &[(&str, Shape)], path: &str) -> Option<(String, String)> {
    fields.iter().find_map(|(field, shape)| {
        let (item, cause) = shape.fault(value.get(*field)?)?;
        Some((format!("{path}.{field}{item}"), format!("expected {cause}")))
    })
}

impl Shape {
    /// Where `value` is another one, and what was expected there.
    fn fault(self, value: &Value) -> Option<(String, &'static str)> {
        let (is_item, item, list): (fn(&Value) -> bool, _, _) = match self {
            _ if value.is_null() => return None,
            Self::Map => return (!value.is_object()).then(|| (String::new(), "a map")),
            Self::Maps => (Value::is_object, "a map", "a list of maps"),
            Self::Texts => (Value::is_string, "a text", "a list of texts"),
        };
        let Some(items) = value.as_array() else { return Some((String::new(), list)) };
        let at = items.iter().position(|one| !is_item(one))?;
        Some((format!("[{at}]"), item))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing("{}", None)]
    #[case::newer_fields(r#"{"rules": [{"sessionPersistence": 1}], "useDefaultGateways": "All"}"#, None)]
    #[case::nulls(r#"{"rules": null, "parentRefs": null}"#, None)]
    #[case::not_a_map("[]", Some(": expected a map"))]
    #[case::rules(r#"{"rules": {}}"#, Some(".rules: expected a list of maps"))]
    #[case::a_rule(r#"{"rules": [{}, "x"]}"#, Some(".rules[1]: expected a map"))]
    #[case::backends(
        r#"{"rules": [{"backendRefs": {"name": "b"}}]}"#,
        Some(".rules[0].backendRefs: expected a list of maps")
    )]
    #[case::timeouts(r#"{"rules": [{"timeouts": "1s"}]}"#, Some(".rules[0].timeouts: expected a map"))]
    #[case::hostnames(r#"{"hostnames": "a.example"}"#, Some(".hostnames: expected a list of texts"))]
    #[case::a_hostname(r#"{"hostnames": ["a", 1]}"#, Some(".hostnames[1]: expected a text"))]
    #[case::parents(r#"{"parentRefs": ["gateway"]}"#, Some(".parentRefs[0]: expected a map"))]
    #[case::the_whole_object(
        r#"{"spec": {"rules": []}}"#,
        Some(".spec: is a field of a whole HTTPRoute, not of its spec")
    )]
    fn shapes(#[case] route: &str, #[case] expect: Option<&str>) {
        let fault = route_fault(&serde_json::from_str(route).unwrap());
        assert_eq!(fault.map(|(path, cause)| format!("{path}: {cause}")).as_deref(), expect);
    }
}
