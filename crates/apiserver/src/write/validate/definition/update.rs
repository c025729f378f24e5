//! Validation of updates to definitions: immutable fields and stored versions.

use apimachinery::{StatusCause, condition, object};
use serde_json::{Value, json};

use crate::resources::definition::versions;

/// Checks the fields that are immutable because they determine under which name custom resources are stored.
pub(super) fn immutable_causes(current: &Value, definition: &Value, causes: &mut Vec<StatusCause>) {
    let is_established = condition::is_true(current, "Established");
    for (pointer, is_always_immutable) in
        [("/spec/scope", false), ("/spec/names/kind", false), ("/spec/group", true), ("/spec/names/plural", true)]
    {
        let (before, after) = (current.pointer(pointer), definition.pointer(pointer));
        if before != after && (is_always_immutable || is_established) {
            let after = after.unwrap_or(&Value::Null);
            causes.push(StatusCause::invalid(pointer[1..].replace('/', "."), after, "field is immutable"));
        }
    }
}

pub(super) fn stored_version_causes(definition: &Value, causes: &mut Vec<StatusCause>) {
    let stored_versions = object::strings(definition.pointer("/status/storedVersions"));
    let storage_version =
        versions(definition).find(|version| version["storage"] == true).map(|version| object::text(version, "/name"));
    if stored_versions.is_empty() && storage_version.is_none() {
        causes.push(StatusCause::invalid(
            "status.storedVersions",
            &Value::Null,
            "must have at least one stored version",
        ));
    }
    for (index, old) in stored_versions.iter().enumerate() {
        if !versions(definition).any(|version| version["name"] == **old) {
            let hint = format!(
                "missing from spec.versions; {old} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {old} and removes {old} from status.storedVersions"
            );
            causes.push(StatusCause::invalid(format!("status.storedVersions[{index}]"), &json!(old), &hint));
        }
    }
}
