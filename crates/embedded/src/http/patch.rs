//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::apply::{self, ApplyOptions};
use apimachinery::patch;
use apimachinery::schema::Depth;
use apimachinery::status::{Cause, Status};
use axum::response::Response;
use serde_json::Value;

use super::path::Target;
use super::write::{face, kept, options};
use super::{Call, respond};
use crate::resources::Resource;
use crate::server::{Server, key};
use crate::types::fit::Misfit;
use crate::write::{Body, Complaints, Face, FieldValidation, Options, Proposal, decode, typed};
use crate::{conversion, object};

pub(super) const APPLY: &str = "application/apply-patch+yaml";
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
        APPLY => Box::new(applied(server, target, call)?),
        _ => Box::new(patched(target, call)?),
    };
    if call.content_type != APPLY && call.query.get("force").is_some() {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(Status::invalid("PatchOptions.meta.k8s.io", "", vec![cause]));
    }
    let options = options(&target.resource, call)?;
    let options = match call.content_type.as_str() {
        APPLY => Options { complaints: doubled_keys(call, &options)?, ..options },
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
    Ok(respond::written(call, server, &target.resource, &outcome))
}

/// Keys that an applied configuration gives twice.
fn doubled_keys(call: &Call, options: &Options) -> Result<Complaints, Status> {
    let complaints = Complaints::yaml(&call.body);
    match complaints.of_keys().filter(|_| options.field_validation == FieldValidation::Strict) {
        Some(keys) => {
            Err(Status::bad_request(format!("error strict decoding patch: error converting YAML to JSON: {keys}")))
        }
        None => Ok(complaints),
    }
}

fn patched<'a>(
    target: &'a Target,
    call: &'a Call,
) -> Result<impl Fn(Option<&Value>) -> Result<Proposal, Status> + 'a, Status> {
    let resource = &target.resource;
    let change = reader(target, call)?;
    Ok(move |current: Option<&Value>| {
        let current = current.ok_or_else(|| Status::not_found(&resource.qualified(), target.name()))?;
        if respond::is_shown_as_kept(resource) {
            return Ok(Proposal::Written(change(current)?));
        }
        let shown = respond::present(resource, &Arc::new(current.clone()));
        Ok(Proposal::Written(conversion::to_kept(resource, change(&shown)?)))
    })
}

type Change<'a> = Box<dyn Fn(&Value) -> Result<Value, Status> + 'a>;

/// What the patch does to an object, by its content type.
pub(super) fn reader<'a>(target: &'a Target, call: &'a Call) -> Result<Change<'a>, Status> {
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

fn applied<'a>(
    server: &'a Server,
    target: &'a Target,
    call: &'a Call,
) -> Result<impl Fn(Option<&Value>) -> Result<Proposal, Status> + 'a, Status> {
    let resource = &target.resource;
    let manager = manager(call)?;
    let applied = decode::body(APPLY, &call.body)?;
    let kind = object::text(&applied, "/kind");
    if !kind.is_empty() && kind != resource.kind {
        let version = object::text(&applied, "/apiVersion");
        let slash = if version.contains('/') { "" } else { "/" };
        return Err(Status::bad_request(format!("invalid object type: {slash}{version}, Kind={kind}")));
    }
    let applied = decode::typed(resource, applied)?;
    if applied.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    known_fields(resource, &applied)?;
    let mut applied = typed::without_nulls(resource, applied);
    if resource.custom {
        object::whole_numbers(&mut applied);
    }
    // What the main face does not write nobody owns through it.
    if resource.status && resource.storage != "nodes" && face(target) == Face::Main {
        object::members(&mut applied).remove("status");
    }
    let options = ApplyOptions {
        manager,
        force: call.query.flag("force"),
        api_version: resource.api_version(),
        subresource: face(target).subresource(),
        now: object::time(server.now()),
    };
    let revision = object::resource_version(&applied).to_owned();
    Ok(move |current: Option<&Value>| {
        let mut applied = applied.clone();
        object::set_metadata(&mut applied, "resourceVersion", None);
        if object::name(&applied).is_empty() {
            object::set_metadata(&mut applied, "name", Some(target.name().into()));
        }
        let live = current.map(|current| respond::present(resource, &Arc::new(current.clone())));
        let result = apply::apply(&resource.structure, live.as_deref(), &applied, &options)?;
        // "0" means that there must be none yet; leases are taken this way.
        let is = current.map(object::resource_version).unwrap_or("0");
        if !revision.is_empty() && revision != is {
            return Err(Status::modified(&resource.qualified(), target.name()));
        }
        Ok(Proposal::Applied(conversion::to_kept(resource, result)))
    })
}

/// Who applies.
pub(super) fn manager(call: &Call) -> Result<String, Status> {
    let cause = || Cause::required("fieldManager", "is required for apply patch");
    let refused = || Status::invalid("PatchOptions.meta.k8s.io", "", vec![cause()]);
    call.query.get("fieldManager").map(str::to_owned).ok_or_else(refused)
}

/// What is applied has to fit the type: a field that nobody declared cannot be owned.
fn known_fields(resource: &Resource, applied: &Value) -> Result<(), Status> {
    let mut found: BTreeSet<String> = typed::misfits(resource, applied).iter().map(Misfit::untyped).collect();
    if let Some(schema) = resource.schema() {
        // The types of built-in kinds have been looked at.
        let depth = if resource.custom { Depth::Types } else { Depth::Fields };
        found.extend(schema.misfits(&resource.structure, applied, depth));
    }
    if found.is_empty() { Ok(()) } else { Err(apply::untypable(applied, &found)) }
}
