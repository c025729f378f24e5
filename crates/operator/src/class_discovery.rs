//! Creates accelerator classes for the accelerators that node labels describe.

use cluster::{ApplyOutcome, Error, metadata_field};

use crate::context::Context;
use crate::kinds::{ACCELERATOR_CLASS, NODE};
use crate::managed_class::apply_class;

/// Creates the missing classes. Discovered classes are never deleted.
pub(crate) async fn reconcile_discovery(context: &Context) -> Result<(), Error> {
    if !context.discovery || !context.state.inventory.has_synced(&[ACCELERATOR_CLASS, NODE]) {
        return Ok(());
    }
    let existing = context.stores.list(ACCELERATOR_CLASS);
    let inventory = context.state.inventory.current();
    let discovered = decide::discover_classes(&inventory, existing.iter().map(AsRef::as_ref), &context.known_classes);
    drop(inventory);
    for class in discovered {
        if let ApplyOutcome::Rejected(error) = apply_class(context, &class).await? {
            let name = metadata_field(&class, "name");
            tracing::warn!(kind = ACCELERATOR_CLASS.kind, name, error, "failed to apply a discovered class");
        }
    }
    Ok(())
}
