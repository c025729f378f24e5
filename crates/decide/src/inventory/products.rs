//! Detection of accelerator products of a node, from the labels and resources that vendor plugins publish.
//!
//! One module per vendor. A label value that cannot be parsed leaves its property unset.

mod amd;
mod aws;
mod cloud;
mod google;
mod huawei;
mod intel;
mod nvidia;
mod product;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::node_info::NodeInfo;
use crate::supply::Class;
use product::INSTANCE_TYPE;

pub(crate) use product::Product;

/// Label keys of all vendors whose value is a product name. A class that selects by one of them names its product, and
/// a Kueue flavor with one of them selects accelerators.
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

/// Prefixes of further label keys that only nodes with accelerators have.
const ACCELERATOR_LABEL_PREFIXES: &[&str] = &[
    "amd.com/gpu",
    "beta.amd.com/gpu",
    "cloud.google.com/gke-tpu",
    "gpu.amd.com/",
    "gpu.intel.com/",
    "habana.ai/",
    "nvidia.com/gpu",
    "nvidia.com/mig",
];

/// Returns the products of a node, ordered by vendor.
pub(crate) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let vendors = [
        nvidia::detect_products,
        amd::detect_products,
        intel::detect_products,
        google::detect_products,
        aws::detect_products,
        huawei::detect_products,
    ];
    let products: Vec<Product> = vendors.iter().flat_map(|vendor| vendor(node)).collect();
    let products = if products.is_empty() { cloud::detect_products(node) } else { products };
    products.into_iter().filter(|product| !product.name.is_empty()).collect()
}

/// Whether `class` selects nodes with these labels by product name, rather than by properties.
pub(super) fn names_product(class: &Class, labels: &BTreeMap<String, String>) -> bool {
    let is_named_by = |key: &str| is_product_label(key) && labels.contains_key(key);
    let expressions = class.discovery.terms.iter().flat_map(|term| term["matchExpressions"].as_array()).flatten();
    class.discovery.node_selector.keys().any(|key| is_named_by(key))
        || expressions.filter_map(|expression| expression["key"].as_str()).any(is_named_by)
        || !class.discovery.device_ids.is_empty()
}

fn is_product_label(key: &str) -> bool {
    PRODUCT_LABELS.contains(&key)
        || key == INSTANCE_TYPE
        || (key.starts_with("nvidia.com/mig-") && key.ends_with(".product"))
}

/// Whether the node offers only partitions of the devices that a class has, so that the class has no devices there.
pub(super) fn offers_partitions_only(class: &Class, node: &NodeInfo) -> bool {
    class.resource_name() == Some(nvidia::RESOURCE) && nvidia::is_fully_sliced(node)
}

/// Returns the labels of a node with the device of which a class has slices, from the product that the class selects.
pub(crate) fn sliced_device(class: &Class) -> Option<BTreeMap<String, String>> {
    let values = class.discovery.terms.iter().flat_map(|term| term["matchExpressions"].as_array()).flatten();
    let values = values.filter_map(|expression| expression["values"].as_array()).flatten().filter_map(Value::as_str);
    let mut products = class.discovery.node_selector.values().map(String::as_str).chain(values);
    let device = products.find_map(|product| Some(nvidia::device_name(product)).filter(|device| *device != product))?;
    Some([(nvidia::PRODUCT.to_owned(), device.to_owned())].into())
}

/// Whether a node label identifies accelerators.
pub(super) fn is_accelerator_label(key: &str, value: &str) -> bool {
    // The label key `accelerator` is also used for other purposes.
    let is_unrelated = key == "accelerator" && !value.starts_with("huawei-");
    !is_unrelated
        && (PRODUCT_LABELS.contains(&key) || ACCELERATOR_LABEL_PREFIXES.iter().any(|prefix| key.starts_with(prefix)))
}

/// Converts alternative selectors to node selector terms; values of the same single key share a term.
pub(super) fn node_selector_terms(selectors: &BTreeSet<BTreeMap<String, String>>) -> Vec<Value> {
    let mut values_by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut terms = Vec::new();
    for selector in selectors {
        match selector.iter().next() {
            Some((key, value)) if selector.len() == 1 => values_by_key.entry(key).or_default().push(value),
            _ => terms.push(selector.iter().map(|(key, value)| (key.as_str(), vec![value.as_str()])).collect()),
        }
    }
    terms.extend(values_by_key.into_iter().map(|pair| vec![pair]));
    let expression =
        |(key, values): &(&str, Vec<&str>)| serde_json::json!({"key": key, "operator": "In", "values": values});
    let term = |pairs: &Vec<(&str, Vec<&str>)>| serde_json::json!({"matchExpressions": pairs.iter().map(expression).collect::<Vec<_>>()});
    terms.iter().map(term).collect()
}

#[cfg(test)]
#[path = "products_tests.rs"]
mod tests;
