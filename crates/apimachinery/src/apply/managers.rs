//! `metadata.managedFields`: the fields each manager owns, and when it last changed them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::field_set::{FieldSet, PathElement};

/// Maximum number of update managers of an object (`DefaultMaxUpdateManagers` in Kubernetes).
const MAX_UPDATE_MANAGERS: usize = 10;
/// Name of the manager that owns the fields of merged update managers.
const ANCIENT_CHANGES_MANAGER: &str = "ancient-changes";

/// Metadata fields that only the server writes; no manager owns or applies them.
pub(super) const SERVER_MANAGED_METADATA: [&str; 8] = [
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The identity of a `managedFields` entry. Apply managers are identified by name and subresource, update managers also by
/// API version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManagerId {
    pub operation: Operation,
    pub name: String,
    /// Empty for apply managers.
    pub api_version: String,
    pub subresource: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// Server-side apply: the manager owns the fields of its last applied configuration.
    Apply,
    /// Any other write, including patches: the manager owns the fields whose values it changed.
    Update,
}

/// The fields of one manager.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ManagedFields {
    pub api_version: String,
    pub time: Option<String>,
    pub fields: FieldSet,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Managers(pub BTreeMap<ManagerId, ManagedFields>);

// === impl ManagerId ===

impl ManagerId {
    pub(super) fn applier(name: &str, subresource: Option<&str>) -> Self {
        Self {
            operation: Operation::Apply,
            name: name.to_owned(),
            api_version: String::new(),
            subresource: subresource.unwrap_or_default().to_owned(),
        }
    }

    pub(super) fn updater(name: &str, api_version: &str, subresource: Option<&str>) -> Self {
        Self { operation: Operation::Update, api_version: api_version.to_owned(), ..Self::applier(name, subresource) }
    }
}

/// Formats a manager as in a conflict message.
impl std::fmt::Display for ManagerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Apply => Ok(()),
            Operation::Update => write!(f, " using {}", self.api_version),
        }
    }
}

// === impl Managers ===

impl Managers {
    /// Decodes `managedFields`; returns `None` if an entry is malformed.
    pub(super) fn decode(entries: &Value) -> Option<Self> {
        let entries = entries.as_array().map_or(&[][..], Vec::as_slice);
        let mut managers = Self::default();
        for entry in entries {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let subresource = text("subresource");
            let subresource = Some(subresource.as_str());
            let manager = match entry["operation"].as_str()? {
                "Apply" => ManagerId::applier(&text("manager"), subresource),
                "Update" => ManagerId::updater(&text("manager"), &text("apiVersion"), subresource),
                _ => return None,
            };
            let fields = FieldSet::from_json(&entry["fieldsV1"]);
            let time = entry["time"].as_str().map(str::to_owned);
            managers.0.insert(manager, ManagedFields { api_version: text("apiVersion"), time, fields });
        }
        Some(managers)
    }

    /// Encodes `managedFields`: apply managers first, then by time and name, without managers that own no fields.
    pub(super) fn encode(&self) -> Value {
        let mut entries: Vec<(&ManagerId, &ManagedFields)> =
            self.0.iter().filter(|(_, entry)| !entry.fields.is_empty()).collect();
        entries.sort_by_key(|(manager, entry)| (manager.operation, &entry.time, *manager));
        entries.into_iter().map(|(manager, entry)| encode(manager, entry)).collect()
    }

    /// Returns all owned fields.
    pub(super) fn union(&self) -> FieldSet {
        let mut union = FieldSet::default();
        self.0.values().for_each(|entry| union.extend(&entry.fields));
        union
    }

    /// Removes `fields` from all managers except `except`.
    pub(super) fn remove_fields(&mut self, fields: &FieldSet, except: Option<&ManagerId>) {
        let others = self.0.iter_mut().filter(|(manager, _)| Some(*manager) != except);
        others.for_each(|(_, entry)| entry.fields.subtract(fields));
    }

    /// Limits update managers to [`MAX_UPDATE_MANAGERS`] by merging the oldest of each API version into one entry, so
    /// that `managedFields` does not grow with every new client.
    pub(super) fn cap_update_managers(&mut self) {
        let update_managers = self.0.iter().filter(|(manager, _)| manager.operation == Operation::Update);
        let mut oldest: Vec<(Option<String>, ManagerId)> =
            update_managers.map(|(manager, entry)| (entry.time.clone(), manager.clone())).collect();
        oldest.sort();
        let mut remaining = oldest.len();
        let mut previous_by_version: BTreeMap<String, ManagerId> = BTreeMap::new();
        for (time, manager) in oldest {
            if remaining <= MAX_UPDATE_MANAGERS {
                return;
            }
            let Some(previous) = previous_by_version.get(&manager.api_version) else {
                previous_by_version.insert(manager.api_version.clone(), manager);
                continue;
            };
            let bucket = ManagerId::updater(ANCIENT_CHANGES_MANAGER, &manager.api_version, None);
            if let Some(entry) = self.0.remove(previous).filter(|_| *previous != bucket) {
                self.0.insert(bucket.clone(), entry);
            }
            previous_by_version.insert(manager.api_version.clone(), bucket.clone());
            if let (Some(merged), Some(entry)) = (self.0.remove(&manager), self.0.get_mut(&bucket)) {
                entry.fields.extend(&merged.fields);
                entry.time = time;
                remaining -= 1;
            }
        }
    }

    /// Removes managers that own no fields.
    pub(super) fn remove_empty(&mut self) {
        self.0.retain(|_, entry| !entry.fields.is_empty());
    }
}

fn encode(manager: &ManagerId, entry: &ManagedFields) -> Value {
    let mut map = Map::new();
    let operation = match manager.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    map.insert("manager".into(), manager.name.clone().into());
    map.insert("operation".into(), operation.into());
    map.insert("apiVersion".into(), entry.api_version.clone().into());
    if let Some(time) = &entry.time {
        map.insert("time".into(), time.clone().into());
    }
    map.insert("fieldsType".into(), json!("FieldsV1"));
    map.insert("fieldsV1".into(), entry.fields.to_json());
    if !manager.subresource.is_empty() {
        map.insert("subresource".into(), manager.subresource.clone().into());
    }
    Value::Object(map)
}

/// Removes fields that no manager owns: the identity of the object and server-managed metadata.
pub(super) fn without_server_fields(mut fields: FieldSet) -> FieldSet {
    let field = |name: &str| PathElement::Field(name.to_owned());
    fields.is_member = false;
    for name in ["apiVersion", "kind"] {
        fields.children.remove(&field(name));
    }
    if let Some(metadata) = fields.children.get_mut(&field("metadata")) {
        metadata.is_member = false;
        for name in SERVER_MANAGED_METADATA.iter().chain(&["name", "namespace"]) {
            metadata.children.remove(&field(name));
        }
        if metadata.is_empty() {
            fields.children.remove(&field("metadata"));
        }
    }
    fields
}
