//! Intel: GPUs, detected by the node feature rules of the GPU plugin, and Gaudi.

use super::product::{INSTANCE_TYPE, Product, clone_labels, has_resource, label, sanitize, single_selector};
use crate::inventory::NodeInfo;

const PRODUCT: &str = "gpu.intel.com/product";
/// Resource names; the newer driver's comes first.
const RESOURCES: [&str; 3] = ["gpu.intel.com/xe", "gpu.intel.com/i915", "intel.com/gpu"];
const GAUDI: &str = "habana.ai/gaudi";

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    gpu(node).into_iter().chain(gaudi(node)).collect()
}

fn gpu(node: &NodeInfo) -> Option<Product> {
    let resource = RESOURCES.into_iter().find(|resource| has_resource(node, resource));
    let (name, key, value) = match label(node, PRODUCT) {
        Some(product) => (product.to_owned(), PRODUCT.to_owned(), product.to_owned()),
        None => by_device_id(node).filter(|_| resource.is_some())?,
    };
    Some(Product {
        name: sanitize(&name),
        vendor: "intel",
        family: label(node, "gpu.intel.com/family").map(str::to_lowercase),
        selectors: single_selector(&[(&key, &value)]),
        resource: resource.unwrap_or("gpu.intel.com/i915").to_owned(),
        device_labels: clone_labels(node),
        ..Product::default()
    })
}

/// Returns name and label of a device without product label, from `gpu.intel.com/device-id.0380-56c0.present: "true"`.
fn by_device_id(node: &NodeInfo) -> Option<(String, String, String)> {
    node.labels.iter().find_map(|(key, value)| {
        let id = key.strip_prefix("gpu.intel.com/device-id.")?.strip_suffix(".present")?;
        let device = id.rsplit('-').next()?;
        Some((format!("intel-gpu-{device}"), key.clone(), value.clone()))
    })
}

/// Products by PCI device ID.
const GAUDI_PRODUCTS: &[(&str, &str)] = &[
    ("1000", "intel-gaudi"),
    ("1001", "intel-gaudi"),
    ("1010", "intel-gaudi"),
    ("1020", "intel-gaudi2"),
    ("1060", "intel-gaudi3"),
    ("1063", "intel-gaudi3"),
];

/// Detects Gaudi by the PCI label of node-feature-discovery, or by the instance type.
fn gaudi(node: &NodeInfo) -> Option<Product> {
    if !has_resource(node, GAUDI) {
        return None;
    }
    let by_instance_type = || {
        let instance = label(node, INSTANCE_TYPE)?;
        Some((format!("intel-gaudi-{instance}"), INSTANCE_TYPE, instance))
    };
    let (name, key, value) = by_pci_id(node).or_else(by_instance_type)?;
    Some(Product {
        name: sanitize(&name),
        vendor: "intel",
        family: Some("gaudi".to_owned()),
        selectors: single_selector(&[(key, value)]),
        resource: GAUDI.to_owned(),
        device_labels: clone_labels(node),
        ..Product::default()
    })
}

fn by_pci_id(node: &NodeInfo) -> Option<(String, &str, &str)> {
    let (key, value) = node
        .labels
        .iter()
        .find(|(key, _)| key.strip_prefix("feature.node.kubernetes.io/pci-").is_some_and(|id| id.contains("1da3")))?;
    let product = GAUDI_PRODUCTS.iter().find(|(device, _)| key.contains(&format!("_{device}")));
    let name = product.map_or("intel-gaudi", |(_, name)| name);
    Some((name.to_owned(), key, value))
}
