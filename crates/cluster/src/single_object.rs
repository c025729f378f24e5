//! Reads and writes single objects that are neither owned nor cached.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use crate::object::{kind_and_name, metadata_field};
use crate::owner::other_owner;
use crate::precondition::with_precondition;
use crate::{Error, Kind};

/// Returns the object, or `None` if it does not exist.
///
/// # Errors
/// The request failed.
pub async fn read_object(client: &Client, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
    let object = || format!("{} {namespace}/{name}", kind.kind);
    let found = kind
        .api(client.clone(), namespace)
        .get_opt(name)
        .await
        .map_err(|source| request_error("read", object(), source))?;
    Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default()))
}

/// Creates `object`, or applies it over an existing object that `manager` applied before. A `resourceVersion` in `object`
/// must be the current one.
///
/// # Errors
/// The request failed or was rejected; [`Error::NotOwned`] if another client created the object, which is not modified; a
/// conflict if the object changes concurrently.
pub async fn apply_object(client: &Client, kind: Kind, object: &Value, manager: &str) -> Result<(), Error> {
    let (namespace, name) = (metadata_field(object, "namespace"), metadata_field(object, "name"));
    let live = read_object(client, kind, namespace, name).await?;
    if live.as_ref().is_some_and(|live| other_owner(live, None, manager).is_some()) {
        return Err(Error::NotOwned { object: kind_and_name(object) });
    }
    let mut body = with_precondition(object, live.as_ref());
    if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
        body["metadata"]["resourceVersion"] = version.into();
    }
    let params = PatchParams::apply(manager);
    apply(client, kind, &body, &if live.is_some() { params.force() } else { params }).await
}

/// Creates `object`.
///
/// # Errors
/// The request failed or was rejected; a conflict if an object with this name exists.
pub async fn create_object(client: &Client, kind: Kind, object: &Value, manager: &str) -> Result<(), Error> {
    apply(client, kind, &with_precondition(object, None), &PatchParams::apply(manager)).await
}

async fn apply(client: &Client, kind: Kind, body: &Value, params: &PatchParams) -> Result<(), Error> {
    let api = kind.api(client.clone(), metadata_field(body, "namespace"));
    let response = api.patch(metadata_field(body, "name"), params, &Patch::Apply(body)).await;
    response.map(|_| ()).map_err(|source| request_error("apply", kind_and_name(body), source))
}

fn request_error(action: &'static str, object: String, source: kube::Error) -> Error {
    Error::Request { action, object, source: Box::new(source) }
}
