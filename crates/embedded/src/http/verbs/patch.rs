//! PATCH: JSON patch, merge patch, strategic merge patch; server-side apply is in [`apply`].

use std::sync::Arc;

use apimachinery::patch;
use apimachinery::status::{Cause, Status};
use axum::response::Response;
use serde_json::Value;

use super::apply::{self, APPLY};
use super::write::{face, kept, options};
use crate::conversion;
use crate::http::call::Call;
use crate::http::path::Target;
use crate::http::{answer, present};
use crate::server::{Server, key};
use crate::write::{Body, Complaints, Options, Proposal};

const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// What becomes of the object as it is; called again when another write came first.
type Propose<'a> = Box<dyn Fn(Option<&Value>) -> Result<Proposal, Status> + 'a>;

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    if target.subresource.is_some()
        && server.store().get(&key(&target.resource, target.namespace(), target.name())).is_none()
    {
        return Err(Status::not_found(&target.resource.qualified(), target.name()));
    }
    let propose: Propose<'_> = match call.content_type.as_str() {
        APPLY => Box::new(apply::proposal(server, target, call)?),
        _ => Box::new(patched(target, call)?),
    };
    if call.content_type != APPLY && call.query.get("force").is_some() {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(Status::invalid("PatchOptions.meta.k8s.io", "", vec![cause]));
    }
    let options = options(&target.resource, call)?;
    let options = match call.content_type.as_str() {
        APPLY => Options { complaints: apply::doubled_keys(call, &options)?, ..options },
        _ => Options { body: Body::Patch, complaints: Complaints::patch(&call.body), ..options },
    };
    let outcome = server.modify(
        &kept(server, &target.resource),
        face(target),
        target.namespace(),
        target.name(),
        &options,
        &propose,
    )?;
    Ok(answer::written(call, server, &target.resource, &outcome))
}

fn patched<'a>(
    target: &'a Target,
    call: &'a Call,
) -> Result<impl Fn(Option<&Value>) -> Result<Proposal, Status> + 'a, Status> {
    let resource = &target.resource;
    let change = reader(target, call)?;
    Ok(move |current: Option<&Value>| {
        let current = current.ok_or_else(|| Status::not_found(&resource.qualified(), target.name()))?;
        if present::is_shown_as_kept(resource) {
            return Ok(Proposal::Written(change(current)?));
        }
        let shown = present::present(resource, &Arc::new(current.clone()));
        Ok(Proposal::Written(conversion::to_kept(resource, change(&shown)?)))
    })
}

type Change<'a> = Box<dyn Fn(&Value) -> Result<Value, Status> + 'a>;

/// What the patch does to an object, by its content type.
pub(in crate::http) fn reader<'a>(target: &'a Target, call: &'a Call) -> Result<Change<'a>, Status> {
    let kind = call.content_type.as_str();
    let document = || {
        serde_json::from_slice::<Value>(&call.body)
            .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
    };
    let object = || match document() {
        Err(_) => Err(Status::bad_request("invalid JSON patch")),
        Ok(patch) if patch.is_object() => Ok(patch),
        Ok(_) => Err(Status::bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        )),
    };
    Ok(match kind {
        "application/json-patch+json" => {
            let patch = document()?;
            Box::new(move |object| patch::json::apply(object, &patch))
        }
        "application/merge-patch+json" => {
            let patch = object()?;
            Box::new(move |object| Ok(patch::merge::apply(object, &patch)))
        }
        STRATEGIC if !target.resource.custom => {
            let patch = document()?;
            let structure = &target.resource.structure;
            Box::new(move |object| patch::strategic::apply(structure, object, &patch))
        }
        STRATEGIC => {
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
