//! Which accelerator products a node carries, read from the labels and resources that vendors' plugins publish.
//!
//! One file per vendor. A label value that cannot be read leaves its fact unset.

mod amd;
mod aws;
mod cloud;
mod google;
mod huawei;
mod intel;
mod nvidia;

use std::collections::{BTreeMap, BTreeSet};

use api::{AcceleratorMemory, ComputeCapability};
use serde_json::Value;

use super::NodeInfo;
use crate::supply::Class;

/// One product on one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Product {
    /// As its class is called: the sanitised product.
    pub name: String,
    pub vendor: &'static str,
    /// Architecture, such as `hopper`, where a label says it.
    pub family: Option<String>,
    /// Labels that its nodes have; each entry is an alternative.
    pub selectors: BTreeSet<BTreeMap<String, String>>,
    /// What Pods request.
    pub resource: String,
    /// Of one unit of the resource.
    pub memory: Option<AcceleratorMemory>,
    pub compute_capability: Option<ComputeCapability>,
    pub features: BTreeSet<String>,
    /// A part of a device: it has the device's architecture, not its throughput.
    pub part: bool,
    /// Labels that the whole device would have, for finding it among known accelerators.
    pub whole: BTreeMap<String, String>,
}

/// Labels that name a product, of every vendor: a class that selects by one of them pins its products, and a Kueue
/// flavor with one of them selects accelerators.
const PRODUCT_LABELS: &[&str] = &[
    "accelerator",
    "amd.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "gpu.amd.com/model",
    "gpu.intel.com/product",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-accelerator-name",
    "karpenter.k8s.aws/instance-gpu-name",
    "node.kubernetes.io/npu.chip.name",
    "nvidia.com/gpu.product",
];

/// Beginnings of further keys that only nodes with accelerators have.
const ACCELERATOR_LABELS: &[&str] = &[
    "amd.com/gpu",
    "beta.amd.com/gpu",
    "cloud.google.com/gke-tpu",
    "gpu.amd.com/",
    "gpu.intel.com/",
    "habana.ai/",
    "nvidia.com/gpu",
    "nvidia.com/mig",
];

/// Every product of the node, in order of vendors.
#[must_use]
pub fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let vendors = [
        nvidia::detect_products,
        amd::detect_products,
        intel::detect_products,
        google::detect_products,
        aws::detect_products,
        huawei::detect_products,
    ];
    let found: Vec<Product> = vendors.iter().flat_map(|vendor| vendor(node)).collect();
    let found = if found.is_empty() { cloud::detect_products(node) } else { found };
    found.into_iter().filter(|product| !product.name.is_empty()).collect()
}

/// Whether `class` names the very product of a node with these labels, rather than some property of it.
pub(super) fn pins(class: &Class, labels: &BTreeMap<String, String>) -> bool {
    let names = |key: &str| is_product_label(key) && labels.contains_key(key);
    let expressions = class.discovery.terms.iter().flat_map(|term| term["matchExpressions"].as_array()).flatten();
    class.discovery.node_selector.keys().any(|key| names(key))
        || expressions.filter_map(|one| one["key"].as_str()).any(names)
        || !class.discovery.device_ids.is_empty()
}

fn is_product_label(key: &str) -> bool {
    PRODUCT_LABELS.contains(&key)
        || key == INSTANCE_TYPE
        || (key.starts_with("nvidia.com/mig-") && key.ends_with(".product"))
}

/// Whether a node label of this name speaks of accelerators.
pub(super) fn is_accelerator_label(key: &str, value: &str) -> bool {
    // Other people use that bare key for other things.
    let elsewhere = key == "accelerator" && !value.starts_with("huawei-");
    !elsewhere && (PRODUCT_LABELS.contains(&key) || ACCELERATOR_LABELS.iter().any(|prefix| key.starts_with(prefix)))
}

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// `NVIDIA-A100-SXM4-80GB` → `nvidia-a100-sxm4-80gb`: what an object may be called.
fn sanitised(product: &str) -> String {
    let mut name = String::new();
    for part in product.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&part.to_ascii_lowercase());
    }
    name.truncate(LONGEST_NAME);
    name.trim_end_matches('-').to_owned()
}

/// A class's name stands in labels too.
const LONGEST_NAME: usize = 63;

fn label<'a>(node: &'a NodeInfo, key: &str) -> Option<&'a str> {
    node.labels.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// The resource is advertised; a driver that is being installed may still say zero.
fn offers(node: &NodeInfo, resource: &str) -> bool {
    node.allocatable.contains_key(resource)
}

fn one(pairs: &[(&str, &str)]) -> BTreeSet<BTreeMap<String, String>> {
    let selector = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    BTreeSet::from([selector])
}

/// `node.labels` as the shipped table looks at them.
fn own_labels(node: &NodeInfo) -> BTreeMap<String, String> {
    (*node.labels).clone()
}

/// Terms of a discovery for these alternatives; one alternative alone is a plain selector.
pub(super) fn terms(selectors: &BTreeSet<BTreeMap<String, String>>) -> Vec<Value> {
    let mut of_one_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut terms = Vec::new();
    for selector in selectors {
        match selector.iter().next() {
            Some((key, value)) if selector.len() == 1 => of_one_key.entry(key).or_default().push(value),
            _ => terms.push(selector.iter().map(|(key, value)| (key.as_str(), vec![value.as_str()])).collect()),
        }
    }
    terms.extend(of_one_key.into_iter().map(|pair| vec![pair]));
    let expression =
        |(key, values): &(&str, Vec<&str>)| serde_json::json!({"key": key, "operator": "In", "values": values});
    let term = |pairs: &Vec<(&str, Vec<&str>)>| serde_json::json!({"matchExpressions": pairs.iter().map(expression).collect::<Vec<_>>()});
    terms.iter().map(term).collect()
}

#[cfg(test)]
#[path = "products_tests.rs"]
mod tests;
