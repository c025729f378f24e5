//! Conversion of the scaling behavior, which `autoscaling/v1` stores in an annotation as JSON with the capitalized
//! field names of the Go structs.

use apimachinery::go_format_struct;
use serde_json::{Map, Value};

use super::annotation::{items_of, join_array};

/// Converts the value of the annotation to the field `behavior` of `autoscaling/v2`.
pub(super) fn from_annotation(behavior: &Value) -> Value {
    rename_members(behavior, lower_first)
}

/// Converts the field `behavior` of `autoscaling/v2` to the value of the annotation.
pub(super) fn to_annotation(behavior: &Value) -> String {
    let rules = |name: &str| match behavior.get(name) {
        Some(rules) if !rules.is_null() => format_rules(rules),
        _ => "null".to_owned(),
    };
    format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"))
}

fn format_rules(rules: &Value) -> String {
    let field_of = |value: &Value, field: &str| value.get(field).cloned().unwrap_or_default();
    let policies = items_of(rules.get("policies").cloned());
    let policies = join_array(policies.iter().map(|policy| {
        let fields = [("Type", "type"), ("Value", "value"), ("PeriodSeconds", "periodSeconds")];
        go_format_struct(&fields.map(|(name, field)| (name, field_of(policy, field))))
    }));
    format!(
        "{{\"StabilizationWindowSeconds\":{},\"SelectPolicy\":{},\"Policies\":{policies},\"Tolerance\":{}}}",
        field_of(rules, "stabilizationWindowSeconds"),
        field_of(rules, "selectPolicy"),
        field_of(rules, "tolerance")
    )
}

/// Renames object members and removes null members, recursively.
fn rename_members(value: &Value, rename: impl Fn(&str) -> String + Copy) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                members.map(|(key, value)| (rename(key), rename_members(value, rename))).collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => items.iter().map(|item| rename_members(item, rename)).collect(),
        other => other.clone(),
    }
}

/// Converts the first letter to lower case: `ScaleUp` becomes `scaleUp`.
pub(super) fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
