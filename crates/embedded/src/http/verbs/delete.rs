//! DELETE of one object and of collections.

use apimachinery::status::{Cause, Status};
use axum::response::Response;
use serde_json::{Value, json};

use crate::deletion::{DeleteOptions, Deleted, Propagation};
use crate::http::call::Call;
use crate::http::path::Target;
use crate::http::{present, respond};
use crate::resources::Resource;
use crate::server::Server;
use crate::write::decode;
use crate::{crd, object};

/// Of these kinds the answer is the object that was there, not that it went.
const SHOWN_WHEN_GONE: [&str; 9] = [
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
    crd::STORAGE,
];

pub(super) fn one(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let resource = &target.resource;
    match server.delete_object(resource, target.namespace(), target.name(), &options(call)?)? {
        Deleted::Gone(last) if !SHOWN_WHEN_GONE.contains(&resource.storage.as_str()) => {
            Ok(respond::object(&success(resource, &last)))
        }
        Deleted::Gone(last) | Deleted::Going(last) => Ok(respond::object(&present::present(resource, &last))),
    }
}

pub(super) fn collection(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let resource = &target.resource;
    let selection = call.query.selection(resource)?;
    let options = options(call)?;
    let snapshot = server.store().list(&target.scope());
    let mut items = Vec::new();
    for (place, kept) in &snapshot.objects {
        let object = kept.tree();
        if !selection.matches(&object) {
            continue;
        }
        match server.delete_object(resource, &place.0, &place.1, &options) {
            Err(status) if status.reason != "NotFound" => return Err(status),
            _ => items.push(present::present(resource, &object)),
        }
    }
    let mut metadata = json!({"resourceVersion": snapshot.revision.to_string()});
    if resource.custom {
        metadata["continue"] = json!("");
    }
    let items: Vec<Value> = items.iter().map(|item| present::listed(resource, item)).collect();
    Ok(respond::object(&json!({
        "kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata, "items": items,
    })))
}

/// The body's `DeleteOptions`, else the query's.
fn options(call: &Call) -> Result<DeleteOptions, Status> {
    let body = if call.body.is_empty() { json!({}) } else { decode::body(&call.content_type, &call.body)? };
    stated(&body, call)
}

/// `DeleteOptions` as they are written somewhere, else the query's.
pub(in crate::http) fn stated(body: &Value, call: &Call) -> Result<DeleteOptions, Status> {
    let owned = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let policy = owned("/propagationPolicy").or_else(|| call.query.get("propagationPolicy").map(str::to_owned));
    let propagation = match policy.as_deref() {
        Some("Foreground") => Propagation::Foreground,
        Some("Orphan") => Propagation::Orphan,
        None | Some("Background") => Propagation::Background,
        Some(other) => {
            let known = ["Foreground", "Background", "Orphan", "nil"].map(Value::from);
            let cause = Cause::not_supported("propagationPolicy", &json!(other), &known);
            return Err(Status::invalid("DeleteOptions.meta.k8s.io", "", vec![cause]));
        }
    };
    let grace = match body.get("gracePeriodSeconds").and_then(Value::as_i64) {
        Some(grace) => Some(grace),
        None => call.query.number("gracePeriodSeconds")?,
    };
    let dry_run = call.query.dry_run()? || body.pointer("/dryRun/0").is_some();
    Ok(DeleteOptions {
        propagation,
        grace,
        uid: owned("/preconditions/uid"),
        resource_version: owned("/preconditions/resourceVersion"),
        dry_run,
    })
}

fn success(resource: &Resource, last: &Value) -> Value {
    let mut details = json!({"name": object::name(last), "kind": resource.plural, "uid": object::uid(last)});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
