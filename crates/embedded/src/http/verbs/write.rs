//! POST and PUT: whole objects.

use std::sync::Arc;

use apimachinery::status::{Cause, Status};
use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use crate::http::call::Call;
use crate::http::path::Target;
use crate::http::{answer, respond, warning};
use crate::resources::Resource;
use crate::server::Server;
use crate::write::decode::{self, Written};
use crate::write::{Body, Face, Options, Proposal, preconditions, prune};
use crate::{conversion, object};

pub(super) fn create(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let resource = &target.resource;
    let Written { object, complaints } = read(resource, call)?;
    if !object::resource_version(&object).is_empty() {
        return Err(Status::unexplained("resourceVersion should not be set on objects to be created"));
    }
    let namespace = match (resource.namespaced, &target.namespace) {
        (true, None) => return Err(Status::method_not_allowed()),
        _ => target.namespace(),
    };
    let options = Options { complaints, ..options(resource, call)? };
    match server.create_object(&kept(server, resource), namespace, Proposal::Written(object), &options) {
        Ok(outcome) => Ok(answer::written(call, server, resource, &outcome)),
        Err(status) => refused(server, target, call, &options, status),
    }
}

pub(super) fn replace(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let resource = &target.resource;
    let Written { object, complaints } = read(resource, call)?;
    let options = Options { complaints, ..options(resource, call)? };
    let propose = |current: Option<&Value>| {
        if let Some(current) =
            current.filter(|_| resource.needs_version() && object::resource_version(&object).is_empty())
        {
            preconditions::same_name(current, &object)?;
            preconditions::same_version(resource, target.name(), current, &object, Body::Object)?;
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(Status::invalid(&resource.qualified(), target.name(), vec![cause]));
        }
        Ok(Proposal::Written(object.clone()))
    };
    match server.modify(&kept(server, resource), face(target), target.namespace(), target.name(), &options, &propose) {
        Ok(outcome) => Ok(answer::written(call, server, resource, &outcome)),
        Err(status) => refused(server, target, call, &options, status),
    }
}

/// Fields that nobody declared are told whatever else is wrong, and first of all when that was asked for.
fn refused(
    server: &Server,
    target: &Target,
    call: &Call,
    options: &Options,
    status: Status,
) -> Result<Response, Status> {
    let Ok(Written { mut object, .. }) = read(&target.resource, call) else { return Err(status) };
    let warnings = prune::unknown_fields(&kept(server, &target.resource), &mut object, options)?;
    Ok(warning::append(respond::failure(&status), &warnings))
}

/// Which part of the object the path is about.
pub(super) fn face(target: &Target) -> Face {
    if target.subresource.as_deref() == Some("status") { Face::Status } else { Face::Main }
}

/// The resource whose schema rules what is stored: the two faces of events are kept as one.
pub(super) fn kept(server: &Server, resource: &Arc<Resource>) -> Arc<Resource> {
    let kept = conversion::kept_as(resource);
    let kept = kept.and_then(|(group, version, plural)| server.registry().get(group, version, plural));
    kept.unwrap_or_else(|| Arc::clone(resource))
}

/// The options of a write to `resource`.
pub(super) fn options(resource: &Arc<Resource>, call: &Call) -> Result<Options, Status> {
    let written_as = conversion::kept_as(resource).map(|_| Arc::clone(resource));
    Ok(Options { written_as, ..call.query.write_options(&call.agent)? })
}

fn read(resource: &Resource, call: &Call) -> Result<Written, Status> {
    let written = decode::written(resource, &call.content_type, &call.body)?;
    if resource.group == "events.k8s.io" && call.method == Method::POST && written.object["eventTime"].is_null() {
        let cause = Cause::required("eventTime", "");
        return Err(Status::invalid("Event", object::name(&written.object), vec![cause]));
    }
    Ok(Written { object: conversion::to_kept(resource, written.object), ..written })
}
