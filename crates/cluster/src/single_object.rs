//! Reads and writes single objects that are neither owned nor cached.

use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::Value;

use crate::object::{kind_and_name, metadata_field};
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

/// Applies `object` with server-side apply. A `resourceVersion` in `object` must be the current one.
///
/// # Errors
/// The request failed or was rejected.
pub async fn apply_object(client: &Client, kind: Kind, object: &Value, manager: &str) -> Result<(), Error> {
    let api = kind.api(client.clone(), metadata_field(object, "namespace"));
    let params = PatchParams::apply(manager).force();
    let response = api.patch(metadata_field(object, "name"), &params, &Patch::Apply(object)).await;
    response.map(|_| ()).map_err(|source| request_error("apply", kind_and_name(object), source))
}

/// Creates `object`.
///
/// # Errors
/// The request failed or was rejected; a conflict if an object with this name exists.
pub async fn create_object(client: &Client, kind: Kind, object: &Value, manager: &str) -> Result<(), Error> {
    let api = kind.api(client.clone(), metadata_field(object, "namespace"));
    let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    let typed = serde_json::from_value(object.clone())
        .map_err(|source| request_error("create", kind_and_name(object), kube::Error::SerdeError(source)))?;
    api.create(&params, &typed)
        .await
        .map(|_| ())
        .map_err(|source| request_error("create", kind_and_name(object), source))
}

fn request_error(action: &'static str, object: String, source: kube::Error) -> Error {
    Error::Request { action, object, source: Box::new(source) }
}
