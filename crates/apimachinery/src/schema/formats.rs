//! The values of `format` that are validated; others are ignored.

use serde_json::Value;

/// Reports whether `value` conforms to `format`.
pub(super) fn matches_format(format: &str, value: &Value) -> bool {
    match (format, value) {
        ("int32", Value::Number(number)) => number.as_f64().is_some_and(|n| (n - n.clamp(INT32_MIN, INT32_MAX)) == 0.0),
        ("date-time", Value::String(text)) => text.parse::<jiff::Timestamp>().is_ok(),
        ("date", Value::String(text)) => text.parse::<jiff::civil::Date>().is_ok(),
        ("ipv4", Value::String(text)) => text.parse::<std::net::Ipv4Addr>().is_ok(),
        ("ipv6", Value::String(text)) => text.parse::<std::net::Ipv6Addr>().is_ok(),
        _ => true,
    }
}

const INT32_MIN: f64 = i32::MIN as f64;
const INT32_MAX: f64 = i32::MAX as f64;
