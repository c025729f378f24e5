//! Single objects that nobody owns and no store follows: read and written by name.

use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::Value;

use crate::object::{describe, meta};
use crate::{Error, Kind};

/// The object as it is, if it is.
///
/// # Errors
/// The failed request.
pub async fn read(client: &Client, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
    let what = || format!("{} {namespace}/{name}", kind.kind);
    let found =
        kind.api(client.clone(), namespace).get_opt(name).await.map_err(|source| failed("read", what(), source))?;
    Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default()))
}

/// Makes the fields of `object` so, by server-side apply. A `resourceVersion` in it must be the current one.
///
/// # Errors
/// The refused request.
pub async fn apply(client: &Client, kind: Kind, object: &Value, manager: &str) -> Result<(), Error> {
    let api = kind.api(client.clone(), meta(object, "namespace"));
    let sent = api.patch(meta(object, "name"), &PatchParams::apply(manager).force(), &Patch::Apply(object)).await;
    sent.map(|_| ()).map_err(|source| failed("apply", describe(object), source))
}

/// Creates an object; one of its name is a conflict.
///
/// # Errors
/// The refused request.
pub async fn create(client: &Client, kind: Kind, object: &Value, manager: &str) -> Result<(), Error> {
    let api = kind.api(client.clone(), meta(object, "namespace"));
    let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    let object_in = serde_json::from_value(object.clone());
    let typed = object_in.map_err(|source| failed("create", describe(object), kube::Error::SerdeError(source)))?;
    api.create(&params, &typed).await.map(|_| ()).map_err(|source| failed("create", describe(object), source))
}

fn failed(action: &'static str, what: String, source: kube::Error) -> Error {
    Error::Request { action, what, source: Box::new(source) }
}
