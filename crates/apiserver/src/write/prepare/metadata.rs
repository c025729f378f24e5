//! Metadata owned by the server: type, namespace, UID, timestamps, generation and managed fields.

use apimachinery::{Status, object};
use serde_json::{Map, Value, json};

use crate::ports::Random;
use crate::resources::Resource;
use crate::write::Subresource;

/// Maximum length of a generated name (`maxNameLength`) without the random suffix.
const MAX_GENERATED_PREFIX: usize = 63 - 5;

/// Metadata fields that only the server sets.
const SERVER_OWNED_FIELDS: [&str; 6] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

/// Sets the `apiVersion` of the storage version, the `kind`, and the namespace of the request.
pub(in crate::write) fn set_type_and_namespace(
    resource: &Resource,
    namespace: &str,
    object: &mut Value,
) -> Result<(), Status> {
    let members = object::members(object);
    members.insert("apiVersion".to_owned(), json!(resource.storage_api_version));
    members.insert("kind".to_owned(), json!(resource.kind));
    drop_nulls(object::metadata(object));
    if !resource.namespaced {
        object::set_metadata_field(object, "namespace", None);
        return Ok(());
    }
    let namespace_in_body = object::namespace(object);
    if !namespace_in_body.is_empty() && namespace_in_body != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object::set_metadata_field(object, "namespace", Some(json!(namespace)));
    Ok(())
}

/// If the name is empty, sets it to `generateName` followed by five random characters.
pub(in crate::write) fn generate_name(object: &mut Value, random: &dyn Random) {
    if !object::name(object).is_empty() {
        return;
    }
    let prefix = object::text(object, "/metadata/generateName");
    if !prefix.is_empty() {
        let prefix: String = prefix.chars().take(MAX_GENERATED_PREFIX).collect();
        let name = format!("{prefix}{}", random.suffix(5));
        object::set_metadata_field(object, "name", Some(json!(name)));
    }
}

/// Sets UID, creation timestamp and generation of a new object.
pub(in crate::write) fn initialize_metadata(resource: &Resource, object: &mut Value, uid: &str, now: jiff::Timestamp) {
    for field in SERVER_OWNED_FIELDS.into_iter().filter(|field| resource.has_generation || *field != "generation") {
        object::set_metadata_field(object, field, None);
    }
    object::set_metadata_field(object, "resourceVersion", None);
    object::set_metadata_field(object, "uid", Some(json!(uid)));
    object::set_metadata_field(object, "creationTimestamp", Some(json!(object::format_time(now))));
    if resource.has_generation {
        object::set_metadata_field(object, "generation", Some(json!(1)));
    }
}

/// Restores the fields that this write must not change to their values in the current object.
pub(in crate::write) fn retain_server_fields(
    subresource: Subresource,
    resource: &Resource,
    current: &Value,
    object: &mut Value,
) {
    let managed_fields = object.pointer("/metadata/managedFields").cloned();
    match subresource {
        Subresource::Main => {
            for field in SERVER_OWNED_FIELDS {
                object::copy_metadata_field(object, field, current);
            }
            object::copy_metadata_field(object, "name", current);
            if resource.has_status {
                copy_member(object, "status", current);
            }
        }
        Subresource::Status => {
            let status = object.get("status").cloned();
            *object = current.clone();
            set_member(object, "status", status);
        }
    }
    object::copy_metadata_field(object, "resourceVersion", current);
    // If the request has no `managedFields`, the current ones are retained. An empty list resets them.
    match managed_fields {
        Some(managed_fields) => object::set_metadata_field(object, "managedFields", Some(managed_fields)),
        None => object::copy_metadata_field(object, "managedFields", current),
    }
}

/// Increments the generation if anything except metadata and status changed.
pub(in crate::write) fn update_generation(resource: &Resource, current: &Value, object: &mut Value) {
    if !resource.has_generation {
        return;
    }
    let without_metadata_and_status = |object: &Value| {
        let mut object = object.clone();
        let members = object::members(&mut object);
        members.remove("metadata");
        if resource.has_status {
            members.remove("status");
        }
        object
    };
    let differs = |field: &str| current["metadata"].get(field) != object["metadata"].get(field);
    let has_relevant_metadata_change = match resource.storage.as_str() {
        // The Deployment controller copies annotations to the ReplicaSets.
        "deployments.apps" => differs("annotations"),
        // A label of an EndpointSlice contains the name of its Service.
        "endpointslices.discovery.k8s.io" => differs("labels"),
        _ => false,
    };
    if has_relevant_metadata_change || without_metadata_and_status(current) != without_metadata_and_status(object) {
        let generation = current.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        object::set_metadata_field(object, "generation", Some(json!(generation.saturating_add(1))));
    }
}

fn drop_nulls(metadata: &mut Map<String, Value>) {
    metadata.retain(|_, value| !value.is_null());
}

fn copy_member(object: &mut Value, name: &str, from: &Value) {
    set_member(object, name, from.get(name).cloned());
}

fn set_member(object: &mut Value, name: &str, value: Option<Value>) {
    let members = object::members(object);
    match value {
        Some(value) => {
            members.insert(name.to_owned(), value);
        }
        None => {
            members.remove(name);
        }
    }
}
