//! Objects as the version of the resource that was asked for shows them.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::resources::Resource;
use crate::write::{default, prune};
use crate::{conversion, object};

/// Whether objects are shown as they are kept.
pub(crate) fn is_shown_as_kept(resource: &Resource) -> bool {
    resource.api_version() == resource.storage_api_version && !resource.has_defaults
}

/// The object as this version of the resource shows it; a default that came after the object shows too.
pub(crate) fn present(resource: &Resource, object: &Arc<Value>) -> Arc<Value> {
    if is_shown_as_kept(resource) {
        return Arc::clone(object);
    }
    let version = resource.api_version();
    if let Some(shown) = conversion::shown(resource, object) {
        return Arc::new(shown);
    }
    let mut shown = Value::clone(object);
    object::members(&mut shown).insert("apiVersion".to_owned(), json!(version));
    if version != resource.storage_api_version {
        prune::to_schema(resource, &mut shown);
    }
    default::fill(resource, &mut shown);
    Arc::new(shown)
}

/// As an item of a list: the items of typed lists do not repeat their kind.
pub(crate) fn listed(resource: &Resource, shown: &Value) -> Value {
    let mut item = shown.clone();
    if !resource.custom {
        let members = object::members(&mut item);
        members.remove("kind");
        members.remove("apiVersion");
    }
    item
}

/// Only the metadata.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
