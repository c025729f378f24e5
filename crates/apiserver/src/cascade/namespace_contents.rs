//! Deletes the contents of a namespace that is being deleted.

use apimachinery::object;
use serde_json::Value;

use super::consequence::Consequence;
use super::writes;
use crate::core::Core;
use crate::deletion::PropagationPolicy;
use crate::store::ObjectKey;
use crate::write::Committed;

/// Deletes all objects of the namespace.
pub(super) fn delete_contents(core: &Core, namespace: String) -> Vec<Consequence> {
    let propagation = PropagationPolicy::Background;
    let contents = core.store.list_namespace(&namespace).into_iter();
    let mut consequences: Vec<Consequence> =
        contents.map(|(key, object)| Consequence::Delete { resource: key.resource, object, propagation }).collect();
    consequences.push(Consequence::FinalizeNamespace { name: namespace });
    consequences
}

/// Removes the finalizer of a terminating namespace if the namespace is empty.
pub(super) fn finalize_if_empty(core: &Core, namespace: &str) -> Option<Committed> {
    let terminating = core.get("namespaces", "", namespace)?;
    if !object::is_deleting(&terminating) || !core.store.list_namespace(namespace).is_empty() {
        return None;
    }
    let key = ObjectKey { resource: "namespaces".into(), namespace: String::new(), name: namespace.into() };
    let is_target = |object: &Value| object::uid(object) == object::uid(&terminating);
    writes::update(core, &key, is_target, |object| {
        if let Some(spec) = object.get_mut("spec") {
            object::members(spec).remove("finalizers");
        }
    })
}
