//! Writes the status subresource with server-side apply, only if it changed.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::declared_fields::{read_schema, remove_undeclared};
use crate::managed_fields::is_status_applied;
use crate::object::{kind_and_name, metadata_field};
use crate::precondition::with_precondition;
use crate::stores::Stores;
use crate::{Error, Kind};

/// Writes statuses with one field manager.
#[derive(Clone)]
pub struct StatusWriter {
    client: Client,
    stores: Stores,
    manager: &'static str,
}

// === impl StatusWriter ===

impl StatusWriter {
    /// Returns a writer with the field manager `manager`.
    #[must_use]
    pub fn new(client: Client, stores: Stores, manager: &'static str) -> StatusWriter {
        StatusWriter { client, stores, manager }
    }

    /// Returns whether [`Self::publish`] would send no request.
    #[must_use]
    pub fn is_published(&self, kind: Kind, live: &Value, status: &Value) -> bool {
        is_status_applied(live, &apply_configuration(kind, live, status), self.manager)
    }

    /// Applies `status` to the status of `live`; fields of other managers remain. Returns whether a request changed the
    /// object. A deleted object is not an error.
    ///
    /// # Errors
    /// The request failed or was rejected; a conflict if `live` is outdated or the object was recreated.
    /// [`Error::UndeclaredFields`] if the installed definition lacks fields of `status`; the other fields are written.
    pub async fn publish(&self, kind: Kind, live: &Value, status: &Value) -> Result<bool, Error> {
        match self.apply(kind, live, status).await {
            Err(error) if error.may_reject_fields() => Err(self.apply_declared(kind, live, status, error).await),
            result => result,
        }
    }

    async fn apply(&self, kind: Kind, live: &Value, status: &Value) -> Result<bool, Error> {
        let desired = apply_configuration(kind, live, status);
        if is_status_applied(live, &desired, self.manager) {
            return Ok(false);
        }
        let api = kind.api(self.client.clone(), metadata_field(live, "namespace"));
        let params = PatchParams::apply(self.manager).force();
        let response = api.patch_status(metadata_field(live, "name"), &params, &Patch::Apply(&desired)).await;
        match response.map_err(|source| Error::Request {
            action: "update the status of",
            object: kind_and_name(live),
            source: Box::new(source),
        }) {
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
            Ok(applied) => {
                self.stores.observe_write(kind, serde_json::to_value(applied).unwrap_or_default());
                Ok(true)
            }
        }
    }

    /// Applies the fields of `status` that the installed definition declares, and returns the error to report. If it declares
    /// all fields, this is `rejection`.
    async fn apply_declared(&self, kind: Kind, live: &Value, status: &Value, rejection: Error) -> Error {
        let Ok(Some(schema)) = read_schema(&self.client, kind).await else { return rejection };
        let mut declared = status.clone();
        let fields = remove_undeclared(&mut declared, &schema["properties"]["status"], "status");
        if fields.is_empty() {
            return rejection;
        }
        match self.apply(kind, live, &declared).await {
            Ok(_) => Error::UndeclaredFields { object: kind_and_name(live), fields },
            Err(error) => error,
        }
    }
}

/// Returns the apply configuration with the version of `live` as a precondition, since the status follows from this version.
/// For custom resources, kube-apiserver ignores a UID in a status.
fn apply_configuration(kind: Kind, live: &Value, status: &Value) -> Value {
    let mut metadata = json!({"name": metadata_field(live, "name")});
    if kind.namespaced {
        metadata["namespace"] = metadata_field(live, "namespace").into();
    }
    let configuration =
        json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "status": status});
    with_precondition(&configuration, Some(live))
}
