//! Lists of what a store holds, now or as it was.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::state::State;
use super::{Compacted, Kept, Place, Scope, Snapshot, Whole};

impl State {
    /// All of a resource, uncopied.
    pub(super) fn whole(&self, resource: &str) -> Whole {
        Whole { revision: self.revision, objects: self.objects.get(resource).cloned().unwrap_or_default() }
    }

    /// In the order of places; so many.
    pub(super) fn list(&self, scope: &Scope, after: Option<&Place>, most: usize) -> Snapshot {
        let mut found = self.range(scope, after);
        let objects =
            found.by_ref().take(most).map(|(place, object)| (Arc::clone(place), Arc::clone(object))).collect();
        Snapshot { revision: self.revision, objects, rest: found.count() }
    }

    /// The same as it was at `revision`.
    pub(super) fn list_at(
        &self,
        scope: &Scope,
        after: Option<&Place>,
        revision: u64,
        most: usize,
    ) -> Result<Snapshot, Compacted> {
        self.reachable(revision)?;
        let since = self.history.iter().rev().take_while(|record| record.revision > revision);
        let mut changed: BTreeMap<Place, Option<&Arc<Kept>>> = BTreeMap::new();
        for record in since.filter(|record| scope.holds(record)) {
            let place = (record.key.namespace.clone(), record.key.name.clone());
            if after.is_none_or(|after| place > *after) {
                changed.insert(place, record.old.as_ref());
            }
        }
        if changed.is_empty() {
            return Ok(Snapshot { revision, ..self.list(scope, after, most) });
        }
        let same = self.range(scope, after).filter(|(place, _)| !changed.contains_key(place.as_ref()));
        let mut then: BTreeMap<Arc<Place>, &Arc<Kept>> =
            same.map(|(place, object)| (Arc::clone(place), object)).collect();
        let before = changed.iter().filter_map(|(place, object)| Some((Arc::new(place.clone()), (*object)?)));
        then.extend(before);
        let rest = then.len().saturating_sub(most);
        let objects = then.into_iter().take(most).map(|(place, object)| (place, Arc::clone(object))).collect();
        Ok(Snapshot { revision, objects, rest })
    }

    fn range<'a>(
        &'a self,
        scope: &'a Scope,
        after: Option<&Place>,
    ) -> impl Iterator<Item = (&'a Arc<Place>, &'a Arc<Kept>)> {
        let first = scope.namespace.as_ref().map(|namespace| (namespace.clone(), String::new()));
        let from = match (after, first) {
            (Some(after), first) if first.as_ref().is_none_or(|first| after >= first) => Bound::Excluded(after.clone()),
            (_, Some(first)) => Bound::Included(first),
            (_, None) => Bound::Unbounded,
        };
        let inside = |place: &Place| scope.namespace.as_ref().is_none_or(|namespace| *namespace == place.0);
        let objects = self.objects.get(&scope.resource).into_iter();
        objects
            .flat_map(move |objects| objects.range::<Place, _>((from.clone(), Bound::Unbounded)))
            .take_while(move |(place, _)| inside(place))
    }
}
