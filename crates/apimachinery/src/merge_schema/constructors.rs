//! Constructors of merge schemas, named after the markers of the Kubernetes API types.

use serde_json::Value;

use super::node::{ListMapKey, MergeSchema, MergeStrategy, PatchStrategy};

pub(super) fn object<const N: usize>(fields: [(&str, MergeSchema); N]) -> MergeSchema {
    let fields = fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
    MergeSchema { fields, ..MergeSchema::default() }
}

pub(super) fn deduced() -> MergeSchema {
    MergeSchema::default()
}

pub(super) fn map_of(value: MergeSchema) -> MergeSchema {
    MergeSchema { additional: Some(Box::new(value)), ..MergeSchema::default() }
}

/// Atomic for server-side apply; strategic merge patch still merges objects.
pub(super) fn atomic() -> MergeSchema {
    MergeSchema { merge: MergeStrategy::Atomic, ..MergeSchema::default() }
}

pub(super) fn set() -> MergeSchema {
    list(MergeStrategy::Set, PatchStrategy::MergePrimitives, deduced())
}

/// A list of objects; strategic merge patch merges it by the first key.
pub(super) fn map_by(keys: &[&str], item: MergeSchema) -> MergeSchema {
    let patch = keys.first().map_or(PatchStrategy::Default, |first| PatchStrategy::MergeBy((*first).to_owned()));
    list(MergeStrategy::Map(keys.iter().map(|name| key(name)).collect()), patch, item)
}

/// A list that is atomic for server-side apply and merges by `key` in strategic merge patch.
pub(super) fn patch_merge_by(key: &str) -> MergeSchema {
    list(MergeStrategy::Atomic, PatchStrategy::MergeBy(key.to_owned()), deduced())
}

pub(super) fn list(merge: MergeStrategy, patch: PatchStrategy, item: MergeSchema) -> MergeSchema {
    MergeSchema { merge, patch, items: Some(Box::new(item)), ..MergeSchema::default() }
}

pub(super) fn key(name: &str) -> ListMapKey {
    ListMapKey { name: name.to_owned(), default: None }
}

pub(super) fn key_with_default(name: &str, default: &str) -> ListMapKey {
    ListMapKey { name: name.to_owned(), default: Some(Value::from(default)) }
}
