//! Applies and deletes objects that no other object owns. The caller decides whether an object may be modified.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::apply::{Applier, ApplyOutcome};
use crate::namespaced_name::NamespacedName;
use crate::object::{is_terminating, kind_and_name, metadata_field};
use crate::owner::ObjectOwner;
use crate::prune::PruneCandidate;
use crate::{Error, Kind};

// === impl Applier ===

impl Applier {
    /// Applies `object` over `live`, the version that the caller inspected, or creates it if `live` is `None`. An object
    /// that another client created or changed in the meantime is not modified.
    ///
    /// # Errors
    /// The request failed; a conflict if `live` changed. A rejection by the API server is an outcome.
    pub async fn apply_unowned(&self, kind: Kind, live: Option<&Value>, object: &Value) -> Result<ApplyOutcome, Error> {
        if let Some(outcome) = self.unlisted_outcome(kind) {
            return Ok(outcome);
        }
        if live.is_some_and(is_terminating) {
            return Ok(ApplyOutcome::Terminating);
        }
        if live.is_some_and(|live| self.is_up_to_date(live, object)) {
            return Ok(ApplyOutcome::Unchanged);
        }
        let mut body = object.clone();
        let mut params = PatchParams::apply(self.manager);
        if let Some(live) = live {
            params = params.force();
            body["metadata"]["resourceVersion"] = json!(metadata_field(live, "resourceVersion"));
        }
        let api = kind.api(self.client.clone(), metadata_field(object, "namespace"));
        let response = api.patch(metadata_field(object, "name"), &params, &Patch::Apply(&body)).await;
        let response = response.map_err(|source| Error::Request {
            action: "apply",
            object: kind_and_name(object),
            source: Box::new(source),
        });
        match response {
            Ok(applied) => {
                self.observe_response(kind, serde_json::to_value(applied).unwrap_or_default(), object);
                Ok(if live.is_some() { ApplyOutcome::Updated } else { ApplyOutcome::Created })
            }
            // Without force, a conflict means that another manager owns a field: the object was created concurrently.
            Err(error) if live.is_none() && error.is_conflict() => {
                Ok(ApplyOutcome::NotOwned(ObjectOwner::FieldManager))
            }
            Err(error) => error.rejection().map(|message| ApplyOutcome::Rejected(message.to_owned())).ok_or(error),
        }
    }

    /// Deletes `live` if it has not changed since the caller inspected it.
    ///
    /// # Errors
    /// The request failed; a conflict if `live` changed.
    pub async fn delete_unowned(&self, kind: Kind, live: &Value) -> Result<(), Error> {
        if is_terminating(live) {
            return Ok(());
        }
        let field = |name: &str| metadata_field(live, name).to_owned();
        let (uid, resource_version) = (field("uid"), field("resourceVersion"));
        let key = NamespacedName::from_object(live);
        self.delete(&PruneCandidate { kind, key, uid, resource_version, object: kind_and_name(live) }).await
    }
}
