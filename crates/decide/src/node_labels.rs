//! Labels of the nodes of all classes, to find node selectors that match no node without checking each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::nodes::comparable_value;
use crate::supply::Class;

/// The values of some labels on all nodes.
#[derive(Debug)]
pub(crate) struct NodeLabels {
    values: BTreeMap<String, BTreeSet<String>>,
    /// Whether the labels of all nodes are known.
    is_complete: bool,
}

impl NodeLabels {
    /// Reads the labels with these keys.
    pub(crate) fn new(classes: &[Arc<Class>], keys: BTreeSet<&str>) -> Self {
        let mut labels =
            Self { values: keys.into_iter().map(|key| (key.to_owned(), BTreeSet::new())).collect(), is_complete: true };
        for class in classes {
            labels.is_complete &= class.availability.is_some();
            for node in class.availability.iter().flat_map(|known| &known.nodes) {
                let Some(node_labels) = &node.labels else {
                    labels.is_complete = false;
                    continue;
                };
                for (key, values) in &mut labels.values {
                    let value = node_labels.get(key).map(|value| comparable_value(key, value));
                    if let Some(value) = value.filter(|value| !values.contains(*value)) {
                        values.insert(value.to_owned());
                    }
                }
            }
        }
        labels
    }

    /// Whether a node selector with this label, one of the keys that were read, matches no node.
    pub(crate) fn excludes(&self, key: &str, value: &str) -> bool {
        let Some(values) = self.values.get(key).filter(|_| self.is_complete) else { return false };
        !values.contains(comparable_value(key, value))
    }
}
