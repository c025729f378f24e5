//! Classes for the accelerators that nodes say they have.

use cluster::object::meta;
use cluster::{Error, Key, Outcome};
use serde_json::Value;

use crate::Operator;
use crate::kinds::{CLASS, NODE};

impl Operator {
    /// Makes the classes that `decide` finds missing. None is ever removed.
    pub(crate) async fn reconcile_discovery(&self) -> Result<(), Error> {
        if !self.discovery || !self.accounts.complete(&[CLASS, NODE]) {
            return Ok(());
        }
        let existing = self.stores.list(CLASS);
        let wanted =
            decide::inventory::discover(&self.accounts.index(), existing.iter().map(AsRef::as_ref), &self.known);
        for class in wanted {
            let outcome = self.make_class(&class).await?;
            if let Outcome::Refused(reason) = outcome {
                tracing::warn!(class = meta(&class, "name"), reason, "a discovered class was refused");
            }
        }
        Ok(())
    }

    /// Applies a class that is ours to make: the caller has seen that what exists of that name is unedited.
    pub(crate) async fn make_class(&self, class: &Value) -> Result<Outcome, Error> {
        let live = self.stores.get(CLASS, &Key::of(class));
        self.applier.make(CLASS, live.as_deref(), class).await
    }
}
