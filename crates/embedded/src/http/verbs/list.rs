//! GET of collections, page by page.

use std::sync::Arc;

use apimachinery::status::Status;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::listing::{self, Items};
use crate::http::call::Call;
use crate::http::path::Target;
use crate::http::shape::Shape;
use crate::http::{present, respond};
use crate::server::Server;
use crate::store::{Compacted, Kept, Place, Snapshot, Whole};
use crate::table::Table;

/// What is said of a page whose world is gone.
const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Where the next page starts.
struct Continue {
    /// In the world of the first page; `None` for the newest one.
    revision: Option<u64>,
    after: Place,
}

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    if target.resource.virtual_only {
        return Err(Status::method_not_allowed());
    }
    let selection = call.query.selection(&target.resource)?;
    call.shape.suits(&target.resource, true)?;
    call.query.check_list_versions()?;
    call.query.is_reached(server.store().revision())?;
    let limit = call.query.number::<i64>("limit")?.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let from = call.query.get("continue").map(Continue::read).transpose()?;
    if limit == usize::MAX && from.is_none() && selection.is_everything() && is_whole(target, call) {
        let Whole { revision, objects } = server.store().whole(&target.resource.storage);
        let items = Items::Whole(objects, None);
        return Ok(listing::respond(&target.resource, items, &metadata(target, call, revision)));
    }
    // What is selected is only known by looking at each.
    let most = if selection.is_everything() { limit } else { usize::MAX };
    let Snapshot { revision, objects, rest } = snapshot(server, target, call, (from.as_ref(), most))?;
    let wanted =
        |kept: &Kept| selection.is_everything() || selection.matches(&present::present(&target.resource, &kept.tree()));
    let mut selected = objects.into_iter().filter(|(_, kept)| wanted(kept));
    let items: Vec<_> = selected.by_ref().take(limit).collect();
    let mut metadata = metadata(target, call, revision);
    if let Some((place, _)) = items.last()
        && (rest > 0 || selected.next().is_some())
    {
        let token = Continue { revision: Some(revision), after: Place::clone(place) };
        metadata["continue"] = json!(token.write());
        if selection.is_everything() {
            metadata["remainingItemCount"] = json!(rest);
        }
    }
    let items: Vec<Arc<Kept>> = items.into_iter().map(|(_, kept)| kept).collect();
    body(server, target, call, items, metadata)
}

/// Whether all of a resource is asked for, in all namespaces, now, and as it is.
fn is_whole(target: &Target, call: &Call) -> bool {
    target.scope().namespace.is_none()
        && call.query.get("resourceVersionMatch") != Some("Exact")
        && call.shape == Shape::Full
}

fn metadata(target: &Target, call: &Call, revision: u64) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if target.resource.custom && call.shape == Shape::Full {
        metadata["continue"] = json!("");
    }
    metadata
}

fn body(
    server: &Server,
    target: &Target,
    call: &Call,
    items: Vec<Arc<Kept>>,
    metadata: Value,
) -> Result<Response, Status> {
    let resource = &target.resource;
    let include = call.query.include()?;
    let shown = || items.iter().map(|item| present::present(resource, &item.tree()));
    Ok(match call.shape {
        Shape::Full => listing::respond(resource, Items::Picked(items.into_iter()), &metadata),
        Shape::Metadata | Shape::MetadataList => {
            let items: Vec<Value> = shown().map(|item| present::partial(&item)).collect();
            // A list in Go that nothing was put into.
            let items = if items.is_empty() { Value::Null } else { Value::from(items) };
            respond::object(
                &json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}),
            )
        }
        Shape::Table => {
            let table = Table::new(resource, server.now()).including(include);
            respond::object(&table.render(&shown().collect::<Vec<_>>(), metadata, true))
        }
    })
}

/// The newest state, or that of an earlier page or of the revision asked for; of it so many objects.
fn snapshot(
    server: &Server,
    target: &Target,
    call: &Call,
    (from, most): (Option<&Continue>, usize),
) -> Result<Snapshot, Status> {
    let after = from.map(|from| &from.after);
    let exact = match (from, call.query.get("resourceVersionMatch")) {
        (Some(from), _) => from.revision,
        (None, Some("Exact")) => call.query.number("resourceVersion")?,
        (None, _) => None,
    };
    server.store().page(&target.scope(), after, exact, most).map_err(|Compacted { .. }| match from {
        Some(from) => {
            let token = Continue { revision: None, after: from.after.clone() };
            Status { next: Some(token.write()), ..Status::expired(TOO_OLD) }
        }
        None => Status::expired("The resourceVersion for the provided list is too old."),
    })
}

// === impl Continue ===

impl Continue {
    fn write(&self) -> String {
        let (namespace, name) = &self.after;
        URL_SAFE_NO_PAD.encode(json!([self.revision, namespace, name]).to_string())
    }

    fn read(token: &str) -> Result<Self, Status> {
        let invalid = || Status::bad_request("invalid continue token: continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let (revision, namespace, name) = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        Ok(Self { revision, after: (namespace, name) })
    }
}
