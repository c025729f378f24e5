//! Defaults of Namespaces.

use serde_json::{Value, json};

use apimachinery::object::{self, set_default, spec};

/// Adds the finalizer and the name label of a Namespace.
pub(in crate::write) fn namespace_defaults(object: &mut Value) {
    let name = object::name(object).to_owned();
    // A terminating Namespace must not get the finalizer back, because namespace deletion removes it. A new Namespace
    // gets the finalizer only after its UID is set, when field managers are already recorded, so that no manager owns
    // the field.
    if !object::is_deleting(object) && !object::uid(object).is_empty() {
        set_default(spec(object), "finalizers", json!(["kubernetes"]));
    }
    let labels = object::members(object::metadata(object).entry("labels").or_insert_with(|| json!({})));
    labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
}
