//! Sets of fields, as `managedFields[].fieldsV1` records them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Value};

/// One step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Field(String),
    /// An element of a list, by its key fields; canonical JSON.
    Key(String),
    /// An element of a set; canonical JSON.
    Value(String),
}

/// A set of paths. A path is in the set when its node is a `member`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    pub member: bool,
    pub children: BTreeMap<Step, FieldSet>,
}

// === impl Step ===

impl Step {
    /// The element with these key fields.
    pub(super) fn key(fields: BTreeMap<&str, &Value>) -> Self {
        let inner: Vec<String> =
            fields.into_iter().map(|(name, value)| format!("{}:{value}", Value::from(name))).collect();
        Self::Key(format!("{{{}}}", inner.join(",")))
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(key) => format!("k:{key}"),
            Self::Value(value) => format!("v:{value}"),
        }
    }

    /// None for what this version does not know, such as list indices.
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

/// As in a conflict: `.spec.containers[name="a"].image`, `.metadata.finalizers[="x"]`.
impl std::fmt::Display for Step {
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
    pub(super) fn leaf() -> Self {
        Self { member: true, children: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Adds `set` under `step`, unless it is empty.
    pub(super) fn put(&mut self, step: Step, set: Self) {
        if set.is_empty() {
            return;
        }
        match self.children.entry(step) {
            Entry::Vacant(place) => {
                place.insert(set);
            }
            Entry::Occupied(mut place) => place.get_mut().extend(&set),
        }
    }

    /// Adds every path of `other`.
    pub(super) fn extend(&mut self, other: &Self) {
        self.member |= other.member;
        for (step, child) in &other.children {
            self.children.entry(step.clone()).or_default().extend(child);
        }
    }

    /// Takes away every path of `other`.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.member &= !other.member;
        for (step, theirs) in &other.children {
            if let Some(ours) = self.children.get_mut(step) {
                ours.subtract(theirs);
                if ours.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    /// The paths that both have, written out: at each place those that end there before those that go on.
    pub(super) fn common(&self, other: &Self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_common(other, "", &mut paths);
        paths
    }

    fn collect_common(&self, other: &Self, path: &str, paths: &mut Vec<String>) {
        let both = || self.children.iter().filter_map(|(step, child)| Some((step, child, other.children.get(step)?)));
        paths.extend(both().filter(|(_, a, b)| a.member && b.member).map(|(step, _, _)| format!("{path}{step}")));
        for (step, child, theirs) in both() {
            child.collect_common(theirs, &format!("{path}{step}"), paths);
        }
    }

    /// The FieldsV1 object.
    pub(super) fn to_json(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".into(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            map.insert(step.encode(), child.to_json());
        }
        Value::Object(map)
    }

    /// Reads a FieldsV1 object; unknown steps are dropped.
    pub(super) fn from_json(value: &Value) -> Self {
        let mut root = Self::decode(value);
        root.member = false;
        root
    }

    fn decode(value: &Value) -> Self {
        let Some(map) = value.as_object().filter(|map| !map.is_empty()) else { return Self::leaf() };
        let mut set = Self { member: map.contains_key("."), children: BTreeMap::new() };
        for (text, child) in map {
            if let Some(step) = Step::decode(text) {
                set.children.insert(step, Self::decode(child));
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
    fn json_round_trip() {
        let json = json!({
            "f:metadata": {"f:finalizers": {".": {}, "v:\"a\"": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:replicas": {}},
        });
        let set = FieldSet::from_json(&json);
        assert_eq!(set.to_json(), json);
        let paths = set.common(&set);
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
    fn subtract_leaves_no_empty_nodes() {
        let mut set = FieldSet::from_json(&json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {"f:e": {}}}));
        set.subtract(&FieldSet::from_json(&json!({"f:a": {"f:b": {}}, "f:d": {"f:e": {}}})));
        assert_eq!(set.to_json(), json!({"f:a": {"f:c": {}}}));
    }
}
