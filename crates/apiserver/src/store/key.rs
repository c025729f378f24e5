//! Keys of objects and collections.

/// Namespace (empty for cluster-scoped objects) and name; the sort order of lists.
pub(crate) type NamespacedName = (String, String);

/// The key of an object: the storage name of its resource (`deployments.apps`), its namespace and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    /// Storage name of the resource.
    pub(crate) resource: String,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
}

/// A collection: the storage name of a resource, in one namespace or in all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CollectionKey {
    /// Storage name of the resource.
    pub(crate) resource: String,
    /// `None` for all namespaces.
    pub(crate) namespace: Option<String>,
}

// === impl CollectionKey ===

impl CollectionKey {
    /// Whether the object belongs to the collection.
    pub(super) fn contains(&self, object: &ObjectKey) -> bool {
        self.resource == object.resource
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == object.namespace)
    }

    /// Returns the two collections that contain the object: its resource in one namespace, and in all namespaces.
    pub(super) fn containing(object: &ObjectKey) -> [Self; 2] {
        [None, Some(object.namespace.clone())].map(|namespace| Self { resource: object.resource.clone(), namespace })
    }
}
