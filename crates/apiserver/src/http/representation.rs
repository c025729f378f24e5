//! Converts stored objects to the requested version.

use std::sync::Arc;

use apimachinery::object;
use serde_json::{Value, json};

use crate::conversion;
use crate::resources::Resource;
use crate::write::{default, prune};

/// Reports whether objects are served exactly as stored.
pub(crate) fn is_stored_representation(resource: &Resource) -> bool {
    resource.api_version() == resource.storage_api_version && !resource.has_defaults
}

/// Converts a stored object to the version of `resource` and applies defaults that were added after it was stored.
pub(crate) fn to_served_version(resource: &Resource, object: &Arc<Value>) -> Arc<Value> {
    if is_stored_representation(resource) {
        return Arc::clone(object);
    }
    let version = resource.api_version();
    if let Some(converted) = conversion::from_storage(resource, object) {
        return Arc::new(converted);
    }
    let mut converted = Value::clone(object);
    object::members(&mut converted).insert("apiVersion".to_owned(), json!(version));
    if version != resource.storage_api_version {
        prune::prune_to_schema(resource, &mut converted);
    }
    default::apply_defaults(resource, &mut converted);
    Arc::new(converted)
}

/// Returns an object as a list item: items of built-in lists have neither `apiVersion` nor `kind`.
pub(crate) fn list_item(resource: &Resource, converted: &Value) -> Value {
    let mut item = converted.clone();
    if !resource.custom {
        let members = object::members(&mut item);
        members.remove("kind");
        members.remove("apiVersion");
    }
    item
}

/// Returns the PartialObjectMetadata of an object.
pub(crate) fn partial_object_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
