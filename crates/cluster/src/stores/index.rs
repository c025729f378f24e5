//! Index of cached objects by the UID of their controller and by label value.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::namespaced_name::NamespacedName;
use crate::object::controller_uid;

/// Object keys by index value.
#[derive(Debug, Default)]
pub(super) struct Index(BTreeSet<(String, NamespacedName)>);

// === impl Index ===

impl Index {
    /// Returns the keys with `value` in order, starting with those of `namespace`.
    pub(super) fn find<'a>(&'a self, value: &'a str, namespace: &str) -> impl Iterator<Item = &'a NamespacedName> {
        let from = (value.to_owned(), NamespacedName::new(namespace, ""));
        self.0.range(from..).take_while(move |(found, _)| found == value).map(|(_, key)| key)
    }

    fn insert(&mut self, key: &NamespacedName, values: Vec<String>) {
        self.0.extend(values.into_iter().map(|value| (value, key.clone())));
    }

    /// Replaces the index values of `key`.
    pub(super) fn update(&mut self, key: &NamespacedName, old: Vec<String>, new: Vec<String>) {
        if old == new {
            return;
        }
        for value in old {
            self.0.remove(&(value, key.clone()));
        }
        self.insert(key, new);
    }
}

/// Returns the index values of `object`.
pub(super) fn index_values(object: &Value, indexed_labels: &[&str]) -> Vec<String> {
    let label = |name: &&str| Some(label_index_value(name, object["metadata"]["labels"][name].as_str()?));
    let controller = controller_uid(object).map(controller_index_value);
    controller.into_iter().chain(indexed_labels.iter().filter_map(label)).collect()
}

/// Returns the index value of objects with this controller. It differs from every label index value, because label
/// names cannot begin with `@`.
pub(super) fn controller_index_value(controller_uid: &str) -> String {
    format!("@{controller_uid}")
}

/// Returns the index value of objects with this label.
pub(super) fn label_index_value(label: &str, value: &str) -> String {
    format!("{label}={value}")
}
