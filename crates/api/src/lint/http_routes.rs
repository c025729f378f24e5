//! The `httproute` of a router role. Its schema preserves unknown fields, so the types of known fields are checked here.

use serde_json::Value;

use super::finding::Finding;
use crate::fusioninfer::{ComponentType, InferenceService};

/// The type of a field of an HTTPRouteSpec.
#[derive(Clone, Copy)]
enum FieldType {
    /// An array of objects.
    ObjectList,
    /// An array of strings.
    StringList,
    /// An object.
    Object,
}

const SPEC_FIELDS: [(&str, FieldType); 3] =
    [("parentRefs", FieldType::ObjectList), ("hostnames", FieldType::StringList), ("rules", FieldType::ObjectList)];
const RULE_FIELDS: [(&str, FieldType); 4] = [
    ("matches", FieldType::ObjectList),
    ("filters", FieldType::ObjectList),
    ("backendRefs", FieldType::ObjectList),
    ("timeouts", FieldType::Object),
];
/// Fields of an HTTPRoute object, which a spec does not have.
const OBJECT_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];

/// Returns the findings about the routes of a role-based service.
pub(super) fn check(service: &InferenceService) -> Vec<Finding> {
    let roles = service.spec.roles.iter().enumerate();
    let routers = roles.filter(|(_, role)| role.component_type == ComponentType::Router);
    let finding = |(index, route): (usize, &Value)| {
        let (path, error) = http_route_spec_error(route)?;
        let finding = Finding::error(format!("spec.roles[{index}].httproute{path}"), error);
        Some(
            finding.with_hint("set httproute to the contents of `spec` of an HTTPRoute (gateway.networking.k8s.io/v1)"),
        )
    };
    routers.filter_map(|(index, role)| Some((index, role.httproute.as_ref()?))).filter_map(finding).collect()
}

/// Returns the path, such as `.rules[0].backendRefs`, and the error of the first field that is invalid in the spec of an
/// HTTPRoute. Unknown fields are not checked.
#[must_use]
pub fn http_route_spec_error(route: &Value) -> Option<(String, String)> {
    if !route.is_object() {
        return Some((String::new(), "expected an object".to_owned()));
    }
    if let Some(field) = OBJECT_FIELDS.iter().find(|field| route.get(**field).is_some()) {
        return Some((format!(".{field}"), "belongs to the HTTPRoute object, not to its spec".to_owned()));
    }
    let rules = route["rules"].as_array().into_iter().flatten().enumerate();
    let rule_error = |(index, rule): (usize, &Value)| field_error(rule, &RULE_FIELDS, &format!(".rules[{index}]"));
    field_error(route, &SPEC_FIELDS, "").or_else(|| rules.map(rule_error).find_map(|error| error))
}

fn field_error(value: &Value, fields: &[(&str, FieldType)], path: &str) -> Option<(String, String)> {
    fields.iter().find_map(|(field, field_type)| {
        let (item, expected) = field_type.type_error(value.get(*field)?)?;
        Some((format!("{path}.{field}{item}"), format!("expected {expected}")))
    })
}

impl FieldType {
    /// Returns the path of the first element of another type, and the expected type.
    fn type_error(self, value: &Value) -> Option<(String, &'static str)> {
        let (is_item, item, list): (fn(&Value) -> bool, _, _) = match self {
            _ if value.is_null() => return None,
            Self::Object => return (!value.is_object()).then(|| (String::new(), "an object")),
            Self::ObjectList => (Value::is_object, "an object", "a list of objects"),
            Self::StringList => (Value::is_string, "a string", "a list of strings"),
        };
        let Some(items) = value.as_array() else { return Some((String::new(), list)) };
        let index = items.iter().position(|value| !is_item(value))?;
        Some((format!("[{index}]"), item))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::empty("{}", None)]
    #[case::unknown_fields(r#"{"rules": [{"sessionPersistence": 1}], "useDefaultGateways": "All"}"#, None)]
    #[case::nulls(r#"{"rules": null, "parentRefs": null}"#, None)]
    #[case::not_an_object("[]", Some(": expected an object"))]
    #[case::rules(r#"{"rules": {}}"#, Some(".rules: expected a list of objects"))]
    #[case::rule(r#"{"rules": [{}, "x"]}"#, Some(".rules[1]: expected an object"))]
    #[case::backends(
        r#"{"rules": [{"backendRefs": {"name": "b"}}]}"#,
        Some(".rules[0].backendRefs: expected a list of objects")
    )]
    #[case::timeouts(r#"{"rules": [{"timeouts": "1s"}]}"#, Some(".rules[0].timeouts: expected an object"))]
    #[case::hostnames(r#"{"hostnames": "a.example"}"#, Some(".hostnames: expected a list of strings"))]
    #[case::hostname(r#"{"hostnames": ["a", 1]}"#, Some(".hostnames[1]: expected a string"))]
    #[case::parents(r#"{"parentRefs": ["gateway"]}"#, Some(".parentRefs[0]: expected an object"))]
    #[case::object_instead_of_spec(
        r#"{"spec": {"rules": []}}"#,
        Some(".spec: belongs to the HTTPRoute object, not to its spec")
    )]
    fn reports_first_invalid_field(#[case] route: &str, #[case] expect: Option<&str>) {
        let error = http_route_spec_error(&serde_json::from_str(route).unwrap());
        assert_eq!(error.map(|(path, message)| format!("{path}: {message}")).as_deref(), expect);
    }
}
