//! The ConfigMap `gpu-map`: the index of each accelerator on its node, by UUID.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::problem::Problem;

/// Indexes of accelerators by node and UUID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuMap {
    /// Entry per node; `None` if the entry is not a JSON object of indexes.
    nodes: BTreeMap<String, Option<BTreeMap<String, u32>>>,
}

// === impl GpuMap ===

impl GpuMap {
    /// Reads a ConfigMap: the keys of `data` are node names, the values JSON objects such as `{"GPU-a": 0}`.
    #[must_use]
    pub fn from_config_map(config_map: &Value) -> GpuMap {
        let entries = config_map["data"].as_object().into_iter().flatten();
        let parse = |value: &Value| serde_json::from_str(value.as_str()?).ok();
        GpuMap { nodes: entries.map(|(node, value)| (node.clone(), parse(value))).collect() }
    }

    /// Returns the indexes of the accelerators of `node` by UUID; `None` without a valid entry.
    #[must_use]
    pub fn entry(&self, node: &str) -> Option<&BTreeMap<String, u32>> {
        self.nodes.get(node)?.as_ref()
    }

    /// Returns the indexes of the accelerators of `node`, in ascending order.
    ///
    /// # Errors
    /// The entry of the node is invalid, or one of the accelerators is missing or on another node.
    pub fn indexes(&self, node: &str, accelerators: &BTreeSet<String>) -> Result<Vec<u32>, Problem> {
        let entry = match self.nodes.get(node) {
            Some(None) => return Err(Problem::GpuMapInvalid { node: node.to_owned() }),
            Some(Some(entry)) => Some(entry),
            None => None,
        };
        let index = |uuid: &String| {
            let index = entry.and_then(|entry| entry.get(uuid)).copied();
            index.ok_or_else(|| self.missing(node, uuid))
        };
        let mut indexes = accelerators.iter().map(index).collect::<Result<Vec<_>, _>>()?;
        indexes.sort_unstable();
        Ok(indexes)
    }

    fn missing(&self, node: &str, uuid: &str) -> Problem {
        let has_accelerator =
            |entry: &Option<BTreeMap<String, u32>>| entry.as_ref().is_some_and(|entry| entry.contains_key(uuid));
        let uuid = uuid.to_owned();
        match self.nodes.iter().find(|(_, entry)| has_accelerator(entry)) {
            Some((actual, _)) => {
                Problem::AcceleratorOfOtherNode { uuid, expected: node.to_owned(), actual: actual.clone() }
            }
            None => Problem::UnknownAccelerator { uuid },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    // spec: DP-105, DP-106
    #[rstest]
    #[case::one("n1", &["GPU-b"], Ok(vec![1]))]
    #[case::sorted_by_index("n1", &["GPU-a", "GPU-z"], Ok(vec![0, 3]))]
    #[case::unknown("n1", &["GPU-a", "GPU-q"], Err("UUID GPU-q is not known"))]
    #[case::on_another_node("n1", &["GPU-c"], Err("UUID GPU-c is on Node n2, not n1"))]
    #[case::node_without_entry("n9", &["GPU-a"], Err("UUID GPU-a is on Node n1, not n9"))]
    #[case::no_json("bad", &["GPU-a"], Err("GPU map ConfigMap gpu-map is invalid: entry \"bad\" is not a JSON object from UUIDs to indexes"))]
    #[case::negative("negative", &["GPU-n"], Err("GPU map ConfigMap gpu-map is invalid: entry \"negative\" is not a JSON object from UUIDs to indexes"))]
    fn translates_accelerators(
        #[case] node: &str,
        #[case] accelerators: &[&str],
        #[case] expected: Result<Vec<u32>, &str>,
    ) {
        let map = GpuMap::from_config_map(&json!({"data": {
            "n1": r#"{"GPU-a": 0, "GPU-b": 1, "GPU-z": 3}"#, "n2": r#"{"GPU-c": 0}"#, "bad": "{", "negative": r#"{"GPU-n": -1}"#,
        }}));
        let accelerators = accelerators.iter().map(|uuid| (*uuid).to_owned()).collect();
        let indexes = map.indexes(node, &accelerators).map_err(|problem| problem.to_string());
        assert_eq!(indexes, expected.map_err(str::to_owned));
    }
}
