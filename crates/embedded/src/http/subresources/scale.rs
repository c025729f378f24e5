//! `/scale`: the replica counts of any scalable kind, as `autoscaling/v1` Scale.

use apimachinery::apply::{self, ApplyOptions};
use apimachinery::selector::LabelSelector;
use apimachinery::status::{Cause, Status};
use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use crate::http::call::Call;
use crate::http::path::Target;
use crate::http::{respond, verbs, warning};
use crate::object;
use crate::resources::{Resource, ScalePaths};
use crate::server::{Server, key};
use crate::write::{Face, FieldValidation, Options, Proposal, decode, validate};

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let Some(paths) = &target.resource.scale else { return Err(Status::no_such_path()) };
    let resource = &target.resource;
    let found = server.store().get(&key(resource, target.namespace(), target.name()));
    let found = found.ok_or_else(|| Status::not_found(&resource.qualified(), target.name()))?;
    if call.method == Method::GET {
        return Ok(respond::object(&view(resource, paths, &found)));
    }
    if call.content_type == verbs::APPLY && call.method == Method::PATCH {
        return applied(server, target, call, paths);
    }
    let mut warnings = Vec::new();
    let options = Options { subresource: Some("scale"), ..call.query.write_options(&call.agent)? };
    unknown(&mut wanted(target, call, &view(resource, paths, &found))?, &options, &mut warnings)?;
    let propose = |current: Option<&Value>| {
        let current = current.ok_or_else(|| Status::not_found(&resource.qualified(), target.name()))?;
        let wanted = wanted(target, call, &view(resource, paths, current))?;
        let mut object = current.clone();
        let revision = object::resource_version(&wanted);
        if !revision.is_empty() {
            object::set_metadata(&mut object, "resourceVersion", Some(json!(revision)));
        }
        let replicas = wanted.pointer("/spec/replicas").cloned().unwrap_or(json!(0));
        not_negative(target, &replicas)?;
        object::put(&mut object, &paths.spec_replicas, replicas);
        Ok(Proposal::Written(object))
    };
    let outcome = server.modify(resource, Face::Main, target.namespace(), target.name(), &options, &propose)?;
    Ok(warning::append(respond::object(&view(resource, paths, &outcome.object)), &warnings))
}

/// Server-side apply: the manager of the scale owns the count in the object itself.
fn applied(server: &Server, target: &Target, call: &Call, paths: &ScalePaths) -> Result<Response, Status> {
    let resource = &target.resource;
    let manager = verbs::manager(call)?;
    let scale = decode::body(verbs::APPLY, &call.body)?;
    let said = |field: &str| object::text(&scale, &format!("/{field}")).to_owned();
    let (version, kind) = (said("apiVersion"), said("kind"));
    if (version.as_str(), kind.as_str()) != ("autoscaling/v1", "Scale") {
        return Err(Status::bad_request(format!("invalid object type: {version}, Kind={kind}")));
    }
    if resource.custom {
        let what = format!("(/{}; {version}, Kind={kind})", object::name(&scale));
        let why = "request to convert CR to an invalid group/version: autoscaling/v1";
        return Err(Status::unexplained(format!("failed to convert new object {what} to proper version: {why}")));
    }
    let undeclared = unknown_fields(&mut scale.clone());
    if !undeclared.is_empty() {
        let found = undeclared.iter().map(|path| format!(".{path}: field not declared in schema")).collect();
        return Err(apply::untypable(&scale, &found));
    }
    let mut wanted =
        json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {"name": target.name()}});
    if let Some(replicas) = scale.pointer("/spec/replicas") {
        object::put(&mut wanted, &paths.spec_replicas, replicas.clone());
    }
    let how = ApplyOptions {
        manager,
        force: call.query.flag("force"),
        api_version: resource.api_version(),
        subresource: Some("scale".to_owned()),
        now: object::time(server.now()),
    };
    let propose = |current: Option<&Value>| {
        let current = current.ok_or_else(|| Status::not_found(&resource.qualified(), target.name()))?;
        let apply = |current: &Value| apply::apply(&resource.structure, Some(current), &wanted, &how);
        let mut result = apply(current).map_err(|status| apply(&of_scales(current)).err().unwrap_or(status))?;
        without_time(&mut result, &how.manager);
        let replicas = result.pointer(&paths.spec_replicas).cloned().unwrap_or(json!(0));
        not_negative(target, &replicas)?;
        // A scale without a count is one of none.
        object::put(&mut result, &paths.spec_replicas, replicas);
        Ok(Proposal::Applied(result))
    };
    let options = call.query.write_options(&call.agent)?;
    let outcome = server.modify(resource, Face::Main, target.namespace(), target.name(), &options, &propose)?;
    Ok(respond::object(&view(resource, paths, &outcome.object)))
}

/// The object as conflicts tell of it: on this face everybody's fields are those of a scale.
fn of_scales(object: &Value) -> Value {
    let mut object = object.clone();
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut).into_iter().flatten();
    entries.for_each(|entry| entry["apiVersion"] = json!("autoscaling/v1"));
    object
}

/// kube-apiserver notes no time of an applied scale.
fn without_time(object: &mut Value, manager: &str) {
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut).into_iter().flatten();
    let is_own = |entry: &&mut Value| {
        entry["manager"] == manager && entry["operation"] == "Apply" && entry["subresource"] == "scale"
    };
    entries.filter(is_own).filter_map(Value::as_object_mut).for_each(|entry| drop(entry.remove("time")));
}

fn not_negative(target: &Target, replicas: &Value) -> Result<(), Status> {
    if replicas.as_i64().is_some_and(|count| count < 0) {
        let cause = Cause::invalid("spec.replicas", replicas, validate::kinds::NOT_NEGATIVE);
        return Err(Status::invalid("Scale.autoscaling", target.name(), vec![cause]));
    }
    Ok(())
}

/// Says which fields of a scale nobody declared.
fn unknown(scale: &mut Value, options: &Options, warnings: &mut Vec<String>) -> Result<(), Status> {
    let found: Vec<String> =
        unknown_fields(scale).into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
    match options.field_validation {
        FieldValidation::Strict if !found.is_empty() => Err(Status::bad_request(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: strict decoding error: {}",
            found.join(", ")
        ))),
        FieldValidation::Warn => {
            warnings.extend(found);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Drops and returns them.
fn unknown_fields(scale: &mut Value) -> Vec<String> {
    const KNOWN: [(&str, &[&str]); 3] = [
        ("", &["apiVersion", "kind", "metadata", "spec", "status"]),
        ("spec", &["replicas"]),
        ("status", &["replicas", "selector"]),
    ];
    let mut found = Vec::new();
    for (part, known) in KNOWN {
        let members = if part.is_empty() { scale.as_object_mut() } else { scale[part].as_object_mut() };
        let Some(members) = members else { continue };
        let dot = if part.is_empty() { "" } else { "." };
        found.extend(
            members.keys().filter(|name| !known.contains(&name.as_str())).map(|name| format!("{part}{dot}{name}")),
        );
        members.retain(|name, _| known.contains(&name.as_str()));
    }
    found
}

fn wanted(target: &Target, call: &Call, view: &Value) -> Result<Value, Status> {
    match call.method {
        Method::PUT => decode::body(&call.content_type, &call.body),
        Method::PATCH => verbs::reader(target, call)?(view),
        _ => Err(Status::method_not_allowed()),
    }
}

fn view(resource: &Resource, paths: &ScalePaths, object: &Value) -> Value {
    let selector = paths.selector.as_ref().and_then(|path| object.pointer(path));
    let selector = match selector {
        Some(Value::String(text)) => text.clone(),
        Some(selector) if !resource.custom => {
            LabelSelector::from_json(selector).map(|selector| selector.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    };
    let metadata = &object["metadata"];
    let kept = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: Value = kept.iter().map(|field| ((*field).to_owned(), metadata[*field].clone())).collect();
    // None is written as nothing.
    let replicas = object.pointer(&paths.spec_replicas).filter(|replicas| **replicas != 0);
    let mut status = json!({"replicas": object.pointer(&paths.status_replicas).cloned().unwrap_or(json!(0))});
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": replicas.map(|replicas| json!({"replicas": replicas})).unwrap_or_else(|| json!({})),
        "status": status,
    })
}
