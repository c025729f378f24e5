//! `status.conditions`: a list by type whose transition time moves only when the status does.

use serde_json::{Map, Value, json};

use crate::object;

/// One condition to hold from now on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: bool,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// The condition of a type, in a `status`.
pub(crate) fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status.get("conditions")?.as_array()?.iter().find(|c| object::text(c, "/type") == kind)
}

/// Whether a whole object's condition is `True`.
pub(crate) fn is_true(object: &Value, kind: &str) -> bool {
    object
        .get("status")
        .and_then(|status| find(status, kind))
        .is_some_and(|condition| object::text(condition, "/status") == "True")
}

/// Writes a condition into `status`, keeping its place and, where the status did not change, its transition time.
/// Empty reason and message are left out.
pub(crate) fn set(status: &mut Value, condition: Condition<'_>, now: &str) {
    let word = if condition.status { "True" } else { "False" };
    let since = find(status, condition.kind)
        .filter(|old| object::text(old, "/status") == word)
        .map_or(now, |old| object::text(old, "/lastTransitionTime"))
        .to_owned();
    let mut entry = Map::new();
    entry.insert("type".to_owned(), json!(condition.kind));
    entry.insert("status".to_owned(), json!(word));
    entry.insert("lastTransitionTime".to_owned(), json!(since));
    if !condition.reason.is_empty() {
        entry.insert("reason".to_owned(), json!(condition.reason));
    }
    if !condition.message.is_empty() {
        entry.insert("message".to_owned(), json!(condition.message));
    }
    put(status, condition.kind, Value::Object(entry));
}

/// Puts a ready-made condition in the place of the one with its type, or at the end.
pub(crate) fn put(status: &mut Value, kind: &str, entry: Value) {
    let conditions = object::members(status).entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = conditions.as_array_mut() else {
        *conditions = json!([entry]);
        return;
    };
    match list.iter_mut().find(|c| object::text(c, "/type") == kind) {
        Some(slot) => *slot = entry,
        None => list.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut status = json!({});
        let ready = |status, reason| Condition { kind: "Ready", status, reason, message: "" };
        set(&mut status, ready(false, "A"), "1");
        set(&mut status, ready(false, "B"), "2");
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "1");
        assert_eq!(status["conditions"][0]["reason"], "B");
        set(&mut status, ready(true, ""), "3");
        assert_eq!(status, json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "3"}]}));
    }
}
