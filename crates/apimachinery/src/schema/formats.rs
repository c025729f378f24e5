//! The `format`s that are checked; the others are documentation.

use serde_json::Value;

pub(super) fn holds(format: &str, value: &Value) -> bool {
    match (format, value) {
        ("int32", Value::Number(number)) => number.as_f64().is_some_and(|n| (n - n.clamp(MIN, MAX)) == 0.0),
        ("date-time", Value::String(text)) => text.parse::<jiff::Timestamp>().is_ok(),
        ("date", Value::String(text)) => text.parse::<jiff::civil::Date>().is_ok(),
        ("ipv4", Value::String(text)) => text.parse::<std::net::Ipv4Addr>().is_ok(),
        ("ipv6", Value::String(text)) => text.parse::<std::net::Ipv6Addr>().is_ok(),
        _ => true,
    }
}

const MIN: f64 = i32::MIN as f64;
const MAX: f64 = i32::MAX as f64;
