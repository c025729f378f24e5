//! Lists of the current objects and of earlier revisions.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::state::State;
use super::{CollectionKey, CollectionSnapshot, CompactedError, ListPage, NamespacedName, ObjectKey, StoredObject};

impl State {
    /// Returns all objects of a resource without copying them.
    pub(super) fn snapshot(&self, resource: &str) -> CollectionSnapshot {
        CollectionSnapshot { revision: self.revision, objects: self.objects.get(resource).cloned().unwrap_or_default() }
    }

    /// Returns at most `limit` objects whose name sorts after `after`, sorted by name.
    pub(super) fn list(&self, collection: &CollectionKey, after: Option<&NamespacedName>, limit: usize) -> ListPage {
        let mut objects = self.objects_after(collection, after);
        let page = objects.by_ref().take(limit).map(|(key, object)| (Arc::clone(key), Arc::clone(object))).collect();
        ListPage { revision: self.revision, objects: page, remaining: objects.count() }
    }

    /// Returns the list as it was at `revision`.
    pub(super) fn list_at(
        &self,
        collection: &CollectionKey,
        after: Option<&NamespacedName>,
        revision: u64,
        limit: usize,
    ) -> Result<ListPage, CompactedError> {
        self.check_revision(revision)?;
        let newer_events = self.history.iter().rev().take_while(|event| event.revision > revision);
        let mut changed: BTreeMap<NamespacedName, Option<&Arc<StoredObject>>> = BTreeMap::new();
        for event in newer_events.filter(|event| collection.contains(&event.key)) {
            let key = (event.key.namespace.clone(), event.key.name.clone());
            if after.is_none_or(|after| key > *after) {
                changed.insert(key, event.old.as_ref());
            }
        }
        if changed.is_empty() {
            return Ok(ListPage { revision, ..self.list(collection, after, limit) });
        }
        let unchanged = self.objects_after(collection, after).filter(|(key, _)| !changed.contains_key(key.as_ref()));
        let mut objects_at_revision: BTreeMap<Arc<NamespacedName>, &Arc<StoredObject>> =
            unchanged.map(|(key, object)| (Arc::clone(key), object)).collect();
        let restored_objects = changed.iter().filter_map(|(key, object)| Some((Arc::new(key.clone()), (*object)?)));
        objects_at_revision.extend(restored_objects);
        let remaining = objects_at_revision.len().saturating_sub(limit);
        let objects =
            objects_at_revision.into_iter().take(limit).map(|(key, object)| (key, Arc::clone(object))).collect();
        Ok(ListPage { revision, objects, remaining })
    }

    /// Returns the first object of a collection whose name sorts after `after`.
    pub(super) fn next_object<'a>(
        &'a self,
        collection: &'a CollectionKey,
        after: Option<&NamespacedName>,
    ) -> Option<(&'a Arc<NamespacedName>, &'a Arc<StoredObject>)> {
        self.objects_after(collection, after).next()
    }

    /// Returns the first object of a namespace that sorts after `after`, by resource and name.
    pub(super) fn next_in_namespace(
        &self,
        namespace: &str,
        after: Option<&ObjectKey>,
    ) -> Option<(ObjectKey, &Arc<StoredObject>)> {
        let first_resource = after.map_or(Bound::Unbounded, |after| Bound::Included(after.resource.as_str()));
        self.objects.range::<str, _>((first_resource, Bound::Unbounded)).find_map(|(resource, objects)| {
            let start = match after.filter(|after| after.resource == *resource) {
                Some(after) => Bound::Excluded((namespace.to_owned(), after.name.clone())),
                None => Bound::Included((namespace.to_owned(), String::new())),
            };
            let (key, object) = objects.range::<NamespacedName, _>((start, Bound::Unbounded)).next()?;
            let (object_namespace, name) = NamespacedName::clone(key);
            let key = ObjectKey { resource: resource.clone(), namespace: object_namespace, name };
            (key.namespace == namespace).then_some((key, object))
        })
    }

    /// Returns the objects of a collection after `after`.
    fn objects_after<'a>(
        &'a self,
        collection: &'a CollectionKey,
        after: Option<&NamespacedName>,
    ) -> impl Iterator<Item = (&'a Arc<NamespacedName>, &'a Arc<StoredObject>)> {
        let first_key = collection.namespace.as_ref().map(|namespace| (namespace.clone(), String::new()));
        let start = match (after, first_key) {
            (Some(after), first_key) if first_key.as_ref().is_none_or(|first_key| after >= first_key) => {
                Bound::Excluded(after.clone())
            }
            (_, Some(first_key)) => Bound::Included(first_key),
            (_, None) => Bound::Unbounded,
        };
        let is_in_namespace =
            |key: &NamespacedName| collection.namespace.as_ref().is_none_or(|namespace| *namespace == key.0);
        let objects = self.objects.get(&collection.resource).into_iter();
        objects
            .flat_map(move |objects| objects.range::<NamespacedName, _>((start.clone(), Bound::Unbounded)))
            .take_while(move |(key, _)| is_in_namespace(key))
    }
}
