//! Logs obsolete objects that the operator does not delete, because an earlier release created them or they are copies.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use cluster::{IDENTITY_ANNOTATION, Kind, NamespacedName};

/// Maximum number of objects of which the log message is not repeated; each needs at most about 1 KiB.
const CAPACITY: usize = 1024;

/// The retained objects that were logged.
#[derive(Debug, Default)]
pub(crate) struct RetainedObjects(Mutex<BTreeSet<(Kind, NamespacedName)>>);

// === impl RetainedObjects ===

impl RetainedObjects {
    /// Logs those of `objects` that were not logged before.
    pub(crate) fn log(&self, objects: &[(Kind, NamespacedName)]) {
        for (kind, key) in self.added(objects) {
            tracing::warn!("{}", message(kind, &key));
        }
    }

    /// Adds `objects`, and returns the new ones.
    fn added(&self, objects: &[(Kind, NamespacedName)]) -> Vec<(Kind, NamespacedName)> {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() + objects.len() > CAPACITY {
            logged.clear();
        }
        objects.iter().filter(|object| logged.insert((*object).clone())).cloned().collect()
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
    fn each_object_is_logged_once_with_a_remedy() {
        let (retained, object) =
            (RetainedObjects::default(), (DEPLOYMENT, NamespacedName::new("n", "chat-engine-old")));
        assert_eq!(retained.added(std::slice::from_ref(&object)), std::slice::from_ref(&object));
        assert_eq!(retained.added(std::slice::from_ref(&object)), []);
        let message = message(object.0, &object.1);
        assert!(message.starts_with("Deployment n/chat-engine-old is obsolete"), "{message}");
        assert!(message.ends_with("run `kubectl delete deployments.apps chat-engine-old -n n`"), "{message}");
    }
}
