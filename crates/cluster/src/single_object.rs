//! Reads and writes objects that are neither owned nor cached.

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::Value;

use crate::object::{kind_and_name, metadata_field};
use crate::owner::other_owner;
use crate::precondition::with_precondition;
use crate::{Error, Kind};

/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;

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

/// Returns the objects of a kind that `is_relevant` selects, in `namespace` or, if it is empty, in all. One page of the list is in
/// memory at a time.
///
/// # Errors
/// A request failed.
pub async fn list_objects(
    client: &Client,
    kind: Kind,
    namespace: &str,
    is_relevant: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>, Error> {
    let api: Api<DynamicObject> = match namespace {
        "" => Api::all_with(client.clone(), &kind.api_resource()),
        _ => kind.api(client.clone(), namespace),
    };
    let (mut objects, mut parameters) = (Vec::new(), ListParams::default().limit(PAGE_SIZE));
    loop {
        let page = api.list(&parameters).await;
        let page = page.map_err(|source| request_error("list", kind.plural.to_owned(), source))?;
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        let values = page.items.into_iter().filter_map(|object| serde_json::to_value(object).ok());
        objects.extend(values.filter(&is_relevant));
        let Some(token) = next else { return Ok(objects) };
        parameters = parameters.continue_token(&token);
    }
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
