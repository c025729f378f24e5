//! The `scale` subresource: replica counts of a scalable kind as `autoscaling/v1` Scale.

use apimachinery::{ApplyOptions, LabelSelector, Status, StatusCause, object, server_side_apply, typed_patch_error};
use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use crate::http::path::RequestTarget;
use crate::http::request::ApiRequest;
use crate::http::{response, verbs, warning_header};
use crate::resources::{Resource, ScalePaths};
use crate::server::Server;
use crate::write::{FieldValidation, Proposal, Subresource, WriteOptions, WriteRequest, decode, validate};

pub(super) fn serve(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    let Some(paths) = &target.resource.scale else { return Err(Status::path_not_found()) };
    let resource = &target.resource;
    let current_object = server.store().get(&resource.object_key(target.namespace(), target.name()));
    let current_object = current_object.ok_or_else(|| Status::not_found(&resource.group_resource(), target.name()))?;
    if request.method == Method::GET {
        return Ok(response::json_object(&to_scale(resource, paths, &current_object)));
    }
    if request.content_type == verbs::APPLY_PATCH_TYPE && request.method == Method::PATCH {
        return apply_scale(server, target, request, paths);
    }
    let mut warnings = Vec::new();
    let options = WriteOptions { subresource: Some("scale"), ..request.query.write_options(&request.user_agent)? };
    report_unknown_fields(
        &mut requested_scale(target, request, &to_scale(resource, paths, &current_object))?,
        &options,
        &mut warnings,
    )?;
    let propose = |current: Option<&Value>| {
        let current = current.ok_or_else(|| Status::not_found(&resource.group_resource(), target.name()))?;
        let requested_scale = requested_scale(target, request, &to_scale(resource, paths, current))?;
        let mut object = current.clone();
        let revision = object::resource_version(&requested_scale);
        if !revision.is_empty() {
            object::set_metadata_field(&mut object, "resourceVersion", Some(json!(revision)));
        }
        let replicas = requested_scale.pointer("/spec/replicas").cloned().unwrap_or(json!(0));
        check_not_negative(target, &replicas)?;
        object::set_at(&mut object, &paths.spec_replicas, replicas);
        Ok(Proposal::Update(object))
    };
    let write_request =
        WriteRequest { resource, subresource: Subresource::Main, namespace: target.namespace(), options: &options };
    let result = server.modify(&write_request, target.name(), &propose)?;
    Ok(warning_header::append(response::json_object(&to_scale(resource, paths, &result.object)), &warnings))
}

/// Applies a Scale. The field manager of the request becomes the owner of the object's replica count.
fn apply_scale(
    server: &Server,
    target: &RequestTarget,
    request: &ApiRequest,
    paths: &ScalePaths,
) -> Result<Response, Status> {
    let resource = &target.resource;
    let manager = verbs::required_manager(request)?;
    let scale = decode::decode_body(verbs::APPLY_PATCH_TYPE, &request.body)?;
    let text = |field: &str| object::text(&scale, &format!("/{field}")).to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if (version.as_str(), kind.as_str()) != ("autoscaling/v1", "Scale") {
        return Err(Status::bad_request(format!("invalid object type: {version}, Kind={kind}")));
    }
    if resource.custom {
        let object_id = format!("(/{}; {version}, Kind={kind})", object::name(&scale));
        let reason = "request to convert CR to an invalid group/version: autoscaling/v1";
        return Err(Status::internal_error_verbatim(format!(
            "failed to convert new object {object_id} to proper version: {reason}"
        )));
    }
    let unknown_paths = remove_unknown_fields(&mut scale.clone());
    if !unknown_paths.is_empty() {
        let messages = unknown_paths.iter().map(|path| format!(".{path}: field not declared in schema")).collect();
        return Err(typed_patch_error(&scale, &messages));
    }
    let mut requested_scale =
        json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {"name": target.name()}});
    if let Some(replicas) = scale.pointer("/spec/replicas") {
        object::set_at(&mut requested_scale, &paths.spec_replicas, replicas.clone());
    }
    let apply_options = ApplyOptions {
        manager,
        force: request.query.flag("force"),
        api_version: resource.api_version(),
        subresource: Some("scale".to_owned()),
        now: object::format_time(server.now()),
    };
    let propose = |current: Option<&Value>| {
        let current = current.ok_or_else(|| Status::not_found(&resource.group_resource(), target.name()))?;
        let apply = |current: &Value| {
            server_side_apply(&resource.merge_schema, Some(current), &requested_scale, &apply_options)
        };
        let mut result =
            apply(current).map_err(|status| apply(&with_scale_managers(current)).err().unwrap_or(status))?;
        remove_manager_time(&mut result, &apply_options.manager);
        let replicas = result.pointer(&paths.spec_replicas).cloned().unwrap_or(json!(0));
        check_not_negative(target, &replicas)?;
        // A missing replica count is 0.
        object::set_at(&mut result, &paths.spec_replicas, replicas);
        Ok(Proposal::Apply(result))
    };
    let options = request.query.write_options(&request.user_agent)?;
    let write_request =
        WriteRequest { resource, subresource: Subresource::Main, namespace: target.namespace(), options: &options };
    let result = server.modify(&write_request, target.name(), &propose)?;
    Ok(response::json_object(&to_scale(resource, paths, &result.object)))
}

/// Returns the object with `autoscaling/v1` as the API version of all managed fields, as conflict messages of this
/// subresource report it.
fn with_scale_managers(object: &Value) -> Value {
    let mut object = object.clone();
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut).into_iter().flatten();
    entries.for_each(|entry| entry["apiVersion"] = json!("autoscaling/v1"));
    object
}

/// Removes the time from the entry of the field manager: kube-apiserver records none for an applied Scale.
fn remove_manager_time(object: &mut Value, manager: &str) {
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut).into_iter().flatten();
    let is_applied_scale = |entry: &&mut Value| {
        entry["manager"] == manager && entry["operation"] == "Apply" && entry["subresource"] == "scale"
    };
    entries.filter(is_applied_scale).filter_map(Value::as_object_mut).for_each(|entry| drop(entry.remove("time")));
}

fn check_not_negative(target: &RequestTarget, replicas: &Value) -> Result<(), Status> {
    if replicas.as_i64().is_some_and(|count| count < 0) {
        let cause = StatusCause::invalid("spec.replicas", replicas, validate::kinds::NEGATIVE_MESSAGE);
        return Err(Status::invalid("Scale.autoscaling", target.name(), vec![cause]));
    }
    Ok(())
}

/// Reports unknown fields of a Scale as warnings or as an error, depending on `fieldValidation`.
fn report_unknown_fields(scale: &mut Value, options: &WriteOptions, warnings: &mut Vec<String>) -> Result<(), Status> {
    let messages: Vec<String> =
        remove_unknown_fields(scale).into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
    match options.field_validation {
        FieldValidation::Strict if !messages.is_empty() => Err(Status::bad_request(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: strict decoding error: {}",
            messages.join(", ")
        ))),
        FieldValidation::Warn => {
            warnings.extend(messages);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Removes unknown fields of a Scale and returns their paths.
fn remove_unknown_fields(scale: &mut Value) -> Vec<String> {
    const KNOWN: [(&str, &[&str]); 3] = [
        ("", &["apiVersion", "kind", "metadata", "spec", "status"]),
        ("spec", &["replicas"]),
        ("status", &["replicas", "selector"]),
    ];
    let mut unknown = Vec::new();
    for (section, known) in KNOWN {
        let members = if section.is_empty() { scale.as_object_mut() } else { scale[section].as_object_mut() };
        let Some(members) = members else { continue };
        let dot = if section.is_empty() { "" } else { "." };
        unknown.extend(
            members.keys().filter(|name| !known.contains(&name.as_str())).map(|name| format!("{section}{dot}{name}")),
        );
        members.retain(|name, _| known.contains(&name.as_str()));
    }
    unknown
}

fn requested_scale(target: &RequestTarget, request: &ApiRequest, current_scale: &Value) -> Result<Value, Status> {
    match request.method {
        Method::PUT => decode::decode_body(&request.content_type, &request.body),
        Method::PATCH => verbs::patch_function(target, request)?(current_scale),
        _ => Err(Status::method_not_allowed()),
    }
}

fn to_scale(resource: &Resource, paths: &ScalePaths, object: &Value) -> Value {
    let selector = paths.selector.as_ref().and_then(|path| object.pointer(path));
    let selector = match selector {
        Some(Value::String(text)) => text.clone(),
        Some(selector) if !resource.custom => {
            LabelSelector::from_json(selector).map(|selector| selector.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    };
    let metadata = &object["metadata"];
    let metadata_fields = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: Value = metadata_fields.iter().map(|field| ((*field).to_owned(), metadata[*field].clone())).collect();
    // A `spec.replicas` of 0 is omitted, as in Go's encoding.
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
