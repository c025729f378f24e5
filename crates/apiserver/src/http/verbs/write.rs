//! POST and PUT.

use std::sync::Arc;

use apimachinery::{Status, StatusCause, object};
use axum::response::Response;
use http::Method;
use serde_json::Value;

use crate::conversion;
use crate::http::path::RequestTarget;
use crate::http::request::ApiRequest;
use crate::http::{object_response, response, warning_header};
use crate::resources::Resource;
use crate::server::Server;
use crate::write::decode::{self, DecodedObject};
use crate::write::{Proposal, RequestBody, Subresource, WriteOptions, WriteRequest, preconditions, prune};

pub(super) fn create(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    let resource = &target.resource;
    let DecodedObject { object, field_warnings } = decode_object(resource, request)?;
    if !object::resource_version(&object).is_empty() {
        return Err(Status::internal_error_verbatim("resourceVersion should not be set on objects to be created"));
    }
    let namespace = match (resource.namespaced, &target.namespace) {
        (true, None) => return Err(Status::method_not_allowed()),
        _ => target.namespace(),
    };
    let options = WriteOptions { field_warnings, ..write_options(resource, request)? };
    match server.create_object(&storage_resource(server, resource), namespace, Proposal::Update(object), &options) {
        Ok(result) => Ok(object_response::write_response(request, server, resource, &result)),
        Err(status) => rejection(server, target, request, &options, status),
    }
}

pub(super) fn replace(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    let resource = &target.resource;
    let DecodedObject { object, field_warnings } = decode_object(resource, request)?;
    let options = WriteOptions { field_warnings, ..write_options(resource, request)? };
    let propose = |current: Option<&Value>| {
        if let Some(current) =
            current.filter(|_| matches!(object::resource_version(&object), "" | preconditions::UNCONDITIONAL))
        {
            preconditions::check_name(target.name(), &object)?;
            preconditions::check_version(resource, target.name(), current, &object, RequestBody::Object)?;
            preconditions::check_unconditional(resource, target.name())?;
        }
        Ok(Proposal::Update(object.clone()))
    };
    let write_request = WriteRequest {
        resource: &storage_resource(server, resource),
        subresource: written_subresource(target),
        namespace: target.namespace(),
        options: &options,
    };
    match server.modify(&write_request, target.name(), &propose) {
        Ok(result) => Ok(object_response::write_response(request, server, resource, &result)),
        Err(status) => rejection(server, target, request, &options, status),
    }
}

/// Returns the response to a failed write, with warnings for unknown fields. With strict validation, unknown fields are
/// reported instead of the failure.
fn rejection(
    server: &Server,
    target: &RequestTarget,
    request: &ApiRequest,
    options: &WriteOptions,
    status: Status,
) -> Result<Response, Status> {
    let Ok(DecodedObject { mut object, .. }) = decode_object(&target.resource, request) else { return Err(status) };
    let warnings = prune::prune_unknown_fields(&storage_resource(server, &target.resource), &mut object, options)
        .map_err(|error| error.into_status(options.body))?;
    Ok(warning_header::append(response::status_response(&status), &warnings))
}

/// Returns the subresource that the request writes.
pub(super) fn written_subresource(target: &RequestTarget) -> Subresource {
    if target.subresource.as_deref() == Some("status") { Subresource::Status } else { Subresource::Main }
}

/// Returns the storage version of `resource`, which differs only for kinds with conversion.
pub(super) fn storage_resource(server: &Server, resource: &Arc<Resource>) -> Arc<Resource> {
    let stored_version = conversion::storage_resource(resource);
    let stored_version =
        stored_version.and_then(|(group, version, plural)| server.registry().get(group, version, plural));
    stored_version.unwrap_or_else(|| Arc::clone(resource))
}

/// Returns the write options of a request to `resource`.
pub(super) fn write_options(resource: &Arc<Resource>, request: &ApiRequest) -> Result<WriteOptions, Status> {
    let request_resource = conversion::storage_resource(resource).map(|_| Arc::clone(resource));
    Ok(WriteOptions { request_resource, ..request.query.write_options(&request.user_agent)? })
}

fn decode_object(resource: &Resource, request: &ApiRequest) -> Result<DecodedObject, Status> {
    let decoded = decode::decode_object(resource, &request.content_type, &request.body)?;
    if resource.group == "events.k8s.io" && request.method == Method::POST && decoded.object["eventTime"].is_null() {
        let cause = StatusCause::required("eventTime", "");
        return Err(Status::invalid("Event", object::name(&decoded.object), vec![cause]));
    }
    Ok(DecodedObject { object: conversion::to_storage(resource, decoded.object), ..decoded })
}
