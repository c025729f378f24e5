//! A product, and what the vendor modules share to detect one.

use std::collections::{BTreeMap, BTreeSet};

use api::{AcceleratorMemory, ComputeCapability};

use crate::inventory::NodeInfo;

/// A product on one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Product {
    /// Name of its class: the sanitized product label.
    pub(crate) name: String,
    pub(crate) vendor: &'static str,
    /// Architecture family, such as `hopper`, if a label contains it.
    pub(crate) family: Option<String>,
    /// Alternative selectors of its nodes.
    pub(crate) selectors: BTreeSet<BTreeMap<String, String>>,
    /// Resource that Pods request.
    pub(crate) resource: String,
    /// Memory of one unit of the resource.
    pub(crate) memory: Option<AcceleratorMemory>,
    pub(crate) compute_capability: Option<ComputeCapability>,
    pub(crate) features: BTreeSet<String>,
    /// Whether the product is a partition of a device, with its architecture but not its throughput.
    pub(crate) is_partition: bool,
    /// Whether an engine can use only one, because slices of devices cannot be combined.
    pub(crate) is_slice: bool,
    /// Labels of a node with the whole device, for looking up the device in the catalog.
    pub(crate) device_labels: BTreeMap<String, String>,
}

/// Label with the instance type of a cloud provider.
pub(super) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// Maximum length of a label value, because class names are used as label values.
const MAX_NAME_LENGTH: usize = 63;

/// Returns a valid object name: `NVIDIA-A100-SXM4-80GB` → `nvidia-a100-sxm4-80gb`.
pub(super) fn sanitize(product: &str) -> String {
    let mut name = String::new();
    for word in product.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&word.to_ascii_lowercase());
    }
    name.truncate(MAX_NAME_LENGTH);
    name.trim_end_matches('-').to_owned()
}

/// Returns the value of a node label that is not empty.
pub(super) fn label<'a>(node: &'a NodeInfo, key: &str) -> Option<&'a str> {
    node.labels.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// Whether the node advertises the resource, even with 0 units while its driver is being installed.
pub(super) fn has_resource(node: &NodeInfo, resource: &str) -> bool {
    node.allocatable.contains_key(resource)
}

/// Returns one selector without alternatives.
pub(super) fn single_selector(pairs: &[(&str, &str)]) -> BTreeSet<BTreeMap<String, String>> {
    let selector = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    BTreeSet::from([selector])
}

/// Returns the labels of the node.
pub(super) fn clone_labels(node: &NodeInfo) -> BTreeMap<String, String> {
    (*node.labels).clone()
}
