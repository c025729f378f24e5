//! Ownership after POST, PUT and PATCH: whoever changes a field owns it.

use serde_json::{Map, Value};

use super::compare::{Changes, compare};
use super::managers::{Entry, Manager, Managers, without_server_fields};
use super::{set_managed_fields, without_managed_fields};
use crate::structure::Structure;

/// Who writes.
#[derive(Clone, Debug)]
pub struct UpdateOptions {
    pub manager: String,
    /// Of the object, e.g. `apps/v1`.
    pub api_version: String,
    pub subresource: Option<String>,
    /// RFC 3339, whole seconds, UTC.
    pub now: String,
    /// What an empty object of the kind looks like: what is in it needs no owner.
    pub blank: Value,
}

/// Writes into `after` who owns what, once it replaced `before` (None on create). The managedFields that `after`
/// came with count when they are well-formed (kubectl migrates ownership so); `[]` or `[{}]` forgets all owners.
pub fn track_update(structure: &Structure, before: Option<&Value>, after: &mut Value, options: &UpdateOptions) {
    let mut managers = starting_point(before, after);
    if before.is_some() && managers.0.is_empty() {
        // An object without recorded owners stays so until it is applied.
        set_managed_fields(after, &managers);
        return;
    }
    let old = before.map_or_else(|| options.blank.clone(), without_managed_fields);
    let Changes { set, removed } = compare(structure, &old, &without_managed_fields(after));
    let set = without_server_fields(set);
    let me = Manager::updater(&options.manager, &options.api_version, options.subresource.as_deref());
    managers.take(&set, Some(&me));
    managers.take(&removed, None);
    if !set.is_empty() {
        let nothing = Entry { api_version: options.api_version.clone(), time: None, fields: Default::default() };
        let mine = managers.0.entry(me).or_insert(nothing);
        mine.fields.extend(&set);
        // As kube-apiserver, which loses the time on the way through the scale.
        let is_scale = options.subresource.as_deref() == Some("scale");
        mine.time = (!is_scale).then(|| options.now.clone());
    }
    managers.drop_empty();
    managers.merge_oldest_updates();
    set_managed_fields(after, &managers);
}

/// The owners before this write: as sent along, else as stored.
fn starting_point(before: Option<&Value>, after: &Value) -> Managers {
    let sent = &after["metadata"]["managedFields"];
    if let Some(entries) = sent.as_array() {
        let is_reset = entries.iter().all(|entry| entry.as_object().is_some_and(Map::is_empty)) && entries.len() < 2;
        if is_reset {
            return Managers::default();
        }
    }
    let sent = Managers::decode(sent).filter(|managers| !managers.0.is_empty());
    let stored = || Managers::decode(&before?["metadata"]["managedFields"]);
    sent.or_else(stored).unwrap_or_default()
}
