//! Objects that we make but that no other object owns: whether one is ours to touch is for the caller to know.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::apply::{Applier, Outcome};
use crate::object::{describe, meta, terminating};
use crate::prune::Doomed;
use crate::stores::Key;
use crate::{Error, Kind};

// === impl Applier ===

impl Applier {
    /// Makes `object` be as given, in place of `live`: the version that the caller has looked at, or `None` if there
    /// was none. What somebody else made or changed meanwhile is not touched.
    ///
    /// # Errors
    /// The request that failed, a conflict if `live` has changed. What the server refuses is an outcome.
    pub async fn make(&self, kind: Kind, live: Option<&Value>, object: &Value) -> Result<Outcome, Error> {
        if !self.stores.synced(kind) {
            return Ok(Outcome::KindMissing);
        }
        if live.is_some_and(terminating) {
            return Ok(Outcome::Terminating);
        }
        if live.is_some_and(|live| self.holds(live, object)) {
            return Ok(Outcome::Unchanged);
        }
        let mut body = object.clone();
        let mut params = PatchParams::apply(self.manager);
        if let Some(live) = live {
            params = params.force();
            body["metadata"]["resourceVersion"] = json!(meta(live, "resourceVersion"));
        }
        let api = kind.api(self.client.clone(), meta(object, "namespace"));
        let sent = api.patch(meta(object, "name"), &params, &Patch::Apply(&body)).await;
        let sent =
            sent.map_err(|source| Error::Request { action: "apply", what: describe(object), source: Box::new(source) });
        match sent {
            Ok(answer) => {
                self.heard(kind, serde_json::to_value(answer).unwrap_or_default(), object);
                Ok(if live.is_some() { Outcome::Updated } else { Outcome::Created })
            }
            // Without force a conflict says that another manager holds a field: somebody was faster.
            Err(error) if live.is_none() && error.is_conflict() => Ok(Outcome::Foreign("somebody else".to_owned())),
            Err(error) => error.refusal().map(|reason| Outcome::Refused(reason.to_owned())).ok_or(error),
        }
    }

    /// Deletes `live`, provided that it is still as the caller has looked at it.
    ///
    /// # Errors
    /// The request that failed, a conflict if `live` has changed.
    pub async fn unmake(&self, kind: Kind, live: &Value) -> Result<(), Error> {
        if terminating(live) {
            return Ok(());
        }
        let text = |field: &str| meta(live, field).to_owned();
        let (uid, resource_version) = (text("uid"), text("resourceVersion"));
        self.delete(&Doomed { kind, key: Key::of(live), uid, resource_version, what: describe(live) }).await
    }
}
