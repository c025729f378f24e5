//! Replaces values that differ between runs: UIDs, times, resource versions, generated names, addresses.
//!
//! Equal UIDs or versions get the same number throughout a script, so that unchanged values remain recognizable.

use std::collections::BTreeMap;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

/// Normalizes the responses of one script.
pub(super) struct Normalizer {
    namespace: String,
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, usize>,
    /// Generated names with their replacements.
    names: Vec<(String, String)>,
    /// Indices of the varying columns of the current table; later events of a watch have no column definitions.
    varying_columns: Vec<usize>,
    uid: Regex,
    time: Regex,
    address: Regex,
    /// Matches a resource version in a message or in an object that the message quotes. Other numbers in messages must
    /// not be replaced, even if they equal a resource version.
    version: Regex,
}

// === impl Normalizer ===

impl Normalizer {
    pub(super) fn new(namespace: &str) -> Self {
        let regex = |pattern| Regex::new(pattern).unwrap();
        Self {
            namespace: namespace.to_owned(),
            uids: BTreeMap::new(),
            versions: BTreeMap::new(),
            names: Vec::new(),
            varying_columns: Vec::new(),
            uid: regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
            time: regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"),
            address: regex(r"^\d+\.\d+\.\d+\.\d+$"),
            version: regex(r"(?i)(resource ?version\D{0,40})(\d+)\b"),
        }
    }

    pub(super) fn normalize_text(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.namespace, "{ns}");
        for (name, replacement) in &self.names {
            text = text.replace(name, replacement);
        }
        let uids = &mut self.uids;
        let text = self.uid.replace_all(&text, |captures: &Captures<'_>| {
            let next = uids.len() + 1;
            format!("<uid {}>", uids.entry(captures[0].to_owned()).or_insert(next))
        });
        let text = self.time.replace_all(&text, "<time>");
        let versions = &self.versions;
        let version = |captures: &Captures<'_>| match versions.get(&captures[2]) {
            Some(known) => format!("{}<version {known}>", &captures[1]),
            None => captures[0].to_owned(),
        };
        self.version.replace_all(&text, version).into_owned()
    }

    pub(super) fn normalize_body(&mut self, value: &Value) -> Value {
        self.collect_names(value);
        self.normalize(value)
    }

    /// Collects the generated names, which also occur in other fields.
    fn collect_names(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.collect_names(item)),
            Value::Object(members) => {
                let text = |field: &str| value[field].as_str().unwrap_or_default();
                let (prefix, name) = (text("generateName"), text("name"));
                let known = self.names.iter().any(|(known, _)| known == name);
                if !prefix.is_empty() && name.len() > prefix.len() && name.starts_with(prefix) && !known {
                    let replacement = format!("{prefix}<suffix {}>", self.names.len() + 1);
                    self.names.push((name.to_owned(), replacement));
                }
                members.values().for_each(|value| self.collect_names(value));
            }
            _ => {}
        }
    }

    fn normalize(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.normalize_text(text)),
            Value::Array(items) => items.iter().map(|item| self.normalize(item)).collect(),
            Value::Object(members) if members.contains_key("columnDefinitions") => self.normalize_table(members),
            Value::Object(members) => Value::Object(self.normalize_members(members)),
            other => other.clone(),
        }
    }

    fn normalize_members(&mut self, members: &Map<String, Value>) -> Map<String, Value> {
        let is_object = members.contains_key("uid");
        let mut replacement = Map::new();
        for (name, value) in members {
            let value = match (name.as_str(), value.as_str()) {
                ("resourceVersion", Some(version)) if is_object => json!(self.normalize_version(version)),
                ("resourceVersion", Some(_)) => json!("<revision>"),
                ("continue", Some(_)) => json!("<continue>"),
                ("clusterIP", Some(address)) if self.address.is_match(address) => json!("<address>"),
                // kube-apiserver allocates a random port; the embedded server allocates the first free port.
                ("nodePort", None) if value.as_i64().is_some_and(|port| port >= 30000) => json!("<port>"),
                ("clusterIPs", None) => self.normalize_addresses(value),
                ("managedFields", None) => self.normalize_managed_fields(value),
                ("causes", None) => self.normalize_causes(value),
                ("message", Some(text)) => json!(sort_message(&self.normalize_text(text), members)),
                _ => self.normalize(value),
            };
            replacement.insert(self.normalize_text(name), value);
        }
        replacement
    }

    /// Sorts causes that kube-apiserver returns in random order.
    fn normalize_causes(&mut self, value: &Value) -> Value {
        let mut causes: Vec<Value> =
            value.as_array().into_iter().flatten().map(|cause| self.normalize(cause)).collect();
        if causes.iter().any(has_random_order) {
            causes.sort_by_key(Value::to_string);
        }
        Value::Array(causes)
    }

    /// Sorts managed fields, whose order depends on their times.
    fn normalize_managed_fields(&mut self, value: &Value) -> Value {
        let mut entries: Vec<Value> =
            value.as_array().into_iter().flatten().map(|entry| self.normalize(entry)).collect();
        entries.sort_by_key(|entry| {
            ["operation", "manager", "subresource", "apiVersion"]
                .map(|field| entry[field].as_str().unwrap_or_default().to_owned())
        });
        Value::Array(entries)
    }

    fn normalize_version(&mut self, version: &str) -> String {
        let next = self.versions.len() + 1;
        format!("<version {}>", self.versions.entry(version.to_owned()).or_insert(next))
    }

    fn normalize_addresses(&self, value: &Value) -> Value {
        let items = value.as_array().into_iter().flatten();
        let replacement = items.map(|item| match item.as_str() {
            Some(text) if self.address.is_match(text) => json!("<address>"),
            _ => item.clone(),
        });
        replacement.collect()
    }

    /// Replaces ages and addresses in cells, and removes column descriptions.
    fn normalize_table(&mut self, members: &Map<String, Value>) -> Value {
        let mut table = Value::Object(
            self.normalize_members(
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
            self.varying_columns = columns
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
            for index in &self.varying_columns {
                if let Some(cell) = row["cells"].get_mut(*index).filter(|cell| **cell != "<none>" && **cell != "None") {
                    *cell = json!("<varies>");
                }
            }
        }
        table["columnDefinitions"] = columns;
        table
    }
}

/// Reports whether kube-apiserver returns such causes in random order because Go iterates over a map, as for conflicts
/// and schema errors.
fn has_random_order(cause: &Value) -> bool {
    let message = cause["message"].as_str().unwrap_or_default();
    let is_key = cause["field"].as_str().is_some_and(|field| field.ends_with(']') && field.contains("ata["));
    is_key || cause["reason"] == "FieldManagerConflict" || message.contains(" in body ") || cause["field"] == "<nil>"
}

/// Sorts the parts of messages that list causes or type errors in random order.
fn sort_message(message: &str, status: &Map<String, Value>) -> String {
    let causes = status.get("details").and_then(|details| details["causes"].as_array()).into_iter().flatten();
    if causes.clone().count() > 1 && causes.clone().any(has_random_order) && status["reason"] == "Invalid" {
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
