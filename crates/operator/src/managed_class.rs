//! Accelerator classes that the operator creates: discovered ones, those of the base set, and those of ResourceFlavors.

use cluster::{ApplyOutcome, Error, is_managed_by};
use decide::{Provenance, is_unmodified, provenance};
use serde_json::Value;

use crate::FIELD_MANAGER;
use crate::context::Context;
use crate::kinds::ACCELERATOR_CLASS;

/// Applies a class that the operator generated. A class that a user created or edited, or that has another origin, is not
/// modified.
pub(crate) async fn apply_class(context: &Context, class: &Value) -> Result<ApplyOutcome, Error> {
    let origin = provenance(class);
    let is_own = |live: &Value| provenance(live) == origin && is_unmodified(live);
    context.applier.apply_unowned(ACCELERATOR_CLASS, class, is_own).await
}

/// Returns whether the operator generated the class or flavor from `origin` and no user edited it. A user's copy has the same
/// annotations, but another field manager.
pub(crate) fn is_generated_from(object: &Value, origin: &Provenance) -> bool {
    is_managed_by(object, FIELD_MANAGER) && provenance(object).as_ref() == Some(origin) && is_unmodified(object)
}
