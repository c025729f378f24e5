//! Checks JSON values against their Go types. Mismatches are formatted like those of Go's JSON decoder, which reports
//! the first one in document order, or like those of server-side apply, which reports all.

use apimachinery::{go_format_value, go_type_name};
use serde_json::{Map, Value};

use super::field_path::{FieldNames, FieldPath};
use super::{Cardinality, TypeField, fields, object_type};

/// Value whose JSON type differs from the Go type of its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeMismatch {
    /// Go struct that has the field: `ObjectMeta`.
    struct_name: String,
    /// Field path without indices and map keys: `metadata.annotations`.
    field: String,
    /// Field path with indices and map keys: `.metadata.annotations.k`.
    pub(crate) path: String,
    expected: String,
    actual: Value,
}

/// Returns the mismatches of a value with the type `name`, such as `apps.v1.Deployment`. Unknown types accept any
/// value.
pub(crate) fn type_mismatches(name: &str, value: &Value) -> Vec<TypeMismatch> {
    let mut mismatches = Vec::new();
    if let Some(type_fields) = fields(name) {
        check_object(short_name(name), type_fields, value, &FieldPath::Root, &mut mismatches);
    }
    mismatches
}

/// Like [`type_mismatches`], for the value of the field `member` of an object, such as `metadata`.
pub(crate) fn type_mismatches_at(name: &str, value: &Value, member: &str) -> Vec<TypeMismatch> {
    let mut mismatches = Vec::new();
    if let Some(type_fields) = fields(name).filter(|_| !value.is_null()) {
        check_object(
            short_name(name),
            type_fields,
            value,
            &FieldPath::Member(&FieldPath::Root, member),
            &mut mismatches,
        );
    }
    mismatches
}

fn check_object(
    struct_name: &str,
    type_fields: &'static [TypeField],
    value: &Value,
    path: &FieldPath<'_>,
    mismatches: &mut Vec<TypeMismatch>,
) {
    let Value::Object(members) = value else { return };
    for (member, value) in members {
        let Some((owner, field)) = find_field(struct_name, type_fields, member) else { continue };
        check_field(owner, field, value, &FieldPath::Member(path, member), mismatches);
    }
}

/// Finds a field by name in a type or in the types embedded in it.
fn find_field<'a>(
    struct_name: &'a str,
    type_fields: &'static [TypeField],
    name: &str,
) -> Option<(&'a str, &'static TypeField)> {
    type_fields.iter().find_map(|field| match field.name {
        "." => find_field(short_name(field.kind), fields(field.kind)?, name),
        member if member == name => Some((struct_name, field)),
        _ => None,
    })
}

fn check_field(
    struct_name: &str,
    field: &'static TypeField,
    value: &Value,
    path: &FieldPath<'_>,
    mismatches: &mut Vec<TypeMismatch>,
) {
    let expected = match (field.cardinality, value) {
        (_, Value::Null) => return,
        (Cardinality::Single, value) => return check_value(struct_name, field, value, path, mismatches),
        (Cardinality::List, Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                check_value(struct_name, field, item, &FieldPath::Item(path, index), mismatches);
            }
            return;
        }
        (Cardinality::Map, Value::Object(entries)) => {
            for (key, entry) in entries {
                check_value(struct_name, field, entry, &FieldPath::Entry(path, key), mismatches);
            }
            return;
        }
        (Cardinality::List, _) => format!("[]{}", go_name(field.kind)),
        (Cardinality::Map, _) => format!("map[string]{}", go_name(field.kind)),
    };
    mismatches.push(TypeMismatch::new(struct_name, path, expected, value));
}

fn check_value(
    struct_name: &str,
    field: &'static TypeField,
    value: &Value,
    path: &FieldPath<'_>,
    mismatches: &mut Vec<TypeMismatch>,
) {
    let is_valid = match (field.kind, value) {
        (_, Value::Null) => true,
        ("string" | "bytes", value) => value.is_string(),
        ("int", value) => is_int32(value),
        ("int64", value) => value.is_i64(),
        ("float", value) => value.is_number(),
        ("bool", value) => value.is_boolean(),
        ("util.intstr.IntOrString", Value::Number(_)) if !is_int32(value) => {
            return mismatches.push(TypeMismatch::new(struct_name, path, go_name("int"), value));
        }
        ("util.intstr.IntOrString", value) => value.is_string() || value.is_number(),
        ("resource.Quantity", value) => value.is_string() || value.is_number(),
        ("meta.v1.MicroTime", Value::String(text)) => invalid_micro_time_suffix(text).is_none(),
        ("meta.v1.Time" | "meta.v1.MicroTime", value) => value.is_string(),
        (kind, Value::Object(_)) => {
            let kind = object_type(kind);
            if let Some(type_fields) = fields(kind) {
                check_object(short_name(kind), type_fields, value, path, mismatches);
            }
            return;
        }
        (kind, _) => fields(kind).is_none(),
    };
    if !is_valid {
        mismatches.push(TypeMismatch::new(struct_name, path, go_name(field.kind), value));
    }
}

/// Reports whether the value is an integer of 32 bits.
fn is_int32(value: &Value) -> bool {
    value.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
}

/// Returns the last segment of a type name: `apps.v1.DeploymentSpec` → `DeploymentSpec`.
fn short_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Returns the Go name of a type.
fn go_name(kind: &str) -> String {
    match kind {
        "int" => "int32".to_owned(),
        "float" => "float64".to_owned(),
        "bytes" => "[]uint8".to_owned(),
        other => match other.rsplit_once('.') {
            Some((package, name)) => format!("{}.{name}", short_name(package)),
            None => other.to_owned(),
        },
    }
}

// === impl TypeMismatch ===

impl TypeMismatch {
    fn new(struct_name: &str, path: &FieldPath<'_>, expected: String, actual: &Value) -> Self {
        let (field, path) = (FieldNames(path).to_string(), format!(".{path}"));
        Self { struct_name: struct_name.to_owned(), field, path, expected, actual: actual.clone() }
    }

    /// Reports whether a string was found where the type requires a `metav1.MicroTime`.
    pub(crate) fn is_invalid_time(&self) -> bool {
        self.expected == "v1.MicroTime" && self.actual.is_string()
    }

    /// Returns the message of server-side apply.
    pub(crate) fn apply_message(&self) -> String {
        let (path, actual) = (&self.path, &self.actual);
        match self.expected.as_str() {
            "string" => {
                let actual = apimachinery::go_format_syntax(actual);
                format!("{path}: expected string, got &value.valueUnstructured{{Value:{actual}}}")
            }
            "int32" | "int64" | "float64" => {
                format!("{path}: expected numeric (int or float), got {}", go_type_name(actual))
            }
            "bool" => format!("{path}: expected boolean, got &{{{}}}", go_format_value(actual)),
            list if list.starts_with("[]") => format!("{path}: expected list, got &{{{}}}", go_format_value(actual)),
            _ => format!("{path}: expected map, got &{{{}}}", go_format_value(actual)),
        }
    }
}

impl std::fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let (Value::String(text), "v1.MicroTime") = (&self.actual, self.expected.as_str())
            && let Some(rest) = invalid_micro_time_suffix(text)
        {
            return write!(f, "parsing time {text:?} as {MICRO_TIME_LAYOUT:?}: cannot parse {rest:?} as \".000000\"");
        }
        let actual = match &self.actual {
            Value::Number(number) if self.expected.starts_with("int") => format!("number {number}"),
            other => json_type_name(other).to_owned(),
        };
        let (struct_name, field, expected) = (&self.struct_name, &self.field, &self.expected);
        write!(f, "json: cannot unmarshal {actual} into Go struct field {struct_name}.{field} of type {expected}")
    }
}

/// Go's time layout of `metav1.MicroTime`.
const MICRO_TIME_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Returns the text that follows the seconds if a time does not have exactly six fractional digits. `None` for valid
/// times and for strings that are not times, which the schema rejects.
fn invalid_micro_time_suffix(text: &str) -> Option<&str> {
    text.parse::<jiff::Timestamp>().ok()?;
    let rest = text.get("2006-01-02T15:04:05".len()..)?;
    let digits = rest.strip_prefix('.').map_or(0, |digits| digits.bytes().take_while(u8::is_ascii_digit).count());
    (digits != 6).then_some(rest)
}

fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Replaces null with the empty string in maps of strings.
pub(crate) fn replace_null_strings(name: &str, members: &mut Map<String, Value>) {
    for field in fields(name).into_iter().flatten() {
        if field.name == "." {
            replace_null_strings(field.kind, members);
            continue;
        }
        match (field.cardinality, members.get_mut(field.name)) {
            (Cardinality::Map, Some(Value::Object(entries))) if field.kind == "string" => {
                entries.values_mut().filter(|entry| entry.is_null()).for_each(|entry| *entry = Value::from(""));
            }
            (Cardinality::Single, Some(Value::Object(inner))) => replace_null_strings(object_type(field.kind), inner),
            (Cardinality::List, Some(Value::Array(items))) => {
                items
                    .iter_mut()
                    .filter_map(Value::as_object_mut)
                    .for_each(|item| replace_null_strings(object_type(field.kind), item));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("core.v1.ConfigMap", json!({"data": {"k": 1}}), "cannot unmarshal number into Go struct field ConfigMap.data of type string")]
    #[case("core.v1.ConfigMap", json!({"metadata": {"annotations": {"k": 1}}}), "number into Go struct field ObjectMeta.metadata.annotations of type string")]
    #[case("core.v1.ConfigMap", json!({"metadata": {"labels": []}}), "array into Go struct field ObjectMeta.metadata.labels of type map[string]string")]
    #[case("core.v1.Pod", json!({"spec": {"containers": {}}}), "object into Go struct field PodSpec.spec.containers of type []v1.Container")]
    #[case("apiextensions.v1.CustomResourceDefinition", json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"a": {"minimum": "1"}}}}}]}}), "string into Go struct field")]
    #[case("apiextensions.v1.CustomResourceDefinition", json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"items": {"type": 1}}}}]}}), "number into Go struct field JSONSchemaProps")]
    #[case("apps.v1.Deployment", json!({"spec": {"replicas": 2_147_483_648_i64}}), "number 2147483648 into Go struct field DeploymentSpec.spec.replicas of type int32")]
    #[case("core.v1.Pod", json!({"spec": {"terminationGracePeriodSeconds": u64::MAX}}), "number 18446744073709551615 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64")]
    #[case("policy.v1.PodDisruptionBudget", json!({"spec": {"minAvailable": i64::MAX}}), "PodDisruptionBudgetSpec.spec.minAvailable of type int32")]
    #[case("coordination.v1.Lease", json!({"spec": {"renewTime": "2026-01-01T00:00:00Z"}}), r#"parsing time "2026-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#)]
    #[case("coordination.v1.Lease", json!({"spec": {"renewTime": "2026-01-01T00:00:00.123Z"}}), r#"parsing time "2026-01-01T00:00:00.123Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".123Z" as ".000000""#)]
    fn reports_first_mismatch_like_go(#[case] name: &str, #[case] value: Value, #[case] expected: &str) {
        let message = type_mismatches(name, &value)[0].to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn accepts_matching_values() {
        let pod = json!({"metadata": {"creationTimestamp": null, "labels": {"a": null}}, "spec": {
            "containers": [{"name": "c", "livenessProbe": {"httpGet": {"port": "http"}}, "resources": {"limits": {"cpu": 1}}}]}});
        assert_eq!(type_mismatches("core.v1.Pod", &pod), []);
        let mut members = pod.as_object().unwrap().clone();
        replace_null_strings("core.v1.Pod", &mut members);
        assert_eq!(members["metadata"]["labels"]["a"], "");
    }
}
