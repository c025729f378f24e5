//! Intel: labels of the GPU plugin's feature rules, and Gaudi.

use super::{INSTANCE_TYPE, NodeInfo, Product, label, offers, one, own_labels, sanitised};

const PRODUCT: &str = "gpu.intel.com/product";
/// The newer driver first.
const RESOURCES: [&str; 3] = ["gpu.intel.com/xe", "gpu.intel.com/i915", "intel.com/gpu"];
const GAUDI: &str = "habana.ai/gaudi";

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    gpu(node).into_iter().chain(gaudi(node)).collect()
}

fn gpu(node: &NodeInfo) -> Option<Product> {
    let resource = RESOURCES.into_iter().find(|resource| offers(node, resource));
    let (name, key, value) = match label(node, PRODUCT) {
        Some(product) => (product.to_owned(), PRODUCT.to_owned(), product.to_owned()),
        None => by_device(node).filter(|_| resource.is_some())?,
    };
    Some(Product {
        name: sanitised(&name),
        vendor: "intel",
        family: label(node, "gpu.intel.com/family").map(str::to_lowercase),
        selectors: one(&[(&key, &value)]),
        resource: resource.unwrap_or("gpu.intel.com/i915").to_owned(),
        whole: own_labels(node),
        ..Product::default()
    })
}

/// `gpu.intel.com/device-id.0380-56c0.present: "true"` names a device that has no product label.
fn by_device(node: &NodeInfo) -> Option<(String, String, String)> {
    node.labels.iter().find_map(|(key, value)| {
        let id = key.strip_prefix("gpu.intel.com/device-id.")?.strip_suffix(".present")?;
        let device = id.rsplit('-').next()?;
        Some((format!("intel-gpu-{device}"), key.clone(), value.clone()))
    })
}

/// PCI device ids and what they are.
const GAUDIS: &[(&str, &str)] = &[
    ("1000", "intel-gaudi"),
    ("1001", "intel-gaudi"),
    ("1010", "intel-gaudi"),
    ("1020", "intel-gaudi2"),
    ("1060", "intel-gaudi3"),
    ("1063", "intel-gaudi3"),
];

/// Told apart by node-feature-discovery's PCI label, or by the instance type of a cloud.
fn gaudi(node: &NodeInfo) -> Option<Product> {
    if !offers(node, GAUDI) {
        return None;
    }
    let by_instance = || {
        let instance = label(node, INSTANCE_TYPE)?;
        Some((format!("intel-gaudi-{instance}"), INSTANCE_TYPE, instance))
    };
    let (name, key, value) = by_pci(node).or_else(by_instance)?;
    Some(Product {
        name: sanitised(&name),
        vendor: "intel",
        family: Some("gaudi".to_owned()),
        selectors: one(&[(key, value)]),
        resource: GAUDI.to_owned(),
        whole: own_labels(node),
        ..Product::default()
    })
}

fn by_pci(node: &NodeInfo) -> Option<(String, &str, &str)> {
    let (key, value) = node
        .labels
        .iter()
        .find(|(key, _)| key.strip_prefix("feature.node.kubernetes.io/pci-").is_some_and(|id| id.contains("1da3")))?;
    let known = GAUDIS.iter().find(|(device, _)| key.contains(&format!("_{device}")));
    let name = known.map_or("intel-gaudi", |(_, name)| name);
    Some((name.to_owned(), key, value))
}
