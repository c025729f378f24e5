//! GET of one object and of collections.

use std::ops::Bound;
use std::sync::Arc;

use apimachinery::status::Status;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Call;
use super::path::Target;
use super::respond::{self, Shape};
use crate::server::{Server, key};
use crate::store::{Compacted, Place, Snapshot};
use crate::table::{Include, Table};

/// Where the next page starts, in the world of the first one.
struct Continue {
    revision: u64,
    after: Place,
}

pub(super) fn one(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let place = key(&target.resource, target.namespace(), target.name());
    let found = server.store().get(&place);
    let found = found.ok_or_else(|| Status::not_found(&target.resource.qualified(), target.name()))?;
    let table = Table::new(&target.resource, server.now()).including(call.query.include()?);
    Ok(respond::one(call.shape, &target.resource, &found, &table))
}

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    if target.resource.virtual_only {
        return Err(Status::method_not_allowed());
    }
    let selection = call.query.selection(&target.resource)?;
    call.query.check_list_versions()?;
    let limit = call.query.number::<usize>("limit")?.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let from = call.query.get("continue").map(Continue::read).transpose()?;
    let snapshot = snapshot(server, target, call, from.as_ref())?;
    let after = from.map_or(Bound::Unbounded, |from| Bound::Excluded(from.after));
    let mut rest = snapshot
        .objects
        .range::<Place, _>((after, Bound::Unbounded))
        .map(|(place, object)| (place, object, respond::present(&target.resource, object)))
        .filter(|(_, _, shown)| selection.matches(shown))
        .peekable();
    let mut items = Vec::new();
    let mut last = None;
    while items.len() < limit
        && let Some((place, _, shown)) = rest.next()
    {
        last = Some(place);
        items.push(shown);
    }
    let mut metadata = json!({"resourceVersion": snapshot.revision.to_string()});
    if target.resource.custom && call.shape == Shape::Full {
        metadata["continue"] = json!("");
    }
    if let (Some(_), Some(after)) = (rest.peek(), last) {
        let token = Continue { revision: snapshot.revision, after: after.clone() };
        metadata["continue"] = json!(token.write());
        if selection.is_everything() {
            metadata["remainingItemCount"] = json!(rest.count());
        }
    }
    Ok(respond::object(&body(server, target, (call.shape, call.query.include()?), &items, metadata)))
}

fn body(
    server: &Server,
    target: &Target,
    (shape, include): (Shape, Include),
    items: &[Arc<Value>],
    metadata: Value,
) -> Value {
    let resource = &target.resource;
    match shape {
        Shape::Full => {
            let items: Vec<Value> = items.iter().map(|item| respond::listed(resource, item)).collect();
            json!({"kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata, "items": items})
        }
        Shape::Metadata => {
            let items: Vec<Value> = items.iter().map(|item| respond::partial(item)).collect();
            json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
        }
        Shape::Table => Table::new(resource, server.now()).including(include).render(items, metadata, true),
    }
}

/// The newest state, or that of an earlier page or of the revision asked for.
fn snapshot(server: &Server, target: &Target, call: &Call, from: Option<&Continue>) -> Result<Snapshot, Status> {
    let storage = &target.resource.storage;
    let namespace = target.namespace.as_deref();
    let exact = match (from, call.query.get("resourceVersionMatch")) {
        (Some(from), _) => Some(from.revision),
        (None, Some("Exact")) => call.query.number("resourceVersion")?,
        (None, _) => None,
    };
    let Some(revision) = exact else { return Ok(server.store().list(storage, namespace)) };
    server.store().list_at(storage, namespace, revision).map_err(|Compacted { .. }| {
        Status::expired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.")
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
