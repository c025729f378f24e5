//! DELETE of objects and collections.

use apimachinery::{Status, StatusCause, object};
use axum::response::Response;
use serde_json::{Value, json};

use crate::api_types::type_check::type_mismatches;
use crate::deletion::{DeleteOptions, DeleteResult, PropagationPolicy};
use crate::http::path::RequestTarget;
use crate::http::request::ApiRequest;
use crate::http::{representation, response};
use crate::resources::{Resource, definition};
use crate::server::Server;
use crate::transaction::Transaction;
use crate::write::decode;

/// Resources for which the response is the deleted object instead of a Status.
const RETURN_DELETED_OBJECT: [&str; 9] = [
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
    definition::STORAGE,
];

pub(super) fn delete_one(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    let resource = &target.resource;
    match server.delete_object(resource, target.namespace(), target.name(), &request_delete_options(request)?)? {
        DeleteResult::Removed(object) if !RETURN_DELETED_OBJECT.contains(&resource.storage.as_str()) => {
            Ok(response::json_object(&success_status(resource, &object)))
        }
        DeleteResult::Removed(object) | DeleteResult::Terminating(object) => {
            Ok(response::json_object(&representation::to_served_version(resource, &object)))
        }
    }
}

pub(super) fn delete_collection(
    server: &Server,
    target: &RequestTarget,
    request: &ApiRequest,
) -> Result<Response, Status> {
    let resource = &target.resource;
    let predicate = request.query.selection_predicate(resource)?;
    let options = request_delete_options(request)?;
    let snapshot = server.store().list(&target.collection_key());
    let mut items = Vec::new();
    for (key, stored) in &snapshot.objects {
        let object = stored.value();
        if !predicate.matches(&object) {
            continue;
        }
        // The selector also has to match the object at the time of its deletion.
        let still_matches = |_: &Transaction<'_>, current: &Value| Ok(predicate.matches(current));
        match server.delete_object_if(resource, &key.0, &key.1, &options, &still_matches) {
            Ok(None) => {}
            Err(status) if status.reason != "NotFound" => return Err(status),
            _ => items.push(representation::to_served_version(resource, &object)),
        }
    }
    let mut metadata = json!({"resourceVersion": snapshot.revision.to_string()});
    if resource.custom {
        metadata["continue"] = json!("");
    }
    let items: Vec<Value> = items.iter().map(|item| representation::list_item(resource, item)).collect();
    Ok(response::json_object(&json!({
        "kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata, "items": items,
    })))
}

/// Parses the `DeleteOptions` of a request from its body, with the query parameters as fallback.
fn request_delete_options(request: &ApiRequest) -> Result<DeleteOptions, Status> {
    let body =
        if request.body.is_empty() { json!({}) } else { decode::decode_body(&request.content_type, &request.body)? };
    parse_delete_options(&body, request)
}

/// Parses `DeleteOptions` from `body`, with the query parameters as fallback.
pub(in crate::http) fn parse_delete_options(body: &Value, request: &ApiRequest) -> Result<DeleteOptions, Status> {
    if let Some(mismatch) = type_mismatches("meta.v1.DeleteOptions", body).first() {
        return Err(Status::bad_request(mismatch.to_string()));
    }
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let policy = text("/propagationPolicy").or_else(|| request.query.get("propagationPolicy").map(str::to_owned));
    let propagation = match policy.as_deref() {
        Some("Foreground") => PropagationPolicy::Foreground,
        Some("Orphan") => PropagationPolicy::Orphan,
        None | Some("Background") => PropagationPolicy::Background,
        Some(other) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"].map(Value::from);
            let cause = StatusCause::not_supported("propagationPolicy", &json!(other), &supported);
            return Err(Status::invalid("DeleteOptions.meta.k8s.io", "", vec![cause]));
        }
    };
    let grace = match body.get("gracePeriodSeconds").and_then(Value::as_i64) {
        Some(grace) => Some(grace),
        None => request.query.number("gracePeriodSeconds")?,
    };
    let dry_run = request.query.dry_run()? || body.pointer("/dryRun/0").is_some();
    Ok(DeleteOptions {
        propagation,
        grace_period_seconds: grace,
        uid: text("/preconditions/uid"),
        resource_version: text("/preconditions/resourceVersion"),
        dry_run,
    })
}

fn success_status(resource: &Resource, object: &Value) -> Value {
    let mut details = json!({"name": object::name(object), "kind": resource.plural, "uid": object::uid(object)});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
