//! Whether a JSON value fits its Go type, said as Go's decoder says it of the first place that does not, in the order of
//! the document, and as server-side apply says it of all.

use apimachinery::go::{kind, plain};
use serde_json::{Map, Value};

use super::place::{Fields, Place};
use super::{Field, Shape, fields, held};

/// A value that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// `ObjectMeta`.
    strukt: String,
    /// `metadata.annotations`, without indices and keys of maps.
    field: String,
    /// `.metadata.annotations.k`, with them.
    pub(crate) place: String,
    wanted: String,
    found: Value,
}

/// Every place of a value of the type `name`, such as `apps.v1.Deployment`, that does not fit. Types that are not known
/// fit anything.
pub(crate) fn check(name: &str, value: &Value) -> Vec<Misfit> {
    let mut found = Vec::new();
    if let Some(all) = fields(name) {
        object(last(name), all, value, &Place::Top, &mut found);
    }
    found
}

/// Checks a part of an object that lies at `at`, as `metadata`.
pub(crate) fn check_part(name: &str, value: &Value, at: &str) -> Vec<Misfit> {
    let mut found = Vec::new();
    if let Some(all) = fields(name).filter(|_| !value.is_null()) {
        object(last(name), all, value, &Place::Member(&Place::Top, at), &mut found);
    }
    found
}

fn object(strukt: &str, all: &'static [Field], value: &Value, place: &Place<'_>, found: &mut Vec<Misfit>) {
    let Value::Object(members) = value else { return };
    for (member, value) in members {
        let Some((owner, field)) = find(strukt, all, member) else { continue };
        one(owner, field, value, &Place::Member(place, member), found);
    }
}

/// A field by its name, here or in an embedded type.
fn find<'a>(strukt: &'a str, all: &'static [Field], name: &str) -> Option<(&'a str, &'static Field)> {
    all.iter().find_map(|field| match field.name {
        "." => find(last(field.kind), fields(field.kind)?, name),
        own if own == name => Some((strukt, field)),
        _ => None,
    })
}

fn one(strukt: &str, field: &'static Field, value: &Value, place: &Place<'_>, found: &mut Vec<Misfit>) {
    let wanted = match (field.shape, value) {
        (_, Value::Null) => return,
        (Shape::One, value) => return single(strukt, field, value, place, found),
        (Shape::List, Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                single(strukt, field, item, &Place::Item(place, index), found);
            }
            return;
        }
        (Shape::Map, Value::Object(entries)) => {
            for (key, entry) in entries {
                single(strukt, field, entry, &Place::Entry(place, key), found);
            }
            return;
        }
        (Shape::List, _) => format!("[]{}", go(field.kind)),
        (Shape::Map, _) => format!("map[string]{}", go(field.kind)),
    };
    found.push(Misfit::new(strukt, place, wanted, value));
}

fn single(strukt: &str, field: &'static Field, value: &Value, place: &Place<'_>, found: &mut Vec<Misfit>) {
    let fits = match (field.kind, value) {
        (_, Value::Null) => true,
        ("string" | "bytes", value) => value.is_string(),
        ("int", value) => value.is_i64() || value.is_u64(),
        ("float", value) => value.is_number(),
        ("bool", value) => value.is_boolean(),
        ("util.intstr.IntOrString", value) => value.is_string() || value.is_number(),
        ("resource.Quantity", value) => value.is_string() || value.is_number(),
        ("meta.v1.MicroTime", Value::String(text)) => not_micro(text).is_none(),
        ("meta.v1.Time" | "meta.v1.MicroTime", value) => value.is_string(),
        (kind, Value::Object(_)) => {
            let kind = held(kind);
            if let Some(all) = fields(kind) {
                object(last(kind), all, value, place, found);
            }
            return;
        }
        (kind, _) => fields(kind).is_none(),
    };
    if !fits {
        found.push(Misfit::new(strukt, place, go(field.kind), value));
    }
}

/// `apps.v1.DeploymentSpec` → `DeploymentSpec`.
fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The name of a type in Go.
fn go(kind: &str) -> String {
    match kind {
        "int" => "int32".to_owned(),
        "float" => "float64".to_owned(),
        "bytes" => "[]uint8".to_owned(),
        other => match other.rsplit_once('.') {
            Some((package, name)) => format!("{}.{name}", last(package)),
            None => other.to_owned(),
        },
    }
}

// === impl Misfit ===

impl Misfit {
    fn new(strukt: &str, place: &Place<'_>, wanted: String, found: &Value) -> Self {
        let (field, place) = (Fields(place).to_string(), format!(".{place}"));
        Self { strukt: strukt.to_owned(), field, place, wanted, found: found.clone() }
    }

    /// Whether it is a text, as it should be, but says nothing.
    pub(crate) fn is_text(&self) -> bool {
        self.wanted == "v1.MicroTime" && self.found.is_string()
    }

    /// As server-side apply says it.
    pub(crate) fn untyped(&self) -> String {
        let (place, found) = (&self.place, &self.found);
        match self.wanted.as_str() {
            "string" => {
                let found = apimachinery::go::literal(found);
                format!("{place}: expected string, got &value.valueUnstructured{{Value:{found}}}")
            }
            "int32" | "float64" => format!("{place}: expected numeric (int or float), got {}", kind(found)),
            "bool" => format!("{place}: expected boolean, got &{{{}}}", plain(found)),
            list if list.starts_with("[]") => format!("{place}: expected list, got &{{{}}}", plain(found)),
            _ => format!("{place}: expected map, got &{{{}}}", plain(found)),
        }
    }
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let (Value::String(text), "v1.MicroTime") = (&self.found, self.wanted.as_str())
            && let Some(rest) = not_micro(text)
        {
            return write!(f, "parsing time {text:?} as {MICRO:?}: cannot parse {rest:?} as \".000000\"");
        }
        let found = match &self.found {
            Value::Number(number) if self.wanted == "int32" => format!("number {number}"),
            other => word(other).to_owned(),
        };
        let (strukt, field, wanted) = (&self.strukt, &self.field, &self.wanted);
        write!(f, "json: cannot unmarshal {found} into Go struct field {strukt}.{field} of type {wanted}")
    }
}

/// How Go writes the layout of times with microseconds.
const MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Of a time that lacks the six digits of its microseconds, what stands in their place. Other texts are left to the
/// schema.
fn not_micro(text: &str) -> Option<&str> {
    text.parse::<jiff::Timestamp>().ok()?;
    let rest = text.get("2006-01-02T15:04:05".len()..)?;
    let digits = rest.strip_prefix('.').map_or(0, |digits| digits.bytes().take_while(u8::is_ascii_digit).count());
    (digits != 6).then_some(rest)
}

fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What is null in a map of texts is the empty text.
pub(crate) fn fill_nulls(name: &str, members: &mut Map<String, Value>) {
    for field in fields(name).into_iter().flatten() {
        if field.name == "." {
            fill_nulls(field.kind, members);
            continue;
        }
        match (field.shape, members.get_mut(field.name)) {
            (Shape::Map, Some(Value::Object(entries))) if field.kind == "string" => {
                entries.values_mut().filter(|entry| entry.is_null()).for_each(|entry| *entry = Value::from(""));
            }
            (Shape::One, Some(Value::Object(inner))) => fill_nulls(held(field.kind), inner),
            (Shape::List, Some(Value::Array(items))) => {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| fill_nulls(held(field.kind), item));
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
    #[case("coordination.v1.Lease", json!({"spec": {"renewTime": "2026-01-01T00:00:00Z"}}), r#"parsing time "2026-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#)]
    #[case("coordination.v1.Lease", json!({"spec": {"renewTime": "2026-01-01T00:00:00.123Z"}}), r#"parsing time "2026-01-01T00:00:00.123Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".123Z" as ".000000""#)]
    fn the_first_misfit_is_told(#[case] name: &str, #[case] value: Value, #[case] expected: &str) {
        let told = check(name, &value)[0].to_string();
        assert!(told.contains(expected), "{told}");
    }

    #[test]
    fn what_fits_is_let_through() {
        let pod = json!({"metadata": {"creationTimestamp": null, "labels": {"a": null}}, "spec": {
            "containers": [{"name": "c", "livenessProbe": {"httpGet": {"port": "http"}}, "resources": {"limits": {"cpu": 1}}}]}});
        assert_eq!(check("core.v1.Pod", &pod), []);
        let mut members = pod.as_object().unwrap().clone();
        fill_nulls("core.v1.Pod", &mut members);
        assert_eq!(members["metadata"]["labels"]["a"], "");
    }
}
