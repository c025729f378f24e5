//! Namespace and name of an object.

use std::fmt;

use serde_json::Value;

use crate::object::metadata_field;

/// Namespace and name of an object; the namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespacedName {
    /// Namespace, or an empty string.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl NamespacedName {
    /// Returns the namespace and name of `object`.
    #[must_use]
    pub fn from_object(object: &Value) -> NamespacedName {
        NamespacedName::new(metadata_field(object, "namespace"), metadata_field(object, "name"))
    }

    /// Returns a name in `namespace`, which is empty for cluster-scoped objects.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> NamespacedName {
        NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// `namespace/name`, or the name alone for cluster-scoped objects.
impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}
