//! Conversion of metrics in the spec and in the status between `autoscaling/v1` and `autoscaling/v2`.

use apimachinery::{go_format_struct, object};
use serde_json::{Value, json};

use super::behavior::lower_first;

/// Fields of each metric source type, as pairs of the name in `autoscaling/v1` and the JSON pointer in
/// `autoscaling/v2`.
const SOURCES: &[(&str, &[(&str, &str)])] = &[
    (
        "object",
        &[
            ("target", "/describedObject"),
            ("metricName", "/metric/name"),
            ("targetValue", "/target/value"),
            ("selector", "/metric/selector"),
            ("averageValue", "/target/averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "/metric/name"),
            ("targetAverageValue", "/target/averageValue"),
            ("selector", "/metric/selector"),
        ],
    ),
    (
        "resource",
        &[
            ("name", "/name"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "/name"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
            ("container", "/container"),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "/metric/name"),
            ("metricSelector", "/metric/selector"),
            ("targetValue", "/target/value"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    ),
];

pub(super) fn to_v1(metric: &Value) -> String {
    format_v1(metric, |name, pointer| (name.to_owned(), pointer.to_owned()))
}

pub(super) fn current_to_v1(metric: &Value) -> String {
    format_v1(metric, |name, pointer| (current_name(name), pointer.replacen("/target/", "/current/", 1)))
}

pub(super) fn to_v2(metric: &Value) -> Value {
    let mut converted = parse_v1(metric, |name, pointer| (name.to_owned(), pointer.to_owned()));
    let source = object::text(metric, "/type").to_owned();
    let members = object::members(&mut converted);
    if let Some(target) = members.get_mut(&source_field(&source)).and_then(|source| source.get_mut("target")) {
        let has = |field: &str| target.get(field).is_some();
        let kind = match (has("averageUtilization"), has("averageValue")) {
            (true, _) => "Utilization",
            (false, true) => "AverageValue",
            (false, false) => "Value",
        };
        object::members(target).insert("type".to_owned(), json!(kind));
    }
    converted
}

pub(super) fn current_to_v2(metric: &Value) -> Value {
    parse_v1(metric, |name, pointer| (current_name(name), pointer.replacen("/target/", "/current/", 1)))
}

fn format_v1(metric: &Value, names: impl Fn(&str, &str) -> (String, String)) -> String {
    let kind = object::text(metric, "/type");
    let field = source_field(kind);
    let source = metric.get(&field).unwrap_or(&Value::Null);
    let source_fields = SOURCES.iter().find(|(name, _)| *name == field).map_or(&[][..], |(_, fields)| fields);
    let fields: Vec<(String, Value)> = source_fields
        .iter()
        .filter_map(|(name, pointer)| {
            let (name, pointer) = names(name, pointer);
            Some((name, source.pointer(&pointer).filter(|value| !value.is_null())?.clone()))
        })
        .collect();
    let fields: Vec<(&str, Value)> = fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    format!("{{\"type\":{},{field:?}:{}}}", json!(kind), go_format_struct(&fields))
}

fn parse_v1(metric: &Value, names: impl Fn(&str, &str) -> (String, String)) -> Value {
    let kind = object::text(metric, "/type");
    let field = source_field(kind);
    let source = metric.get(&field).unwrap_or(&Value::Null);
    let mut converted = json!({});
    for (name, pointer) in SOURCES.iter().find(|(name, _)| *name == field).map_or(&[][..], |(_, fields)| fields) {
        let (name, pointer) = names(name, pointer);
        if let Some(value) = source.get(&name).filter(|value| !value.is_null()) {
            object::set_at(&mut converted, &pointer, value.clone());
        }
    }
    let mut metric = json!({"type": kind});
    object::members(&mut metric).insert(field, converted);
    metric
}

/// Returns the status field that corresponds to a target field: `targetAverageValue` becomes `currentAverageValue`.
fn current_name(name: &str) -> String {
    match name.strip_prefix("target").filter(|rest| !rest.is_empty()) {
        Some(rest) => format!("current{rest}"),
        None => name.to_owned(),
    }
}

/// Returns the field name of a metric source type: `ContainerResource` becomes `containerResource`.
pub(crate) fn source_field(kind: &str) -> String {
    lower_first(kind)
}
