//! Events about runtimes, models and classes that have become invalid or valid again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::{Error, EventPolicy, Transition};

use crate::condition_reason::ConditionReason;
use crate::context::Context;
use crate::invalid_object::InvalidObject;
use crate::kinds::ACCELERATOR_CLASS;

/// Publishes events about invalid objects.
#[derive(Debug, Default)]
pub(crate) struct InvalidObjectReconciler {
    /// The objects that were invalid before.
    reported: Mutex<Vec<InvalidObject>>,
}

// === impl InvalidObjectReconciler ===

impl InvalidObjectReconciler {
    /// Publishes an event for every object that has become invalid or valid again. Invalid classes are reported in their
    /// conditions.
    ///
    /// # Errors
    /// An event could not be published; the next call publishes all of them again, which creates each event once.
    pub(crate) async fn reconcile(&self, context: &Context) -> Result<(), Error> {
        let new = context.selection_snapshot().0.invalid_objects.clone();
        let (old, mut result) = (self.reported().clone(), Ok(()));
        for (invalid_object, reason, message) in transitions(&old, &new) {
            if invalid_object.kind == ACCELERATOR_CLASS {
                continue;
            }
            if !invalid_object.kind.namespaced && !context.reports_cluster_scoped_objects {
                let (kind, name) = (invalid_object.kind.kind, &invalid_object.key.name);
                tracing::warn!(kind, name, reason = reason.as_str(), message);
                continue;
            }
            let Some(object) = context.stores.get(invalid_object.kind, &invalid_object.key) else { continue };
            let warning = reason.event_policy() == EventPolicy::Warning;
            let transition = Transition { warning, reason: reason.as_str().to_owned(), message };
            // A failed event must not prevent the others.
            result = result.and(context.event_publisher.publish_once(&object, "Read", &transition).await);
        }
        if result.is_ok() {
            *self.reported() = new;
        }
        result
    }

    fn reported(&self) -> MutexGuard<'_, Vec<InvalidObject>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the objects that are invalid for a new reason, then those that are valid again, with reason and message.
fn transitions<'a>(
    old: &'a [InvalidObject],
    new: &'a [InvalidObject],
) -> Vec<(&'a InvalidObject, ConditionReason, String)> {
    let is_valid = |old: &&InvalidObject| new.iter().all(|new| (new.kind, &new.key) != (old.kind, &old.key));
    let recovered = |object| {
        let message = "The object is valid again and takes part in selection".to_owned();
        (object, ConditionReason::Readable, message)
    };
    let invalid = new.iter().filter(|new| !old.contains(new));
    let invalid = invalid.map(|object| (object, ConditionReason::LeftOut, object.message()));
    invalid.chain(old.iter().filter(is_valid).map(recovered)).collect()
}
