//! Server-side apply and the bookkeeping of who owns which field.
//!
//! Rules as in Kubernetes' structured-merge-diff: a manager owns what it applies or changes; applying a field again
//! that it left out gives it up, and a field that nobody owns any more is removed; changing what another manager
//! owns is a conflict unless forced.

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

use crate::status::{Cause, Status};
use crate::structure::Structure;
use field_set::{FieldSet, Step};
use managers::{Entry, Manager, Managers, without_server_fields};

pub use managers::forget_idle_times;
pub use update::{UpdateOptions, track_update};
pub(crate) use view::element_name;

/// Who applies, and how.
#[derive(Clone, Debug)]
pub struct ApplyOptions {
    pub manager: String,
    /// Take fields from other managers instead of answering 409.
    pub force: bool,
    /// Of the object, e.g. `apps/v1`.
    pub api_version: String,
    /// With `status`, only `status` of the applied object counts.
    pub subresource: Option<String>,
    /// RFC 3339, whole seconds, UTC.
    pub now: String,
}

/// Metadata that only the server writes; nobody owns it and nobody applies it.
const SERVER_METADATA: [&str; 8] = [
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The object after `applied` is laid over `live`, with its managedFields. Equal to `live` if nothing changes.
///
/// The caller checks resourceVersion and uid of `applied`; here they do not count. A kind whose status is a
/// subresource must have `status` taken out of `applied` when the subresource is not the one written.
///
/// # Errors
/// 409 that names managers and fields; 400 if `applied` has managedFields or a list without its keys.
pub fn apply(
    structure: &Structure,
    live: Option<&Value>,
    applied: &Value,
    options: &ApplyOptions,
) -> Result<Value, Status> {
    let applied = admit(structure, applied, options)?;
    let base = live.map_or_else(|| Value::Object(Map::new()), without_managed_fields);
    let mut managers = live.map(|live| managers_of(structure, live, &options.now)).unwrap_or_default();

    let me = Manager::applier(&options.manager, options.subresource.as_deref());
    let previous = managers.0.remove(&me);
    let mine = view::applied_fields(structure, &applied);

    let mut result = merge::merge(structure, Some(&base), &applied);
    if let Some(previous) = &previous {
        let mut kept = managers.union();
        kept.extend(&mine);
        keep_identity(&mut kept);
        merge::remove(structure, &mut result, &previous.fields, &kept);
    }

    let changes = compare::compare(structure, &base, &result);
    if !options.force {
        refuse_conflicts(&managers, &changes.set)?;
    }
    managers.take(&changes.set, None);
    managers.take(&changes.removed, None);

    let fields = without_server_fields(mine);
    let is_same = previous.as_ref().is_some_and(|p| p.fields == fields && p.api_version == options.api_version);
    if let Some(live) = live.filter(|_| is_same && result == base) {
        return Ok(live.clone());
    }
    // Whoever applies what is there already shares it, and has no time of its own.
    let time = if result == base { previous.and_then(|previous| previous.time) } else { Some(options.now.clone()) };
    let entry = Entry { api_version: options.api_version.clone(), time, fields };
    managers.0.insert(me, entry);
    set_managed_fields(&mut result, &managers);
    Ok(result)
}

/// Whether two states of an object differ in nothing but when somebody came to own something.
#[must_use]
pub fn is_same_but_for_times(one: &Value, other: &Value) -> bool {
    let timeless = |object: &Value| {
        let mut object = object.clone();
        let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        let entries = entries.into_iter().flatten().filter_map(Value::as_object_mut);
        entries.for_each(|entry| drop(entry.remove("time")));
        object
    };
    one == other || timeless(one) == timeless(other)
}

/// What of `applied` counts.
fn admit(structure: &Structure, applied: &Value, options: &ApplyOptions) -> Result<Value, Status> {
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
        metadata.retain(|name, _| !SERVER_METADATA.contains(&name.as_str()));
        if options.subresource.as_deref() == Some("status") {
            metadata.retain(|name, _| matches!(name.as_str(), "name" | "namespace"));
        }
    }
    view::check(structure, &applied, "").map_err(|error| untyped(&applied, &error))?;
    Ok(applied)
}

/// 500, as the API server answers a configuration that does not fit the type of its kind; `errors` begin with the field.
pub fn untypable(applied: &Value, errors: &BTreeSet<String>) -> Status {
    match errors.first() {
        Some(error) if errors.len() == 1 => untyped(applied, error),
        _ => {
            let lines: String = errors.iter().map(|error| format!("\n  {error}")).collect();
            untyped(applied, &format!("errors:{lines}"))
        }
    }
}

/// The same with one error.
fn untyped(applied: &Value, error: &str) -> Status {
    let text = |pointer: &str| applied.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    Status::unexplained(format!(
        "failed to create typed patch object ({}/{}; {slash}{version}, Kind={}): {error}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/kind")
    ))
}

/// The managers of a stored object. One that nobody is recorded for belongs to `before-first-apply`.
fn managers_of(structure: &Structure, live: &Value, now: &str) -> Managers {
    let managers = Managers::decode(&live["metadata"]["managedFields"]).unwrap_or_default();
    if !managers.0.is_empty() {
        return managers;
    }
    let api_version = live["apiVersion"].as_str().unwrap_or_default().to_owned();
    let fields = without_server_fields(view::all_fields(structure, &without_managed_fields(live)));
    let first = Manager::updater("before-first-apply", &api_version, None);
    Managers([(first, Entry { api_version, time: Some(now.to_owned()), fields })].into())
}

fn refuse_conflicts(managers: &Managers, changed: &FieldSet) -> Result<(), Status> {
    let conflicts: Vec<(&Manager, Vec<String>)> = managers
        .0
        .iter()
        .map(|(manager, entry)| (manager, entry.fields.common(changed)))
        .filter(|(_, paths)| !paths.is_empty())
        .collect();
    if conflicts.is_empty() {
        return Ok(());
    }
    let causes: Vec<Cause> = conflicts
        .iter()
        .flat_map(|(manager, paths)| paths.iter().map(move |path| (manager, path)))
        .map(|(manager, path)| Cause::new(path, "FieldManagerConflict", format!("conflict with {manager}")))
        .collect();
    Err(Status::apply_conflict(conflict_text(&conflicts, causes.len()), &causes))
}

fn conflict_text(conflicts: &[(&Manager, Vec<String>)], count: usize) -> String {
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

/// An object keeps its identity whoever gives up what.
fn keep_identity(kept: &mut FieldSet) {
    for name in ["apiVersion", "kind", "metadata"] {
        kept.put(Step::Field(name.to_owned()), FieldSet::leaf());
    }
}

fn without_managed_fields(object: &Value) -> Value {
    // They are often the larger part: left out rather than copied and dropped.
    let but = |members: &Map<String, Value>, left_out: &str| -> Map<String, Value> {
        members
            .iter()
            .filter(|(name, _)| *name != left_out)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    match (object, object.get("metadata")) {
        (Value::Object(members), Some(Value::Object(metadata))) => {
            let mut copy = but(members, "metadata");
            copy.insert("metadata".to_owned(), Value::Object(but(metadata, "managedFields")));
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
