//! PATCH with JSON patch, merge patch and strategic merge patch; server-side apply is in [`super::apply`].

use std::sync::Arc;

use apimachinery::{Status, StatusCause, apply_json_patch, apply_merge_patch, apply_strategic_merge_patch};
use axum::response::Response;
use serde_json::Value;

use super::apply::{self, APPLY_PATCH_TYPE};
use super::write::{storage_resource, write_options, written_subresource};
use crate::conversion;
use crate::http::path::RequestTarget;
use crate::http::request::ApiRequest;
use crate::http::{object_response, representation};
use crate::server::Server;
use crate::write::{FieldWarnings, Proposal, RequestBody, WriteOptions, WriteRequest};

/// Content type of JSON patches.
pub(in crate::http) const JSON_PATCH_TYPE: &str = "application/json-patch+json";

const STRATEGIC_MERGE_PATCH_TYPE: &str = "application/strategic-merge-patch+json";

/// Computes the new object from the current one; called again after a conflict.
type BoxedPropose<'a> = Box<dyn Fn(Option<&Value>) -> Result<Proposal, Status> + 'a>;

pub(super) fn serve(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    if target.subresource.is_some()
        && server.store().get(&target.resource.object_key(target.namespace(), target.name())).is_none()
    {
        return Err(Status::not_found(&target.resource.group_resource(), target.name()));
    }
    let propose: BoxedPropose<'_> = match request.content_type.as_str() {
        APPLY_PATCH_TYPE => Box::new(apply::propose_apply(server, target, request)?),
        _ => Box::new(propose_patch(target, request)?),
    };
    if request.content_type != APPLY_PATCH_TYPE && request.query.get("force").is_some() {
        let cause = StatusCause::forbidden("force", "may not be specified for non-apply patch");
        return Err(Status::invalid("PatchOptions.meta.k8s.io", "", vec![cause]));
    }
    let options = write_options(&target.resource, request)?;
    let options = match request.content_type.as_str() {
        APPLY_PATCH_TYPE => WriteOptions { field_warnings: apply::check_duplicate_keys(request, &options)?, ..options },
        _ => WriteOptions {
            body: RequestBody::Patch,
            field_warnings: FieldWarnings::from_patch(&request.body),
            ..options
        },
    };
    let write_request = WriteRequest {
        resource: &storage_resource(server, &target.resource),
        subresource: written_subresource(target),
        namespace: target.namespace(),
        options: &options,
    };
    let result = server.modify(&write_request, target.name(), &propose)?;
    Ok(object_response::write_response(request, server, &target.resource, &result))
}

fn propose_patch<'a>(
    target: &'a RequestTarget,
    request: &'a ApiRequest,
) -> Result<impl Fn(Option<&Value>) -> Result<Proposal, Status> + 'a, Status> {
    let resource = &target.resource;
    let patch = patch_function(target, request)?;
    Ok(move |current: Option<&Value>| {
        let current = current.ok_or_else(|| Status::not_found(&resource.group_resource(), target.name()))?;
        if representation::is_stored_representation(resource) {
            return Ok(Proposal::Update(patch(current)?));
        }
        let converted = representation::to_served_version(resource, &Arc::new(current.clone()));
        Ok(Proposal::Update(conversion::to_storage(resource, patch(&converted)?)))
    })
}

/// Applies a patch to an object.
type PatchFn<'a> = Box<dyn Fn(&Value) -> Result<Value, Status> + 'a>;

/// Returns a function that applies the patch of the request, by content type.
pub(in crate::http) fn patch_function<'a>(
    target: &'a RequestTarget,
    request: &'a ApiRequest,
) -> Result<PatchFn<'a>, Status> {
    let content_type = request.content_type.as_str();
    let parse_json = || {
        serde_json::from_slice::<Value>(&request.body)
            .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
    };
    let parse_object = || match parse_json() {
        Err(_) => Err(Status::bad_request("invalid JSON patch")),
        Ok(patch) if patch.is_object() => Ok(patch),
        Ok(_) => Err(Status::bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        )),
    };
    Ok(match content_type {
        JSON_PATCH_TYPE => {
            let patch = parse_json()?;
            Box::new(move |object| apply_json_patch(object, &patch))
        }
        "application/merge-patch+json" => {
            let patch = parse_object()?;
            Box::new(move |object| Ok(apply_merge_patch(object, &patch)))
        }
        STRATEGIC_MERGE_PATCH_TYPE if !target.resource.custom => {
            let patch = parse_json()?;
            let merge_schema = &target.resource.merge_schema;
            Box::new(move |object| apply_strategic_merge_patch(merge_schema, object, &patch))
        }
        STRATEGIC_MERGE_PATCH_TYPE => {
            return Err(Status::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        _ => {
            let mut status = Status::unsupported_media_type("415: Unsupported Media Type");
            status.details = Some(serde_json::json!({}));
            return Err(status);
        }
    })
}
