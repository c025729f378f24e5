//! JSON values in the format of Go's `fmt` package, which API server messages use to quote client input.

use serde_json::{Number, Value};

/// Formats `value` with Go's `%v`: `text`, `7`, `[a b]`, `map[k:v]`.
#[must_use]
pub fn go_format_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_format_value).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_format_value(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Number(number) => format_number(number),
        Value::Bool(value) => value.to_string(),
    }
}

/// Formats integral floats without a fraction.
fn format_number(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(number) => number.to_string(),
        None => number.to_string(),
    }
}

/// Formats `value` with Go's `%#v`: `"text"`, `7`, `[]interface {}{"a"}`, `map[string]interface {}{"k":"v"}`.
#[must_use]
pub fn go_format_syntax(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => format!("[]interface {{}}{{{}}}", joined(items.iter().map(go_format_syntax).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{:?}:{}", name, go_format_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", joined(fields))
        }
        Value::Number(number) => format_number(number),
        Value::Bool(_) | Value::String(_) => value.to_string(),
    }
}

/// Formats a Go struct as JSON, with the fields in the given order.
#[must_use]
pub fn go_format_struct(fields: &[(&str, Value)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// Returns the Go type (`%T`) of a decoded JSON value: `string`, `int64`, `[]interface {}`.
#[must_use]
pub fn go_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!("text"), "text", r#""text""#, "string")]
    #[case(json!([1, "a"]), "[1 a]", r#"[]interface {}{1, "a"}"#, "[]interface {}")]
    #[case(json!({"any": "thing"}), "map[any:thing]", r#"map[string]interface {}{"any":"thing"}"#, "map[string]interface {}")]
    #[case(json!(1000.0), "1000", "1000", "float64")]
    #[case(json!(true), "true", "true", "bool")]
    fn formats_values_as_go_does(
        #[case] value: Value,
        #[case] value_format: &str,
        #[case] syntax_format: &str,
        #[case] type_name: &str,
    ) {
        assert_eq!(
            (go_format_value(&value).as_str(), go_format_syntax(&value).as_str(), go_type_name(&value)),
            (value_format, syntax_format, type_name)
        );
    }
}
