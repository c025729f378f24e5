//! Writes a status, only if it says something new.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::managed::status_already_applied;
use crate::object::{describe, meta};
use crate::stores::Stores;
use crate::{Error, Kind};

/// The one writer of statuses.
#[derive(Clone)]
pub struct StatusWriter {
    client: Client,
    stores: Stores,
    manager: &'static str,
}

// === impl StatusWriter ===

impl StatusWriter {
    /// A writer under the field manager `manager`.
    #[must_use]
    pub fn new(client: Client, stores: Stores, manager: &'static str) -> StatusWriter {
        StatusWriter { client, stores, manager }
    }

    /// Makes our part of `live`'s status be `status`; fields that other managers report stay. Returns whether a
    /// request was sent. An object that is gone needs no status.
    ///
    /// # Errors
    /// The refused request.
    pub async fn publish(&self, kind: Kind, live: &Value, status: &Value) -> Result<bool, Error> {
        let desired = applied(kind, live, status);
        if status_already_applied(live, &desired, self.manager) {
            return Ok(false);
        }
        let api = kind.api(self.client.clone(), meta(live, "namespace"));
        let params = PatchParams::apply(self.manager).force();
        let sent = api.patch_status(meta(live, "name"), &params, &Patch::Apply(&desired)).await;
        match sent.map_err(|source| Error::Request {
            action: "status of",
            what: describe(live),
            source: Box::new(source),
        }) {
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
            Ok(answer) => {
                self.stores.observe(kind, serde_json::to_value(answer).unwrap_or_default());
                Ok(true)
            }
        }
    }
}

/// The body: the UID pins it to this incarnation (a successor of the same name answers 409).
fn applied(kind: Kind, live: &Value, status: &Value) -> Value {
    let mut metadata = json!({"name": meta(live, "name"), "uid": meta(live, "uid")});
    if kind.namespaced {
        metadata["namespace"] = meta(live, "namespace").into();
    }
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "status": status})
}
