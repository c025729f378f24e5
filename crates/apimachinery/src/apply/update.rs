//! Field ownership after create, update and patch: the manager that changes a field owns it.

use serde_json::{Map, Value};

use super::compare::{Changes, compare};
use super::managers::{ManagedFields, ManagerId, Managers, without_server_fields};
use super::set_managed_fields;
use crate::merge_schema::MergeSchema;

/// Options of [`track_update`].
#[derive(Clone, Debug)]
pub struct UpdateOptions {
    /// Name of the field manager.
    pub manager: String,
    /// API version of the object, e.g. `apps/v1`.
    pub api_version: String,
    /// The subresource that is written, if any.
    pub subresource: Option<String>,
    /// Current time: RFC 3339, whole seconds, UTC.
    pub now: String,
    /// An empty object of the kind after defaulting; its fields have no owner.
    pub empty_object: Value,
}

/// Updates the managedFields of `after`, which replaces `before` (`None` on create).
///
/// Well-formed managedFields in the request replace the stored ones; kubectl relies on this to migrate ownership. `[]`
/// or `[{}]` removes all owners.
pub fn track_update(schema: &MergeSchema, before: Option<&Value>, after: &mut Value, options: &UpdateOptions) {
    let mut managers = initial_managers(before, after);
    if before.is_some() && managers.0.is_empty() {
        // An object without managedFields is not tracked until it is applied.
        set_managed_fields(after, &managers);
        return;
    }
    let old = before.unwrap_or(&options.empty_object);
    // `managedFields` is not tracked: equal ones are no change. Copies of both objects without it would take longer.
    copy_managed_fields(old, after);
    let Changes { set, removed } = compare(schema, old, after);
    let set = without_server_fields(set);
    let manager = ManagerId::updater(&options.manager, &options.api_version, options.subresource.as_deref());
    managers.remove_fields(&set, Some(&manager));
    managers.remove_fields(&removed, None);
    if !set.is_empty() {
        let empty = ManagedFields { api_version: options.api_version.clone(), time: None, fields: Default::default() };
        let entry = managers.0.entry(manager).or_insert(empty);
        entry.fields.extend(&set);
        // kube-apiserver omits the time of writes through the scale subresource.
        let is_scale = options.subresource.as_deref() == Some("scale");
        entry.time = (!is_scale).then(|| options.now.clone());
    }
    managers.remove_empty();
    managers.cap_update_managers();
    set_managed_fields(after, &managers);
}

fn copy_managed_fields(from: &Value, to: &mut Value) {
    let Some(Value::Object(metadata)) = to.get_mut("metadata") else { return };
    match from.pointer("/metadata/managedFields") {
        Some(entries) => drop(metadata.insert("managedFields".to_owned(), entries.clone())),
        None => drop(metadata.remove("managedFields")),
    }
}

/// Returns the managers before this write: those of the request, otherwise the stored ones.
fn initial_managers(before: Option<&Value>, after: &Value) -> Managers {
    let requested = &after["metadata"]["managedFields"];
    if let Some(entries) = requested.as_array() {
        let is_reset = entries.iter().all(|entry| entry.as_object().is_some_and(Map::is_empty)) && entries.len() < 2;
        if is_reset {
            return Managers::default();
        }
    }
    let requested = Managers::decode(requested).filter(|managers| !managers.0.is_empty());
    let stored = || Managers::decode(&before?["metadata"]["managedFields"]);
    requested.or_else(stored).unwrap_or_default()
}
