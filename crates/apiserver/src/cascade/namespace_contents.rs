//! Deletes the contents of a namespace that is being deleted.

use apimachinery::object;
use serde_json::Value;

use super::consequence::Consequence;
use super::writes;
use crate::core::Core;
use crate::deletion::PropagationPolicy;
use crate::store::ObjectKey;
use crate::write::Committed;

/// Deletes the object after `after` and continues with the next one, so that a large namespace needs no list in memory.
pub(super) fn delete_next(core: &Core, namespace: String, after: Option<&ObjectKey>) -> Vec<Consequence> {
    let Some((key, object)) = core.store.next_in_namespace(&namespace, after) else {
        return vec![Consequence::FinalizeNamespace { name: namespace }];
    };
    let (resource, propagation) = (key.resource.clone(), PropagationPolicy::Background);
    vec![
        Consequence::Delete { resource, object, propagation },
        Consequence::DeleteNamespaceContents { namespace, after: Some(key) },
    ]
}

/// Removes the finalizer of a terminating namespace if the namespace is empty.
pub(super) fn finalize_if_empty(core: &Core, namespace: &str) -> Option<Committed> {
    let terminating = core.get("namespaces", "", namespace)?;
    if !object::is_deleting(&terminating) || !core.store.is_namespace_empty(namespace) {
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
