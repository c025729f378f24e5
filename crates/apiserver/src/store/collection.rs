//! Collections of objects and pages of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::key::NamespacedName;
use super::stored_object::StoredObject;

/// The objects of a resource, sorted by name.
pub(crate) type Collection = BTreeMap<Arc<NamespacedName>, Arc<StoredObject>>;

/// All objects of a resource at one revision. The collection is shared rather than copied.
#[derive(Debug, Clone)]
pub(crate) struct CollectionSnapshot {
    /// Revision of the snapshot.
    pub(crate) revision: u64,
    /// The objects.
    pub(crate) objects: Arc<Collection>,
}

/// A consistent page of a list, sorted by name.
#[derive(Debug, Clone)]
pub(crate) struct ListPage {
    /// Revision of the list.
    pub(crate) revision: u64,
    /// The objects of the page.
    pub(crate) objects: Vec<(Arc<NamespacedName>, Arc<StoredObject>)>,
    /// Number of objects after this page.
    pub(crate) remaining: usize,
}
