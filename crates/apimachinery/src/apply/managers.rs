//! `metadata.managedFields`: who owns what, since when.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::field_set::{FieldSet, Step};

/// How many managers that update are told apart (`DefaultMaxUpdateManagers`), and the name of the others.
const MOST_UPDATERS: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// One manager in one role. Appliers are told apart by name alone, updaters by the version they wrote, too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Manager {
    pub operation: Operation,
    pub name: String,
    pub api_version: String,
    pub subresource: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub api_version: String,
    pub time: Option<String>,
    pub fields: FieldSet,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Managers(pub BTreeMap<Manager, Entry>);

// === impl Manager ===

impl Manager {
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

/// As a conflict names it.
impl std::fmt::Display for Manager {
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
    /// Reads `managedFields`. None if an entry is not one.
    pub(super) fn decode(entries: &Value) -> Option<Self> {
        let entries = entries.as_array().map_or(&[][..], Vec::as_slice);
        let mut managers = Self::default();
        for entry in entries {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let subresource = text("subresource");
            let subresource = Some(subresource.as_str());
            let manager = match entry["operation"].as_str()? {
                "Apply" => Manager::applier(&text("manager"), subresource),
                "Update" => Manager::updater(&text("manager"), &text("apiVersion"), subresource),
                _ => return None,
            };
            let fields = FieldSet::from_json(&entry["fieldsV1"]);
            let time = entry["time"].as_str().map(str::to_owned);
            managers.0.insert(manager, Entry { api_version: text("apiVersion"), time, fields });
        }
        Some(managers)
    }

    /// Writes `managedFields`: appliers first, then by time and name; those who own nothing are left out.
    pub(super) fn encode(&self) -> Value {
        let mut entries: Vec<(&Manager, &Entry)> = self.0.iter().filter(|(_, e)| !e.fields.is_empty()).collect();
        entries.sort_by_key(|(manager, entry)| (manager.operation, &entry.time, *manager));
        entries.into_iter().map(|(manager, entry)| encode(manager, entry)).collect()
    }

    /// Everything that somebody owns.
    pub(super) fn union(&self) -> FieldSet {
        let mut all = FieldSet::default();
        self.0.values().for_each(|entry| all.extend(&entry.fields));
        all
    }

    /// Takes fields from everyone but `except`.
    pub(super) fn take(&mut self, fields: &FieldSet, except: Option<&Manager>) {
        let others = self.0.iter_mut().filter(|(manager, _)| Some(*manager) != except);
        others.for_each(|(_, entry)| entry.fields.subtract(fields));
    }

    /// Keeps at most [`MOST_UPDATERS`]: the oldest of one version become one entry, as `managedFields` would else grow
    /// with every new client.
    pub(super) fn merge_oldest_updates(&mut self) {
        let updaters = self.0.iter().filter(|(manager, _)| manager.operation == Operation::Update);
        let mut oldest: Vec<(Option<String>, Manager)> =
            updaters.map(|(manager, entry)| (entry.time.clone(), manager.clone())).collect();
        oldest.sort();
        let mut left = oldest.len();
        let mut first: BTreeMap<String, Manager> = BTreeMap::new();
        for (time, manager) in oldest {
            if left <= MOST_UPDATERS {
                return;
            }
            let Some(earlier) = first.get(&manager.api_version) else {
                first.insert(manager.api_version.clone(), manager);
                continue;
            };
            let bucket = Manager::updater(ANCIENT, &manager.api_version, None);
            if let Some(entry) = self.0.remove(earlier).filter(|_| *earlier != bucket) {
                self.0.insert(bucket.clone(), entry);
            }
            first.insert(manager.api_version.clone(), bucket.clone());
            if let (Some(merged), Some(entry)) = (self.0.remove(&manager), self.0.get_mut(&bucket)) {
                entry.fields.extend(&merged.fields);
                entry.time = time;
                left -= 1;
            }
        }
    }

    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|_, entry| !entry.fields.is_empty());
    }
}

/// Gives `after` the times of `before` where only times of managedFields differ, so that a write whose effect was
/// undone by defaulting or pruning is seen to change nothing.
pub fn forget_idle_times(before: &Value, after: &mut Value) {
    let without_times = |object: &Value| {
        let mut object = object.clone();
        let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        object
    };
    if without_times(before) == without_times(after) {
        after.clone_from(before);
    }
}

fn encode(manager: &Manager, entry: &Entry) -> Value {
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

/// Takes out what no manager owns: identity, and what only the server writes.
pub(super) fn without_server_fields(mut fields: FieldSet) -> FieldSet {
    let field = |name: &str| Step::Field(name.to_owned());
    fields.member = false;
    for name in ["apiVersion", "kind"] {
        fields.children.remove(&field(name));
    }
    if let Some(metadata) = fields.children.get_mut(&field("metadata")) {
        metadata.member = false;
        for name in super::SERVER_METADATA.iter().chain(&["name", "namespace"]) {
            metadata.children.remove(&field(name));
        }
        if metadata.is_empty() {
            fields.children.remove(&field("metadata"));
        }
    }
    fields
}
