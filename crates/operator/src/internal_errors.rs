//! Events about panics on the services concerned.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::{Error, Kind, NamespacedName, Stores, Transition};

use crate::condition_reason::ConditionReason;
use crate::event_publisher::EventPublisher;

/// Messages about panics that have no event yet, by service. A service has at most one, because its work is retried.
#[derive(Debug, Default)]
pub(crate) struct InternalErrors(Mutex<BTreeMap<(Kind, NamespacedName), String>>);

// === impl InternalErrors ===

impl InternalErrors {
    /// Adds a panic, whose event [`Self::publish`] creates.
    pub(crate) fn add(&self, kind: Kind, key: &NamespacedName, message: String) {
        self.unpublished().insert((kind, key.clone()), message);
    }

    /// Publishes the event about the last panic of a service, once for the same message and spec.
    ///
    /// # Errors
    /// The event could not be published; the next call publishes it again.
    pub(crate) async fn publish(
        &self,
        kind: Kind,
        key: &NamespacedName,
        stores: &Stores,
        publisher: &EventPublisher,
    ) -> Result<(), Error> {
        let entry = (kind, key.clone());
        let message = self.unpublished().get(&entry).cloned();
        if let (Some(service), Some(message)) = (stores.get(kind, key), message) {
            let reason = ConditionReason::InternalError.as_str().to_owned();
            publisher.publish_once(&service, "Reconcile", &Transition { warning: true, reason, message }).await?;
        }
        self.unpublished().remove(&entry);
        Ok(())
    }

    fn unpublished(&self) -> MutexGuard<'_, BTreeMap<(Kind, NamespacedName), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
