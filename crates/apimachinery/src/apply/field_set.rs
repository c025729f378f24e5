//! Sets of fields, as `managedFields[].fieldsV1` records them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Value};

/// One element of a field path (`PathElement` in structured-merge-diff).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathElement {
    /// A field of an object or an entry of a map, by name.
    Field(String),
    /// A list element identified by its key fields, as canonical JSON.
    Key(String),
    /// An element of a set, as canonical JSON.
    Value(String),
}

/// A set of field paths. A path is in the set if its node is a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    pub is_member: bool,
    pub children: BTreeMap<PathElement, FieldSet>,
}

// === impl PathElement ===

impl PathElement {
    /// Creates the path element of a list element with these key fields.
    pub(super) fn key(fields: BTreeMap<&str, &Value>) -> Self {
        let key_values: Vec<String> =
            fields.into_iter().map(|(name, value)| format!("{}:{value}", Value::from(name))).collect();
        Self::Key(format!("{{{}}}", key_values.join(",")))
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(key) => format!("k:{key}"),
            Self::Value(value) => format!("v:{value}"),
        }
    }

    /// Parses a FieldsV1 key; returns `None` for unsupported keys, such as list indices.
    fn decode(text: &str) -> Option<Self> {
        let (tag, rest) = text.split_once(':')?;
        match tag {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => {
                let key: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
                Some(Self::key(key.iter().map(|(name, value)| (name.as_str(), value)).collect()))
            }
            "v" => Some(Self::Value(serde_json::from_str::<Value>(rest).ok()?.to_string())),
            _ => None,
        }
    }
}

/// Formats a path element as in a conflict message: `.spec.containers[name="a"].image`, `.metadata.finalizers[="x"]`.
impl std::fmt::Display for PathElement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Key(key) => {
                let fields: BTreeMap<String, Value> = serde_json::from_str(key).unwrap_or_default();
                let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", fields.join(","))
            }
        }
    }
}

// === impl FieldSet ===

impl FieldSet {
    /// Returns a set with the root path only.
    pub(super) fn leaf() -> Self {
        Self { is_member: true, children: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.is_member && self.children.is_empty()
    }

    /// Adds `set` below `element`, unless it is empty.
    pub(super) fn insert(&mut self, element: PathElement, set: Self) {
        if set.is_empty() {
            return;
        }
        match self.children.entry(element) {
            Entry::Vacant(entry) => {
                entry.insert(set);
            }
            Entry::Occupied(mut entry) => entry.get_mut().extend(&set),
        }
    }

    /// Adds every path of `other`.
    pub(super) fn extend(&mut self, other: &Self) {
        self.is_member |= other.is_member;
        for (element, child) in &other.children {
            self.children.entry(element.clone()).or_default().extend(child);
        }
    }

    /// Removes every path of `other`.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.is_member &= !other.is_member;
        for (element, other_child) in &other.children {
            if let Some(child) = self.children.get_mut(element) {
                child.subtract(other_child);
                if child.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    /// Returns the paths in both sets; at each level, members come before the paths below them.
    pub(super) fn intersection(&self, other: &Self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_intersection(other, "", &mut paths);
        paths
    }

    fn collect_intersection(&self, other: &Self, path: &str, paths: &mut Vec<String>) {
        let shared =
            || self.children.iter().filter_map(|(element, child)| Some((element, child, other.children.get(element)?)));
        paths.extend(
            shared().filter(|(_, a, b)| a.is_member && b.is_member).map(|(element, _, _)| format!("{path}{element}")),
        );
        for (element, child, other_child) in shared() {
            child.collect_intersection(other_child, &format!("{path}{element}"), paths);
        }
    }

    /// Encodes the set as a FieldsV1 object.
    pub(super) fn to_json(&self) -> Value {
        let mut map = Map::new();
        if self.is_member && !self.children.is_empty() {
            map.insert(".".into(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            map.insert(element.encode(), child.to_json());
        }
        Value::Object(map)
    }

    /// Decodes a FieldsV1 object; unsupported path elements are skipped.
    pub(super) fn from_json(value: &Value) -> Self {
        let mut root = Self::decode(value);
        root.is_member = false;
        root
    }

    fn decode(value: &Value) -> Self {
        let Some(map) = value.as_object().filter(|map| !map.is_empty()) else { return Self::leaf() };
        let mut set = Self { is_member: map.contains_key("."), children: BTreeMap::new() };
        for (text, child) in map {
            if let Some(element) = PathElement::decode(text) {
                set.children.insert(element, Self::decode(child));
            }
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_v1_round_trips() {
        let json = json!({
            "f:metadata": {"f:finalizers": {".": {}, "v:\"a\"": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:replicas": {}},
        });
        let set = FieldSet::from_json(&json);
        assert_eq!(set.to_json(), json);
        let paths = set.intersection(&set);
        assert_eq!(
            paths,
            [
                ".metadata.finalizers",
                ".metadata.finalizers[=\"a\"]",
                ".spec.replicas",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].port",
            ]
        );
    }

    #[test]
    fn subtract_removes_empty_nodes() {
        let mut set = FieldSet::from_json(&json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {"f:e": {}}}));
        set.subtract(&FieldSet::from_json(&json!({"f:a": {"f:b": {}}, "f:d": {"f:e": {}}})));
        assert_eq!(set.to_json(), json!({"f:a": {"f:c": {}}}));
    }
}
