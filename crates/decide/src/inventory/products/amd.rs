//! AMD: labels of the AMD GPU node labeller in plain, `beta.` and counted form, and GPU partitions.

use super::product::{Product, clone_labels, label, sanitize, single_selector};
use crate::inventory::NodeInfo;

const PRODUCTS: [&str; 4] =
    ["amd.com/gpu.product-name", "amd.com/gpu.product", "beta.amd.com/gpu.product-name", "gpu.amd.com/model"];
const RESOURCE: &str = "amd.com/gpu";

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let Some((key, product)) = PRODUCTS.iter().find_map(|key| Some((*key, label(node, key)?))) else {
        return Vec::new();
    };
    let device = Product {
        name: sanitize(product),
        vendor: "amd",
        selectors: single_selector(&[(key, product)]),
        resource: RESOURCE.to_owned(),
        memory: property(node, "vram").and_then(|text| text.parse().ok()),
        features: std::iter::once("rocm".to_owned()).collect(),
        device_labels: clone_labels(node),
        ..Product::default()
    };
    let partitions = partitions(node, &device);
    std::iter::once(device).chain(partitions).collect()
}

/// Returns partitions that the device plugin advertises as separate resources, such as `amd.com/cpx_nps4`.
fn partitions(node: &NodeInfo, device: &Product) -> Vec<Product> {
    let product = |resource: &String| {
        let partition = resource.strip_prefix("amd.com/").filter(|name| name.contains("_nps"))?;
        Some(Product {
            name: sanitize(&format!("{}-{partition}", device.name)),
            resource: resource.clone(),
            memory: None,
            is_partition: true,
            ..device.clone()
        })
    };
    node.allocatable.keys().filter_map(product).collect()
}

/// Returns a property from `amd.com/gpu.vram: 192G`, or from the counted form `beta.amd.com/gpu.vram.192G: "8"`.
fn property<'a>(node: &'a NodeInfo, name: &str) -> Option<&'a str> {
    ["amd.com/gpu.", "beta.amd.com/gpu."].iter().find_map(|prefix| {
        let key = format!("{prefix}{name}");
        let counted_value = || node.labels.keys().find_map(|label| label.strip_prefix(&key)?.strip_prefix('.'));
        label(node, &key).or_else(counted_value)
    })
}
