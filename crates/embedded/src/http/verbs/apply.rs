//! PATCH as server-side apply.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::apply::{self, ApplyOptions};
use apimachinery::schema::Depth;
use apimachinery::status::{Cause, Status};
use serde_json::Value;

use super::write::face;
use crate::http::call::Call;
use crate::http::path::Target;
use crate::http::present;
use crate::resources::Resource;
use crate::server::Server;
use crate::types::fit::Misfit;
use crate::write::{Complaints, Face, FieldValidation, Options, Proposal, decode, typed};
use crate::{conversion, object};

pub(in crate::http) const APPLY: &str = "application/apply-patch+yaml";

/// What an applied configuration makes of the object.
///
/// # Errors
/// 400 and 422 for a configuration that cannot be one, and without a field manager.
pub(super) fn proposal<'a>(
    server: &Server,
    target: &'a Target,
    call: &Call,
) -> Result<impl Fn(Option<&Value>) -> Result<Proposal, Status> + 'a, Status> {
    let resource = &target.resource;
    let options = ApplyOptions {
        manager: manager(call)?,
        force: call.query.flag("force"),
        api_version: resource.api_version(),
        subresource: face(target).subresource(),
        now: object::time(server.now()),
    };
    let applied = configuration(target, call)?;
    let revision = object::resource_version(&applied).to_owned();
    Ok(move |current: Option<&Value>| {
        let mut applied = applied.clone();
        object::set_metadata(&mut applied, "resourceVersion", None);
        if object::name(&applied).is_empty() {
            object::set_metadata(&mut applied, "name", Some(target.name().into()));
        }
        let uid = object::uid(&applied);
        if current.is_none() && !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(&resource.qualified(), target.name(), &why));
        }
        let live = current.map(|current| present::present(resource, &Arc::new(current.clone())));
        let result = apply::apply(&resource.structure, live.as_deref(), &applied, &options)?;
        // "0" means that there must be none yet; leases are taken this way.
        let is_other = current.is_some_and(|current| object::resource_version(current) != revision);
        if !revision.is_empty() && is_other {
            return Err(Status::modified(&resource.qualified(), target.name()));
        }
        Ok(Proposal::Applied(conversion::to_kept(resource, result)))
    })
}

/// What the client applies, in the form of its type.
fn configuration(target: &Target, call: &Call) -> Result<Value, Status> {
    let resource = &target.resource;
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
    Ok(applied)
}

/// Keys that an applied configuration gives twice.
pub(super) fn doubled_keys(call: &Call, options: &Options) -> Result<Complaints, Status> {
    let complaints = Complaints::yaml(&call.body);
    match complaints.of_keys().filter(|_| options.field_validation == FieldValidation::Strict) {
        Some(keys) => {
            Err(Status::bad_request(format!("error strict decoding patch: error converting YAML to JSON: {keys}")))
        }
        None => Ok(complaints),
    }
}

/// Who applies.
pub(in crate::http) fn manager(call: &Call) -> Result<String, Status> {
    let cause = || Cause::required("fieldManager", "is required for apply patch");
    let refused = || Status::invalid("PatchOptions.meta.k8s.io", "", vec![cause()]);
    call.query.get("fieldManager").map(str::to_owned).ok_or_else(refused)
}

/// A text that its type does not read, as kube-apiserver tells it of what is applied.
fn inconvertible(resource: &Resource, applied: &Value, text: &Misfit) -> Status {
    let kind = format!("{}, Kind={}", resource.api_version(), resource.kind);
    let what = format!("({}/{}; {kind})", object::namespace(applied), object::name(applied));
    let why = format!("unable to convert unstructured object to {kind}: {text}");
    Status::unexplained(format!("failed to convert new object {what} to proper version: {why}"))
}

/// What is applied has to fit the type: a field that nobody declared cannot be owned.
fn known_fields(resource: &Resource, applied: &Value) -> Result<(), Status> {
    let (texts, shapes): (Vec<_>, Vec<_>) = typed::misfits(resource, applied).into_iter().partition(Misfit::is_text);
    let mut found: BTreeSet<String> = shapes.iter().map(Misfit::untyped).collect();
    if let Some(schema) = resource.schema() {
        // The types of built-in kinds have been looked at.
        let depth = if resource.custom { Depth::Types } else { Depth::Fields };
        found.extend(schema.misfits(&resource.structure, applied, depth));
    }
    if !found.is_empty() {
        return Err(apply::untypable(applied, &found));
    }
    texts.first().map_or(Ok(()), |text| Err(inconvertible(resource, applied, text)))
}
