//! The rules of scaling of an autoscaler, as Go's own structs of them are written in an annotation.

use apimachinery::go;
use serde_json::{Map, Value};

use super::{array, list};

/// From the annotation.
pub(super) fn read(behavior: &Value) -> Value {
    renamed(behavior, lower)
}

/// As it stands in the annotation.
pub(super) fn text(behavior: &Value) -> String {
    let rules = |name: &str| match behavior.get(name) {
        Some(rules) if !rules.is_null() => rules_text(rules),
        _ => "null".to_owned(),
    };
    format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"))
}

fn rules_text(rules: &Value) -> String {
    let of = |value: &Value, field: &str| value.get(field).cloned().unwrap_or_default();
    let policies = list(rules.get("policies").cloned());
    let policies = array(policies.iter().map(|policy| {
        let fields = [("Type", "type"), ("Value", "value"), ("PeriodSeconds", "periodSeconds")];
        go::record(&fields.map(|(shown, field)| (shown, of(policy, field))))
    }));
    format!(
        "{{\"StabilizationWindowSeconds\":{},\"SelectPolicy\":{},\"Policies\":{policies},\"Tolerance\":{}}}",
        of(rules, "stabilizationWindowSeconds"),
        of(rules, "selectPolicy"),
        of(rules, "tolerance")
    )
}

/// With other names of members, and without nulls.
fn renamed(value: &Value, name: impl Fn(&str) -> String + Copy) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(members.map(|(key, value)| (name(key), renamed(value, name))).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| renamed(item, name)).collect(),
        other => other.clone(),
    }
}

/// `ScaleUp` is `scaleUp`.
pub(super) fn lower(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
