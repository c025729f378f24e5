//! AMD: labels of the node labeller, in their plain, `beta.` and counted forms, and partitions of a device.

use super::{NodeInfo, Product, label, one, own_labels, sanitised};

const PRODUCTS: [&str; 4] =
    ["amd.com/gpu.product-name", "amd.com/gpu.product", "beta.amd.com/gpu.product-name", "gpu.amd.com/model"];
const RESOURCE: &str = "amd.com/gpu";

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let Some((key, product)) = PRODUCTS.iter().find_map(|key| Some((*key, label(node, key)?))) else {
        return Vec::new();
    };
    let device = Product {
        name: sanitised(product),
        vendor: "amd",
        selectors: one(&[(key, product)]),
        resource: RESOURCE.to_owned(),
        memory: property(node, "vram").and_then(|text| text.parse().ok()),
        features: std::iter::once("rocm".to_owned()).collect(),
        whole: own_labels(node),
        ..Product::default()
    };
    let partitions = partitions(node, &device);
    std::iter::once(device).chain(partitions).collect()
}

/// `amd.com/cpx_nps4` and its like, where the device plugin names partitions as resources of their own.
fn partitions(node: &NodeInfo, device: &Product) -> Vec<Product> {
    let part = |resource: &String| {
        let partition = resource.strip_prefix("amd.com/").filter(|name| name.contains("_nps"))?;
        Some(Product {
            name: sanitised(&format!("{}-{partition}", device.name)),
            resource: resource.clone(),
            memory: None,
            part: true,
            ..device.clone()
        })
    };
    node.allocatable.keys().filter_map(part).collect()
}

/// `amd.com/gpu.vram: 192G`, or counted: `beta.amd.com/gpu.vram.192G: "8"`.
fn property<'a>(node: &'a NodeInfo, name: &str) -> Option<&'a str> {
    ["amd.com/gpu.", "beta.amd.com/gpu."].iter().find_map(|prefix| {
        let key = format!("{prefix}{name}");
        let counted = || node.labels.keys().find_map(|label| label.strip_prefix(&key)?.strip_prefix('.'));
        label(node, &key).or_else(counted)
    })
}
