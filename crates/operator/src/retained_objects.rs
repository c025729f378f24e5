//! Reports obsolete objects that the operator does not delete, because an earlier release created them or they are copies.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::{Error, IDENTITY_ANNOTATION, Kind, NamespacedName, Transition};
use serde_json::Value;

use crate::condition_reason::ConditionReason;
use crate::event_publisher::EventPublisher;

/// Maximum number of objects that are not reported again; each needs at most about 1 KiB.
const CAPACITY: usize = 1024;

/// The retained objects that were reported.
#[derive(Debug, Default)]
pub(crate) struct RetainedObjects(Mutex<BTreeSet<(Kind, NamespacedName)>>);

// === impl RetainedObjects ===

impl RetainedObjects {
    /// Logs those of `objects` that were not reported before, and publishes an event on their service for each of them.
    ///
    /// # Errors
    /// An event could not be published; the next call publishes it again.
    pub(crate) async fn report(
        &self,
        objects: &[(Kind, NamespacedName)],
        service: &Value,
        publisher: &EventPublisher,
    ) -> Result<(), Error> {
        for object in self.unreported(objects) {
            let reason = ConditionReason::ObsoleteObject.as_str().to_owned();
            let event = Transition { warning: true, reason, message: message(object.0, &object.1) };
            publisher.publish_once(service, "Prune", &event).await?;
            tracing::warn!("{}", event.message);
            self.add(object);
        }
        Ok(())
    }

    fn unreported(&self, objects: &[(Kind, NamespacedName)]) -> Vec<(Kind, NamespacedName)> {
        let reported = self.reported();
        objects.iter().filter(|object| !reported.contains(object)).cloned().collect()
    }

    fn add(&self, object: (Kind, NamespacedName)) {
        let mut reported = self.reported();
        if reported.len() >= CAPACITY {
            reported.clear();
        }
        reported.insert(object);
    }

    fn reported(&self) -> MutexGuard<'_, BTreeSet<(Kind, NamespacedName)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns why the object is retained, and how to delete it.
fn message(kind: Kind, key: &NamespacedName) -> String {
    format!(
        "{} {key} is obsolete, but has no annotation {IDENTITY_ANNOTATION}: an earlier release created it, or it is a copy; it \
         was not deleted. Unless you need it, run `kubectl delete {} {} -n {}`",
        kind.kind,
        kind.group_resource(),
        key.name,
        key.namespace
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::DEPLOYMENT;

    #[test]
    fn each_object_is_reported_once_with_a_remedy() {
        let (retained, object) =
            (RetainedObjects::default(), (DEPLOYMENT, NamespacedName::new("n", "chat-engine-old")));
        assert_eq!(retained.unreported(std::slice::from_ref(&object)), std::slice::from_ref(&object));
        retained.add(object.clone());
        assert_eq!(retained.unreported(std::slice::from_ref(&object)), []);
        let message = message(object.0, &object.1);
        assert!(message.starts_with("Deployment n/chat-engine-old is obsolete"), "{message}");
        assert!(message.ends_with("run `kubectl delete deployments.apps chat-engine-old -n n`"), "{message}");
    }
}
