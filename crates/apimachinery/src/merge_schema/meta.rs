//! Merge schemas of the types in `meta/v1` that all kinds share.

use super::constructors::{atomic, deduced, map_by, map_of, object, set};
use super::node::{MergeSchema, PatchStrategy};

/// `ObjectMeta`.
pub(super) fn metadata() -> MergeSchema {
    object([
        ("labels", map_of(deduced())),
        ("annotations", map_of(deduced())),
        ("finalizers", set()),
        ("ownerReferences", {
            let mut owners = map_by(&["uid"], atomic());
            owners.patch = PatchStrategy::MergeBy("uid".into());
            owners
        }),
    ])
}

/// A list of conditions.
pub(super) fn conditions() -> MergeSchema {
    map_by(&["type"], deduced())
}
