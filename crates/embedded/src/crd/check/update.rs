//! What of a definition may not change, or go, once it is there.

use apimachinery::status::Cause;
use serde_json::{Value, json};

use super::super::versions;
use crate::object;
use crate::workloads::condition;

/// What decides under which name objects are kept.
pub(super) fn immutable(current: &Value, definition: &Value, found: &mut Vec<Cause>) {
    let is_established = condition::is_true(current, "Established");
    for (pointer, always) in
        [("/spec/scope", false), ("/spec/names/kind", false), ("/spec/group", true), ("/spec/names/plural", true)]
    {
        let (before, after) = (current.pointer(pointer), definition.pointer(pointer));
        if before != after && (always || is_established) {
            let after = after.unwrap_or(&Value::Null);
            found.push(Cause::invalid(pointer[1..].replace('/', "."), after, "field is immutable"));
        }
    }
}

pub(super) fn stored(definition: &Value, found: &mut Vec<Cause>) {
    let before = object::strings(definition.pointer("/status/storedVersions"));
    let now = versions(definition).find(|version| version["storage"] == true).map(|one| object::text(one, "/name"));
    if before.is_empty() && now.is_none() {
        found.push(Cause::invalid("status.storedVersions", &Value::Null, "must have at least one stored version"));
    }
    for (index, old) in before.iter().enumerate() {
        if !versions(definition).any(|version| version["name"] == **old) {
            let hint = format!(
                "missing from spec.versions; {old} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {old} and removes {old} from status.storedVersions"
            );
            found.push(Cause::invalid(format!("status.storedVersions[{index}]"), &json!(old), &hint));
        }
    }
}
