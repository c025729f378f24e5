//! Objects with arbitrary values instead of numbers, quantities and times.

use proptest::prelude::*;
use serde_json::{Value, json};

/// Times that a time is replaced with: the limits of `jiff`, the limits of RFC 3339, and invalid ones.
const TIMES: &[&str] = &[
    "2026-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "9999-12-30T22:00:00Z",
    "9999-12-31T23:59:59Z",
    "-009999-01-02T01:59:59Z",
    "1970-01-01T00:00:00.000000Z",
    "yesterday",
    "",
];

/// Strings that a quantity, a percentage or a number in a label is replaced with.
const QUANTITIES: &[&str] = &[
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999999999999999999999999999999",
    "1E1000",
    "-1E1000",
    "1n",
    "101%",
    "-50%",
    "9223372036854775807%",
    "99999999999999999999%",
    "text",
    "",
];

/// Returns the paths of the numbers, quantities and times in an object.
fn number_paths(value: &Value, path: &str, paths: &mut Vec<String>) {
    const FIXED: [&str; 3] = ["/apiVersion", "/kind", "/resource"];
    let is_time = |text: &str| text.len() > 18 && text.as_bytes()[4] == b'-';
    let is_quantity = |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains('.');
    match value {
        Value::Number(_) => paths.push(path.to_owned()),
        Value::String(text) if !FIXED.contains(&path) && (is_time(text) || is_quantity(text)) => {
            paths.push(path.to_owned());
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| number_paths(item, &format!("{path}/{index}"), paths));
        }
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            number_paths(member, &format!("{path}/{name}"), paths);
        }),
        _ => {}
    }
}

/// An arbitrary value instead of a number, a quantity or a time.
fn replacement() -> impl Strategy<Value = Value> {
    let limits = [i64::MIN, i64::MAX, i64::from(i32::MIN), i64::from(i32::MAX), i64::from(u32::MAX), -1, 0, 1];
    prop_oneof![
        6 => prop::sample::select(limits.to_vec()).prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => Just(json!(999_999_999_999_i64)),
        1 => Just(json!(u64::MAX)),
        1 => prop::sample::select(vec![1.5, -1.5, 1e308, -1e308, 1e18]).prop_map(Value::from),
        4 => prop::sample::select(QUANTITIES).prop_map(Value::from),
        4 => prop::sample::select(TIMES).prop_map(Value::from),
        1 => prop::sample::select(vec![json!(null), json!(true), json!([]), json!({})]),
    ]
}

/// Returns the objects with one in `share` of their numbers, quantities and times replaced.
pub(super) fn mutated(objects: Vec<Value>, share: u32) -> impl Strategy<Value = Vec<Value>> {
    let mut paths = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let mut own = Vec::new();
        number_paths(object, "", &mut own);
        paths.extend(own.into_iter().map(|path| (index, path)));
    }
    let replacements = prop::collection::vec((0..share, replacement()), paths.len());
    replacements.prop_map(move |replacements| {
        let mut objects = objects.clone();
        for ((index, path), (chance, value)) in paths.iter().zip(replacements) {
            if chance == 0 {
                *objects[*index].pointer_mut(path).unwrap() = value;
            }
        }
        objects
    })
}
