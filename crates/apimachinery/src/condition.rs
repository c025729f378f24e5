//! `status.conditions`: a list by type; `lastTransitionTime` changes only with `status`.

use serde_json::{Map, Value, json};

use crate::object;

/// A status condition to set.
#[derive(Debug, Clone, Copy)]
pub struct Condition<'a> {
    /// `type`.
    pub type_: &'a str,
    /// `status`: `True` or `False`.
    pub status: bool,
    /// `reason`; omitted if empty.
    pub reason: &'a str,
    /// `message`; omitted if empty.
    pub message: &'a str,
}

/// Returns the condition of a type from a `status`.
pub fn find<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    status.get("conditions")?.as_array()?.iter().find(|c| object::text(c, "/type") == type_)
}

/// Whether a condition of an object is `True`.
pub fn is_true(object: &Value, type_: &str) -> bool {
    object
        .get("status")
        .and_then(|status| find(status, type_))
        .is_some_and(|condition| object::text(condition, "/status") == "True")
}

/// Sets a condition in `status`. An existing condition keeps its position in the list, and keeps `lastTransitionTime`
/// if its status is unchanged. An empty reason or message is omitted.
pub fn set(status: &mut Value, condition: Condition<'_>, now: &str) {
    let status_text = if condition.status { "True" } else { "False" };
    let transition_time = find(status, condition.type_)
        .filter(|old| object::text(old, "/status") == status_text)
        .map_or(now, |old| object::text(old, "/lastTransitionTime"))
        .to_owned();
    let mut entry = Map::new();
    entry.insert("type".to_owned(), json!(condition.type_));
    entry.insert("status".to_owned(), json!(status_text));
    entry.insert("lastTransitionTime".to_owned(), json!(transition_time));
    if !condition.reason.is_empty() {
        entry.insert("reason".to_owned(), json!(condition.reason));
    }
    if !condition.message.is_empty() {
        entry.insert("message".to_owned(), json!(condition.message));
    }
    upsert(status, condition.type_, Value::Object(entry));
}

/// Replaces the condition of this type, or appends it.
pub fn upsert(status: &mut Value, type_: &str, entry: Value) {
    let conditions = object::members(status).entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = conditions.as_array_mut() else {
        *conditions = json!([entry]);
        return;
    };
    match list.iter_mut().find(|c| object::text(c, "/type") == type_) {
        Some(slot) => *slot = entry,
        None => list.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_changes_only_with_status() {
        let mut status = json!({});
        let ready = |status, reason| Condition { type_: "Ready", status, reason, message: "" };
        set(&mut status, ready(false, "A"), "1");
        set(&mut status, ready(false, "B"), "2");
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "1");
        assert_eq!(status["conditions"][0]["reason"], "B");
        set(&mut status, ready(true, ""), "3");
        assert_eq!(status, json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "3"}]}));
    }
}
