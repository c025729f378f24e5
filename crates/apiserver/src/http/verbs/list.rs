//! GET of collections, with pagination.

use std::sync::Arc;

use apimachinery::Status;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::list_body::{self, ListItems};
use crate::http::path::RequestTarget;
use crate::http::request::ApiRequest;
use crate::http::response_format::ResponseFormat;
use crate::http::{representation, response};
use crate::server::Server;
use crate::store::{CollectionSnapshot, CompactedError, ListPage, NamespacedName, StoredObject};
use crate::table::Table;

/// Message for a continue token whose revision is compacted.
const CONTINUE_TOKEN_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Position of the next page.
struct ContinueToken {
    /// Revision of the first page; `None` for the latest state.
    revision: Option<u64>,
    after: NamespacedName,
}

pub(super) fn serve(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    if target.resource.create_only {
        return Err(Status::method_not_allowed());
    }
    let predicate = request.query.selection_predicate(&target.resource)?;
    request.format.check_applicable(&target.resource, true)?;
    request.query.check_list_options(server.store().revision())?;
    let limit = request.query.number::<i64>("limit")?.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let token = request.query.get("continue").map(ContinueToken::decode).transpose()?;
    if limit == usize::MAX && token.is_none() && predicate.selects_everything() && is_full_collection(target, request) {
        let CollectionSnapshot { revision, objects } = server.store().snapshot(&target.resource.storage);
        let items = ListItems::Collection(objects, None);
        return Ok(list_body::respond(&target.resource, items, &metadata(target, request, revision)));
    }
    // With selectors, filling a page may require examining every object.
    let page_size = if predicate.selects_everything() { limit } else { usize::MAX };
    let ListPage { revision, objects, remaining } = snapshot(server, target, request, (token.as_ref(), page_size))?;
    let is_selected = |stored: &StoredObject| {
        predicate.selects_everything()
            || predicate.matches(&representation::to_served_version(&target.resource, &stored.value()))
    };
    let mut selected = objects.into_iter().filter(|(_, stored)| is_selected(stored));
    let items: Vec<_> = selected.by_ref().take(limit).collect();
    let mut metadata = metadata(target, request, revision);
    if let Some((key, _)) = items.last()
        && (remaining > 0 || selected.next().is_some())
    {
        let token = ContinueToken { revision: Some(revision), after: NamespacedName::clone(key) };
        metadata["continue"] = json!(token.encode());
        if predicate.selects_everything() {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    let items: Vec<Arc<StoredObject>> = items.into_iter().map(|(_, stored)| stored).collect();
    list_response(server, target, request, items, metadata)
}

/// Reports whether the request is for all objects of a resource in their latest state and full format.
fn is_full_collection(target: &RequestTarget, request: &ApiRequest) -> bool {
    target.collection_key().namespace.is_none()
        && request.query.get("resourceVersionMatch") != Some("Exact")
        && request.format == ResponseFormat::Object
}

fn metadata(target: &RequestTarget, request: &ApiRequest, revision: u64) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if target.resource.custom && request.format == ResponseFormat::Object {
        metadata["continue"] = json!("");
    }
    metadata
}

fn list_response(
    server: &Server,
    target: &RequestTarget,
    request: &ApiRequest,
    items: Vec<Arc<StoredObject>>,
    metadata: Value,
) -> Result<Response, Status> {
    let resource = &target.resource;
    let include = request.query.include_object()?;
    let converted = || items.iter().map(|item| representation::to_served_version(resource, &item.value()));
    Ok(match request.format {
        ResponseFormat::Object => list_body::respond(resource, ListItems::Selected(items.into_iter()), &metadata),
        ResponseFormat::PartialObjectMetadata | ResponseFormat::PartialObjectMetadataList => {
            let items: Vec<Value> = converted().map(|item| representation::partial_object_metadata(&item)).collect();
            // Go encodes a nil slice as null.
            let items = if items.is_empty() { Value::Null } else { Value::from(items) };
            response::json_object(
                &json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}),
            )
        }
        ResponseFormat::Table => {
            let table = Table::new(resource, server.now()).with_include(include);
            response::json_object(&table.render(&converted().collect::<Vec<_>>(), metadata, true))
        }
    })
}

/// Returns a page of the latest revision, of the first page's revision, or of the requested revision.
fn snapshot(
    server: &Server,
    target: &RequestTarget,
    request: &ApiRequest,
    (token, page_size): (Option<&ContinueToken>, usize),
) -> Result<ListPage, Status> {
    let after = token.map(|token| &token.after);
    let exact_revision = match (token, request.query.get("resourceVersionMatch")) {
        (Some(token), _) => token.revision,
        (None, Some("Exact")) => request.query.number("resourceVersion")?,
        (None, _) => None,
    };
    server.store().list_page(&target.collection_key(), after, exact_revision, page_size).map_err(
        |CompactedError { .. }| match token {
            Some(token) => {
                let token = ContinueToken { revision: None, after: token.after.clone() };
                Status { continue_token: Some(token.encode()), ..Status::expired(CONTINUE_TOKEN_EXPIRED) }
            }
            None => Status::expired("The resourceVersion for the provided list is too old."),
        },
    )
}

// === impl ContinueToken ===

impl ContinueToken {
    fn encode(&self) -> String {
        let (namespace, name) = &self.after;
        URL_SAFE_NO_PAD.encode(json!([self.revision, namespace, name]).to_string())
    }

    fn decode(token: &str) -> Result<Self, Status> {
        let invalid = || Status::bad_request("invalid continue token: continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let (revision, namespace, name) = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        Ok(Self { revision, after: (namespace, name) })
    }
}
