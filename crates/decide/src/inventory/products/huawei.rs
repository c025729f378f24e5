//! Huawei: Ascend chips and virtual NPUs, detected by the labels of the device plugin.

use super::product::{Product, clone_labels, label, sanitize, single_selector};
use crate::inventory::NodeInfo;

/// Labels in order of preference: chip type, chip series.
const PRODUCTS: [&str; 2] = ["node.kubernetes.io/npu.chip.name", "accelerator"];

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let Some((key, value)) = PRODUCTS.iter().find_map(|key| Some((*key, label(node, key)?))) else {
        return Vec::new();
    };
    let name = match key {
        "accelerator" if value.starts_with("huawei-") => sanitize(value),
        "accelerator" => return Vec::new(),
        _ => sanitize(&format!("huawei-ascend{}", value.trim_start_matches("Ascend"))),
    };
    let npus = node.allocatable.keys().filter(|resource| resource.starts_with("huawei.com/Ascend"));
    npus.map(|resource| {
        // `huawei.com/Ascend910-2c` is a virtual NPU.
        let partition = resource.trim_start_matches("huawei.com/").split_once('-').map(|(_, partition)| partition);
        Product {
            name: partition.map_or_else(|| name.clone(), |partition| format!("{name}-{}", sanitize(partition))),
            vendor: "huawei",
            family: Some("ascend".to_owned()),
            selectors: single_selector(&[(key, value)]),
            resource: resource.clone(),
            is_partition: partition.is_some(),
            is_slice: partition.is_some(),
            device_labels: clone_labels(node),
            ..Product::default()
        }
    })
    .collect()
}
