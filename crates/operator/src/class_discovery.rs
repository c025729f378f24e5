//! Creates accelerator classes for the accelerators that node labels describe.

use cluster::{ApplyOutcome, Error, NamespacedName, metadata_field};
use serde_json::Value;

use crate::controller::Operator;
use crate::kinds::{ACCELERATOR_CLASS, NODE};

impl Operator {
    /// Creates the missing classes. Discovered classes are never deleted.
    pub(crate) async fn reconcile_discovery(&self) -> Result<(), Error> {
        if !self.discovery || !self.inventory.has_synced(&[ACCELERATOR_CLASS, NODE]) {
            return Ok(());
        }
        let existing = self.stores.list(ACCELERATOR_CLASS);
        let inventory = self.inventory.current();
        let discovered = decide::discover_classes(&inventory, existing.iter().map(AsRef::as_ref), &self.known_classes);
        drop(inventory);
        for class in discovered {
            if let ApplyOutcome::Rejected(error) = self.apply_class(&class).await? {
                let name = metadata_field(&class, "name");
                tracing::warn!(kind = ACCELERATOR_CLASS.kind, name, error, "failed to apply a discovered class");
            }
        }
        Ok(())
    }

    /// Applies a class that the operator manages. The caller has verified that an existing class is unmodified.
    pub(crate) async fn apply_class(&self, class: &Value) -> Result<ApplyOutcome, Error> {
        let live = self.stores.get(ACCELERATOR_CLASS, &NamespacedName::from_object(class));
        self.applier.apply_unowned(ACCELERATOR_CLASS, live.as_deref(), class).await
    }
}
