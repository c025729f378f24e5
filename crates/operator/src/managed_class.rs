//! Accelerator classes that the operator creates: discovered ones, those of the base set, and those of ResourceFlavors.

use cluster::{ApplyOutcome, Error, NamespacedName};
use serde_json::Value;

use crate::context::Context;
use crate::kinds::ACCELERATOR_CLASS;

/// Applies a class that the operator manages. The caller has verified that an existing class is unmodified.
pub(crate) async fn apply_class(context: &Context, class: &Value) -> Result<ApplyOutcome, Error> {
    let live = context.stores.get(ACCELERATOR_CLASS, &NamespacedName::from_object(class));
    context.applier.apply_unowned(ACCELERATOR_CLASS, live.as_deref(), class).await
}
