//! Server-side apply and the tracking of field ownership.
//!
//! Implements the rules of Kubernetes' structured-merge-diff: a manager owns the fields that it applies or changes. A field
//! that it no longer applies is released, and removed if no other manager owns it. Changing a field of another manager is
//! a conflict unless forced.

mod compare;
mod field_set;
mod managers;
mod merge;
mod update;
mod view;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::merge_schema::MergeSchema;
use crate::status::{Status, StatusCause};
use field_set::{FieldSet, PathElement};
use managers::{ManagedFields, ManagerId, Managers, SERVER_MANAGED_METADATA, without_server_fields};

pub use update::{UpdateOptions, track_update};
pub(crate) use view::list_element_path;

/// Options of [`server_side_apply`].
#[derive(Clone, Debug)]
pub struct ApplyOptions {
    /// Name of the field manager.
    pub manager: String,
    /// Take ownership of conflicting fields instead of failing with 409.
    pub force: bool,
    /// API version of the object, e.g. `apps/v1`.
    pub api_version: String,
    /// The subresource that is written; with `status`, only `status` of the applied object is used.
    pub subresource: Option<String>,
    /// Current time: RFC 3339, whole seconds, UTC.
    pub now: String,
}

/// Returns `live` with the configuration `applied` merged into it and managedFields updated; equal to `live` if nothing
/// changes.
///
/// The resourceVersion and UID of `applied` are ignored; the caller checks them. For a kind with a status subresource, the
/// caller removes `status` from `applied` unless the subresource is written.
///
/// # Errors
/// 409 with the conflicting managers and fields; 400 if `applied` has managedFields; 500 if a list element lacks its key.
pub fn server_side_apply(
    schema: &MergeSchema,
    live: Option<&Value>,
    applied: &Value,
    options: &ApplyOptions,
) -> Result<Value, Status> {
    let applied = prepare(schema, applied, options)?;
    let base = live.map_or_else(|| Value::Object(Map::new()), without_managed_fields);
    let mut managers = live.map(|live| managers_of(schema, live, &options.now)).unwrap_or_default();

    let manager = ManagerId::applier(&options.manager, options.subresource.as_deref());
    let previous = managers.0.remove(&manager);
    let applied_fields = view::applied_fields(schema, &applied);

    let mut result = merge::merge(schema, Some(&base), &applied);
    if let Some(previous) = &previous {
        let mut retained = managers.union();
        retained.extend(&applied_fields);
        retain_identity(&mut retained);
        merge::remove(schema, &mut result, &previous.fields, &retained);
    }

    if compare::equal_values(&base, &result) {
        result.clone_from(&base);
    }
    let changes = compare::compare(schema, &base, &result);
    if !options.force {
        check_conflicts(&managers, &changes.set)?;
    }
    managers.remove_fields(&changes.set, None);
    managers.remove_fields(&changes.removed, None);

    let fields = without_server_fields(applied_fields);
    let is_unchanged = previous
        .as_ref()
        .is_some_and(|previous| previous.fields == fields && previous.api_version == options.api_version);
    if let Some(live) = live.filter(|_| is_unchanged && result == base) {
        return Ok(live.clone());
    }
    // Applying unchanged values adds an owner but does not change the time.
    let time = if result == base { previous.and_then(|previous| previous.time) } else { Some(options.now.clone()) };
    let entry = ManagedFields { api_version: options.api_version.clone(), time, fields };
    managers.0.insert(manager, entry);
    set_managed_fields(&mut result, &managers);
    Ok(result)
}

/// Reports whether two states of an object are equal except for managedFields timestamps.
#[must_use]
pub fn equal_ignoring_timestamps(a: &Value, b: &Value) -> bool {
    let without_timestamps = |object: &Value| {
        let mut object = object.clone();
        let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        let entries = entries.into_iter().flatten().filter_map(Value::as_object_mut);
        entries.for_each(|entry| drop(entry.remove("time")));
        object
    };
    a == b || without_timestamps(a) == without_timestamps(b)
}

/// Removes the parts of `applied` that are not applied, and validates the rest.
fn prepare(schema: &MergeSchema, applied: &Value, options: &ApplyOptions) -> Result<Value, Status> {
    let mut applied = applied.clone();
    let Some(map) = applied.as_object_mut() else {
        return Err(Status::bad_request("the applied configuration must be an object"));
    };
    if options.subresource.as_deref() == Some("status") {
        map.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    }
    if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
        let fields = metadata.get("managedFields").and_then(Value::as_array);
        if fields.is_some_and(|fields| !fields.is_empty()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        metadata.retain(|name, _| !SERVER_MANAGED_METADATA.contains(&name.as_str()));
        if options.subresource.as_deref() == Some("status") {
            metadata.retain(|name, _| matches!(name.as_str(), "name" | "namespace"));
        }
    }
    view::check_list_keys(schema, &applied, "").map_err(|error| typed_patch_error_with(&applied, &error))?;
    Ok(applied)
}

/// Returns the 500 `Status` for an applied configuration with typing errors; each error starts with its field path.
pub fn typed_patch_error(applied: &Value, errors: &BTreeSet<String>) -> Status {
    match errors.first() {
        Some(error) if errors.len() == 1 => typed_patch_error_with(applied, error),
        _ => {
            let lines: String = errors.iter().map(|error| format!("\n  {error}")).collect();
            typed_patch_error_with(applied, &format!("errors:{lines}"))
        }
    }
}

/// Returns the `Status` of [`typed_patch_error`] for a formatted error.
fn typed_patch_error_with(applied: &Value, error: &str) -> Status {
    let text = |pointer: &str| applied.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("/apiVersion");
    let separator = if api_version.contains('/') { "" } else { "/" };
    Status::internal_error_verbatim(format!(
        "failed to create typed patch object ({}/{}; {separator}{api_version}, Kind={}): {error}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/kind")
    ))
}

/// Returns the managers of a stored object. An object without managedFields is owned by `before-first-apply`.
fn managers_of(schema: &MergeSchema, live: &Value, now: &str) -> Managers {
    let managers = Managers::decode(&live["metadata"]["managedFields"]).unwrap_or_default();
    if !managers.0.is_empty() {
        return managers;
    }
    let api_version = live["apiVersion"].as_str().unwrap_or_default().to_owned();
    let fields = without_server_fields(view::all_fields(schema, &without_managed_fields(live)));
    let manager = ManagerId::updater("before-first-apply", &api_version, None);
    Managers([(manager, ManagedFields { api_version, time: Some(now.to_owned()), fields })].into())
}

fn check_conflicts(managers: &Managers, changed: &FieldSet) -> Result<(), Status> {
    let conflicts: Vec<(&ManagerId, Vec<String>)> = managers
        .0
        .iter()
        .map(|(manager, entry)| (manager, entry.fields.intersection(changed)))
        .filter(|(_, paths)| !paths.is_empty())
        .collect();
    if conflicts.is_empty() {
        return Ok(());
    }
    let causes: Vec<StatusCause> = conflicts
        .iter()
        .flat_map(|(manager, paths)| paths.iter().map(move |path| (manager, path)))
        .map(|(manager, path)| StatusCause::new(path, "FieldManagerConflict", format!("conflict with {manager}")))
        .collect();
    Err(Status::apply_conflict(conflict_message(&conflicts, causes.len()), &causes))
}

fn conflict_message(conflicts: &[(&ManagerId, Vec<String>)], count: usize) -> String {
    if let ([(manager, paths)], 1) = (conflicts, count) {
        return format!("Apply failed with 1 conflict: conflict with {manager}: {}", paths[0]);
    }
    let mut lines = Vec::new();
    for (manager, paths) in conflicts {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(paths.iter().map(|path| format!("- {path}")));
    }
    format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
}

/// Adds the identity of the object, which is never removed.
fn retain_identity(retained: &mut FieldSet) {
    for name in ["apiVersion", "kind", "metadata"] {
        retained.insert(PathElement::Field(name.to_owned()), FieldSet::leaf());
    }
}

fn without_managed_fields(object: &Value) -> Value {
    // Skipped rather than copied and removed: managedFields is often the largest part of an object.
    let copy_without = |map: &Map<String, Value>, excluded: &str| -> Map<String, Value> {
        map.iter().filter(|(name, _)| *name != excluded).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    match (object, object.get("metadata")) {
        (Value::Object(object), Some(Value::Object(metadata))) => {
            let mut copy = copy_without(object, "metadata");
            copy.insert("metadata".to_owned(), Value::Object(copy_without(metadata, "managedFields")));
            Value::Object(copy)
        }
        _ => object.clone(),
    }
}

fn set_managed_fields(object: &mut Value, managers: &Managers) {
    let encoded = managers.encode();
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        if encoded.as_array().is_some_and(Vec::is_empty) {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".into(), encoded);
        }
    }
}
