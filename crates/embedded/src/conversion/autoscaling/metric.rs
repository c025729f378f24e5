//! Metrics of an autoscaler, wanted and measured, in both versions.

use apimachinery::go;
use serde_json::{Value, json};

use super::behavior::lower;
use crate::object;

/// How the sources of metrics name their fields: in `autoscaling/v1`, and where the same is in `autoscaling/v2`.
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
    written(metric, |name, place| (name.to_owned(), place.to_owned()))
}

pub(super) fn current_to_v1(metric: &Value) -> String {
    written(metric, |name, place| (measured(name), place.replacen("/target/", "/current/", 1)))
}

pub(super) fn to_v2(metric: &Value) -> Value {
    let mut made = read(metric, |name, place| (name.to_owned(), place.to_owned()));
    let source = object::text(metric, "/type").to_owned();
    let members = object::members(&mut made);
    if let Some(target) = members.get_mut(&source_field(&source)).and_then(|source| source.get_mut("target")) {
        let has = |field: &str| target.get(field).is_some();
        let kind = match (has("averageUtilization"), has("averageValue")) {
            (true, _) => "Utilization",
            (false, true) => "AverageValue",
            (false, false) => "Value",
        };
        object::members(target).insert("type".to_owned(), json!(kind));
    }
    made
}

pub(super) fn current_to_v2(metric: &Value) -> Value {
    read(metric, |name, place| (measured(name), place.replacen("/target/", "/current/", 1)))
}

fn written(metric: &Value, names: impl Fn(&str, &str) -> (String, String)) -> String {
    let kind = object::text(metric, "/type");
    let field = source_field(kind);
    let source = metric.get(&field).unwrap_or(&Value::Null);
    let known = SOURCES.iter().find(|(name, _)| *name == field).map_or(&[][..], |(_, fields)| fields);
    let fields: Vec<(String, Value)> = known
        .iter()
        .filter_map(|(name, place)| {
            let (name, place) = names(name, place);
            Some((name, source.pointer(&place).filter(|value| !value.is_null())?.clone()))
        })
        .collect();
    let fields: Vec<(&str, Value)> = fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    format!("{{\"type\":{},{field:?}:{}}}", json!(kind), go::record(&fields))
}

fn read(metric: &Value, names: impl Fn(&str, &str) -> (String, String)) -> Value {
    let kind = object::text(metric, "/type");
    let field = source_field(kind);
    let source = metric.get(&field).unwrap_or(&Value::Null);
    let mut made = json!({});
    for (name, place) in SOURCES.iter().find(|(name, _)| *name == field).map_or(&[][..], |(_, fields)| fields) {
        let (name, place) = names(name, place);
        if let Some(value) = source.get(&name).filter(|value| !value.is_null()) {
            object::put(&mut made, &place, value.clone());
        }
    }
    let mut metric = json!({"type": kind});
    object::members(&mut metric).insert(field, made);
    metric
}

/// The same of what was measured: `targetAverageValue` is `currentAverageValue` there.
fn measured(name: &str) -> String {
    match name.strip_prefix("target").filter(|rest| !rest.is_empty()) {
        Some(rest) => format!("current{rest}"),
        None => name.to_owned(),
    }
}

/// `ContainerResource` is the field `containerResource`.
pub(crate) fn source_field(kind: &str) -> String {
    lower(kind)
}
