//! Fields that are a number or a percentage (`IntOrString`).

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, reason = "numbers of users enter every computation"))]

use serde_json::Value;

/// Returns a number, or a percentage of `total`; 25 % when absent (`GetScaledValueFromIntOrPercent`).
pub fn scaled_int_or_percent(value: Option<&Value>, total: i64, round_up: bool) -> i64 {
    if let Some(count) = value.and_then(Value::as_i64) {
        return count;
    }
    let percent = value.and_then(Value::as_str).unwrap_or("25%");
    let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or(25);
    let hundredths = percent.saturating_mul(total);
    if round_up { hundredths.saturating_add(99) / 100 } else { hundredths / 100 }
}
