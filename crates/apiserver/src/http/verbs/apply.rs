//! PATCH with server-side apply.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::{ApplyOptions, Status, StatusCause, TypeCheck, object, server_side_apply, typed_patch_error};
use serde_json::Value;

use super::write::written_subresource;
use crate::api_types::type_check::TypeMismatch;
use crate::conversion;
use crate::cpu_threads::offer_cpu;
use crate::http::path::RequestTarget;
use crate::http::representation;
use crate::http::request::ApiRequest;
use crate::resources::Resource;
use crate::server::Server;
use crate::write::{
    FieldValidation, FieldWarnings, Proposal, Subresource, WriteOptions, decode, normalize, preconditions,
};

/// Content type of server-side apply.
pub(in crate::http) const APPLY_PATCH_TYPE: &str = "application/apply-patch+yaml";

/// Returns a function that applies the configuration of the request to the current object.
///
/// # Errors
/// 400 and 422 for an invalid configuration or a missing field manager.
pub(super) fn propose_apply<'a>(
    server: &Server,
    target: &'a RequestTarget,
    request: &ApiRequest,
) -> Result<impl Fn(Option<&Value>) -> Result<Proposal, Status> + 'a, Status> {
    let resource = &target.resource;
    let options = ApplyOptions {
        manager: required_manager(request)?,
        force: request.query.flag("force"),
        api_version: resource.api_version(),
        subresource: written_subresource(target).managed_fields_name(),
        now: object::format_time(server.now()),
    };
    let configuration = read_configuration(target, request)?;
    let revision = object::resource_version(&configuration).to_owned();
    Ok(move |current: Option<&Value>| {
        let mut configuration = configuration.clone();
        object::set_metadata_field(&mut configuration, "resourceVersion", None);
        if object::name(&configuration).is_empty() {
            object::set_metadata_field(&mut configuration, "name", Some(target.name().into()));
        }
        let uid = object::uid(&configuration);
        if current.is_none() && !uid.is_empty() {
            let message =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(&resource.group_resource(), target.name(), &message));
        }
        let current_version =
            current.map(|current| representation::to_served_version(resource, &Arc::new(current.clone())));
        offer_cpu();
        let result = server_side_apply(&resource.merge_schema, current_version.as_deref(), &configuration, &options)?;
        offer_cpu();
        preconditions::check_name(target.name(), &configuration)?;
        if let Some(current) = current {
            match revision.as_str() {
                "" => {}
                preconditions::UNCONDITIONAL => preconditions::check_unconditional(resource, target.name())?,
                revision if revision == object::resource_version(current) => {}
                _ => return Err(Status::object_modified(&resource.group_resource(), target.name())),
            }
            let ignores_uid = resource.custom && written_subresource(target) == Subresource::Status;
            if !ignores_uid {
                preconditions::check_patched_uid(resource, target.name(), current, &configuration)?;
            }
        }
        Ok(Proposal::Apply(conversion::to_storage(resource, result)))
    })
}

/// Decodes and validates the applied configuration.
fn read_configuration(target: &RequestTarget, request: &ApiRequest) -> Result<Value, Status> {
    let resource = &target.resource;
    let configuration = decode::decode_body(APPLY_PATCH_TYPE, &request.body)?;
    let kind = object::text(&configuration, "/kind");
    if !kind.is_empty() && kind != resource.kind {
        let version = object::text(&configuration, "/apiVersion");
        let slash = if version.contains('/') { "" } else { "/" };
        return Err(Status::bad_request(format!("invalid object type: {slash}{version}, Kind={kind}")));
    }
    let configuration = decode::check_type_meta(resource, configuration)?;
    if configuration.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    offer_cpu();
    check_fields(resource, &configuration)?;
    offer_cpu();
    let mut configuration = normalize::replace_null_strings(resource, configuration);
    normalize::normalize_integers(resource, &mut configuration);
    // The main resource does not write the status, so fields of the status get no manager.
    if resource.has_status && resource.storage != "nodes" && written_subresource(target) == Subresource::Main {
        object::members(&mut configuration).remove("status");
    }
    Ok(configuration)
}

/// Finds duplicate keys in an applied configuration.
///
/// # Errors
/// 400 for duplicate keys with strict field validation.
pub(super) fn check_duplicate_keys(request: &ApiRequest, options: &WriteOptions) -> Result<FieldWarnings, Status> {
    let field_warnings = FieldWarnings::from_yaml(&request.body);
    match field_warnings.yaml_error().filter(|_| options.field_validation == FieldValidation::Strict) {
        Some(keys) => {
            Err(Status::bad_request(format!("error strict decoding patch: error converting YAML to JSON: {keys}")))
        }
        None => Ok(field_warnings),
    }
}

/// Returns the field manager, which server-side apply requires.
pub(in crate::http) fn required_manager(request: &ApiRequest) -> Result<String, Status> {
    let cause = || StatusCause::required("fieldManager", "is required for apply patch");
    let missing = || Status::invalid("PatchOptions.meta.k8s.io", "", vec![cause()]);
    request.query.get("fieldManager").map(str::to_owned).ok_or_else(missing)
}

/// Returns kube-apiserver's error for an applied string that cannot be converted to its type.
fn conversion_error(resource: &Resource, configuration: &Value, time: &TypeMismatch) -> Status {
    let kind = format!("{}, Kind={}", resource.api_version(), resource.kind);
    let object_id = format!("({}/{}; {kind})", object::namespace(configuration), object::name(configuration));
    let reason = format!("unable to convert unstructured object to {kind}: {time}");
    Status::internal_error_verbatim(format!("failed to convert new object {object_id} to proper version: {reason}"))
}

/// Checks field names and types of an applied configuration: undeclared fields cannot have a manager.
fn check_fields(resource: &Resource, configuration: &Value) -> Result<(), Status> {
    let (invalid_times, mismatches): (Vec<_>, Vec<_>) =
        normalize::type_mismatches(resource, configuration).into_iter().partition(TypeMismatch::is_invalid_time);
    let mut messages: BTreeSet<String> = mismatches.iter().map(TypeMismatch::apply_message).collect();
    if let Some(schema) = resource.schema() {
        // The field types of built-in kinds are checked above.
        let depth = if resource.custom { TypeCheck::FieldTypes } else { TypeCheck::FieldNames };
        messages.extend(schema.typing_errors(&resource.merge_schema, configuration, depth));
    }
    if !messages.is_empty() {
        return Err(typed_patch_error(configuration, &messages));
    }
    invalid_times.first().map_or(Ok(()), |time| Err(conversion_error(resource, configuration, time)))
}
