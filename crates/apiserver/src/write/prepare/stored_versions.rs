//! Storage versions of custom resource definitions.

use apimachinery::object;
use serde_json::{Value, json};

use crate::resources::{Resource, definition};

/// Adds the storage version of a custom resource definition to `status.storedVersions`.
pub(in crate::write) fn record_storage_version(resource: &Resource, object: &mut Value) {
    if resource.storage != definition::STORAGE {
        return;
    }
    let storage_version =
        definition::versions(object).find(|version| version["storage"] == true).map(|version| version["name"].clone());
    let status = object::members(
        object::members(object)
            .entry("status")
            .or_insert_with(|| json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null})),
    );
    let versions = status.entry("storedVersions").or_insert(Value::Null);
    if versions.is_null() {
        *versions = json!([]);
    }
    if let (Some(stored_versions), Some(storage_version)) = (versions.as_array_mut(), storage_version)
        && !stored_versions.contains(&storage_version)
    {
        stored_versions.push(storage_version);
    }
}
