//! Applies and deletes objects that no other object owns.

use serde_json::Value;

use crate::apply::{Applier, ApplyOutcome};
use crate::namespaced_name::NamespacedName;
use crate::object::{is_terminating, kind_and_name, metadata_field};
use crate::owner::{ObjectOwner, is_recorded_as_managed_by, other_owner};
use crate::prune::PruneCandidate;
use crate::{Error, Kind};

// === impl Applier ===

impl Applier {
    /// Creates `object`, or applies it over an existing object that this field manager applied before and whose content
    /// `is_own`. Any other object is not modified.
    ///
    /// # Errors
    /// The request failed; a conflict if other clients keep changing the object. A rejection by the API server is an
    /// outcome.
    pub async fn apply_unowned(
        &self,
        kind: Kind,
        object: &Value,
        is_own: impl Fn(&Value) -> bool,
    ) -> Result<ApplyOutcome, Error> {
        let edited = |live: &Value| (!is_own(live)).then_some(ObjectOwner::FieldManager);
        let other_owner = |live: &Value| other_owner(live, None, self.manager).or_else(|| edited(live));
        match self.apply_unless_owned(kind, object, other_owner).await {
            Err(error) => error.rejection().map(|message| ApplyOutcome::Rejected(message.to_owned())).ok_or(error),
            outcome => outcome,
        }
    }

    /// Deletes `live` if this field manager applied it, its identity is recorded, and it has not changed since the caller
    /// inspected it.
    ///
    /// # Errors
    /// The request failed; a conflict if `live` changed.
    pub async fn delete_unowned(&self, kind: Kind, live: &Value) -> Result<(), Error> {
        if is_terminating(live)
            || other_owner(live, None, self.manager).is_some()
            || !is_recorded_as_managed_by(live, self.manager)
        {
            return Ok(());
        }
        let field = |name: &str| metadata_field(live, name).to_owned();
        let (uid, resource_version) = (field("uid"), field("resourceVersion"));
        let key = NamespacedName::from_object(live);
        self.delete(&PruneCandidate { kind, key, uid, resource_version, object: kind_and_name(live) }).await
    }
}
