//! JSON values as Go's `fmt` shows them: messages of the API server quote what a client sent in this form.

use serde_json::{Number, Value};

/// `%v`: `text`, `7`, `[a b]`, `map[k:v]`.
#[must_use]
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let members: Vec<String> = members.iter().map(|(name, value)| format!("{name}:{}", plain(value))).collect();
            format!("map[{}]", members.join(" "))
        }
        Value::Number(number) => self::number(number),
        Value::Bool(value) => value.to_string(),
    }
}

/// A whole number has no fraction, however it was written.
fn number(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(number) => number.to_string(),
        None => number.to_string(),
    }
}

/// `%#v`: `"text"`, `7`, `[]interface {}{"a"}`, `map[string]interface {}{"k":"v"}`.
#[must_use]
pub fn literal(value: &Value) -> String {
    let all = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => format!("[]interface {{}}{{{}}}", all(items.iter().map(literal).collect())),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{:?}:{}", name, literal(value))).collect();
            format!("map[string]interface {{}}{{{}}}", all(members))
        }
        Value::Number(number) => self::number(number),
        Value::Bool(_) | Value::String(_) => value.to_string(),
    }
}

/// A struct as JSON: its fields come in their own order.
#[must_use]
pub fn record(fields: &[(&str, Value)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// `%T` of a decoded value: `string`, `int64`, `[]interface {}`.
#[must_use]
pub fn kind(value: &Value) -> &'static str {
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
    fn values_are_shown_as_go_shows_them(
        #[case] value: Value,
        #[case] simple: &str,
        #[case] quoted: &str,
        #[case] name: &str,
    ) {
        assert_eq!((plain(&value).as_str(), literal(&value).as_str(), kind(&value)), (simple, quoted, name));
    }
}
