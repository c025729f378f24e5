//! Takes out of answers what differs from run to run: uids, times, versions, generated names, addresses.
//!
//! The same uid or version gets the same number everywhere in a script, so that "unchanged" stays visible.

use std::collections::BTreeMap;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

pub(super) struct Normal {
    namespace: String,
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, usize>,
    /// Generated name → what it is called here.
    names: Vec<(String, String)>,
    /// Cells of the table at hand that change: later events of a watch have no heads.
    changing: Vec<usize>,
    uid: Regex,
    time: Regex,
    address: Regex,
    /// A version in a sentence, or in an object that a sentence quotes. Other numbers of sentences count things or name
    /// standards, and a version may happen to be the same.
    version: Regex,
}

// === impl Normal ===

impl Normal {
    pub(super) fn new(namespace: &str) -> Self {
        let regex = |pattern| Regex::new(pattern).unwrap();
        Self {
            namespace: namespace.to_owned(),
            uids: BTreeMap::new(),
            versions: BTreeMap::new(),
            names: Vec::new(),
            changing: Vec::new(),
            uid: regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
            time: regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"),
            address: regex(r"^\d+\.\d+\.\d+\.\d+$"),
            version: regex(r"(?i)(resource ?version\D{0,40})(\d+)\b"),
        }
    }

    pub(super) fn text(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.namespace, "{ns}");
        for (name, shown) in &self.names {
            text = text.replace(name, shown);
        }
        let uids = &mut self.uids;
        let text = self.uid.replace_all(&text, |found: &Captures<'_>| {
            let next = uids.len() + 1;
            format!("<uid {}>", uids.entry(found[0].to_owned()).or_insert(next))
        });
        let text = self.time.replace_all(&text, "<time>");
        let versions = &self.versions;
        let version = |found: &Captures<'_>| match versions.get(&found[2]) {
            Some(known) => format!("{}<version {known}>", &found[1]),
            None => found[0].to_owned(),
        };
        self.version.replace_all(&text, version).into_owned()
    }

    pub(super) fn value(&mut self, value: &Value) -> Value {
        self.learn(value);
        self.walk(value)
    }

    /// Names first: they are in other places too.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(members) => {
                let text = |field: &str| value[field].as_str().unwrap_or_default();
                let (prefix, name) = (text("generateName"), text("name"));
                let known = self.names.iter().any(|(known, _)| known == name);
                if !prefix.is_empty() && name.len() > prefix.len() && name.starts_with(prefix) && !known {
                    let shown = format!("{prefix}<suffix {}>", self.names.len() + 1);
                    self.names.push((name.to_owned(), shown));
                }
                members.values().for_each(|value| self.learn(value));
            }
            _ => {}
        }
    }

    fn walk(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.walk(item)).collect(),
            Value::Object(members) if members.contains_key("columnDefinitions") => self.table(members),
            Value::Object(members) => Value::Object(self.members(members)),
            other => other.clone(),
        }
    }

    fn members(&mut self, members: &Map<String, Value>) -> Map<String, Value> {
        let is_object = members.contains_key("uid");
        let mut shown = Map::new();
        for (name, value) in members {
            let value = match (name.as_str(), value.as_str()) {
                ("resourceVersion", Some(version)) if is_object => json!(self.version(version)),
                ("resourceVersion", Some(_)) => json!("<revision>"),
                ("continue", Some(_)) => json!("<continue>"),
                ("clusterIP", Some(address)) if self.address.is_match(address) => json!("<address>"),
                // Drawn, or the first that is free.
                ("nodePort", None) if value.as_i64().is_some_and(|port| port >= 30000) => json!("<port>"),
                ("clusterIPs", None) => self.addresses(value),
                ("managedFields", None) => self.managers(value),
                ("causes", None) => self.causes(value),
                ("message", Some(text)) => json!(in_order(&self.text(text), members)),
                _ => self.walk(value),
            };
            shown.insert(self.text(name), value);
        }
        shown
    }

    /// Conflicts come in any order.
    fn causes(&mut self, value: &Value) -> Value {
        let mut causes: Vec<Value> = value.as_array().into_iter().flatten().map(|cause| self.walk(cause)).collect();
        if causes.iter().any(comes_in_any_order) {
            causes.sort_by_key(Value::to_string);
        }
        Value::Array(causes)
    }

    /// Their order follows their times.
    fn managers(&mut self, value: &Value) -> Value {
        let mut entries: Vec<Value> = value.as_array().into_iter().flatten().map(|entry| self.walk(entry)).collect();
        entries.sort_by_key(|entry| {
            ["operation", "manager", "subresource", "apiVersion"]
                .map(|field| entry[field].as_str().unwrap_or_default().to_owned())
        });
        Value::Array(entries)
    }

    fn version(&mut self, version: &str) -> String {
        let next = self.versions.len() + 1;
        format!("<version {}>", self.versions.entry(version.to_owned()).or_insert(next))
    }

    fn addresses(&self, value: &Value) -> Value {
        let items = value.as_array().into_iter().flatten();
        let shown = items.map(|item| match item.as_str() {
            Some(text) if self.address.is_match(text) => json!("<address>"),
            _ => item.clone(),
        });
        shown.collect()
    }

    /// Ages and addresses in cells; descriptions of columns are prose.
    fn table(&mut self, members: &Map<String, Value>) -> Value {
        let mut table = Value::Object(
            self.members(
                &members
                    .iter()
                    .filter(|(name, _)| *name != "columnDefinitions")
                    .map(|(n, v)| (n.clone(), v.clone()))
                    .collect(),
            ),
        );
        let mut columns = members["columnDefinitions"].clone();
        for column in columns.as_array_mut().into_iter().flatten() {
            column.as_object_mut().unwrap().remove("description");
        }
        if columns.is_array() {
            self.changing = columns
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
                .filter(|(_, column)| {
                    matches!(column["name"].as_str(), Some("Age" | "Last Seen" | "First Seen" | "Cluster-IP"))
                })
                .map(|(index, _)| index)
                .collect();
        }
        for row in table["rows"].as_array_mut().into_iter().flatten() {
            for index in &self.changing {
                if let Some(cell) = row["cells"].get_mut(*index).filter(|cell| **cell != "<none>" && **cell != "None") {
                    *cell = json!("<varies>");
                }
            }
        }
        table["columnDefinitions"] = columns;
        table
    }
}

/// Conflicts, and what a schema refuses: a map in Go is walked in any order.
fn comes_in_any_order(cause: &Value) -> bool {
    let message = cause["message"].as_str().unwrap_or_default();
    let is_key = cause["field"].as_str().is_some_and(|field| field.ends_with(']') && field.contains("ata["));
    is_key || cause["reason"] == "FieldManagerConflict" || message.contains(" in body ") || cause["field"] == "<nil>"
}

/// A message that lists such causes, or misfits of an applied configuration, in an order of its own.
fn in_order(message: &str, status: &Map<String, Value>) -> String {
    let causes = status.get("details").and_then(|details| details["causes"].as_array()).into_iter().flatten();
    if causes.clone().count() > 1 && causes.clone().any(comes_in_any_order) && status["reason"] == "Invalid" {
        let (head, _) = message.split_once(" is invalid: ").unwrap_or((message, ""));
        return format!("{head} is invalid: <causes>");
    }
    match message.split_once(": errors:\n") {
        Some((head, lines)) => {
            let mut lines: Vec<&str> = lines.lines().collect();
            lines.sort_unstable();
            format!("{head}: errors:\n{}", lines.join("\n"))
        }
        None => message.to_owned(),
    }
}
