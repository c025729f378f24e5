//! Fields of custom resource definitions.

use apimachinery::condition;
use serde_json::Value;

use crate::store::ObjectKey;

/// Name under which custom resource definitions are stored.
pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Finalizer that retains a definition until its custom resources are deleted.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Returns the store key of a definition.
pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey { resource: STORAGE.to_owned(), namespace: String::new(), name: name.to_owned() }
}

/// Reports whether two names are those of different definitions in one API group. The name of a definition is `PLURAL.GROUP`.
pub(crate) fn is_in_same_group(left: &str, right: &str) -> bool {
    fn group(name: &str) -> Option<&str> {
        name.split_once('.').map(|(_, group)| group)
    }
    left != right && group(left) == group(right)
}

/// Reports whether the resources of the definition are served.
pub(crate) fn is_established(definition: &Value) -> bool {
    condition::is_true(definition, "Established")
}

/// Returns the versions of the definition.
pub(crate) fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}
