//! Huawei: Ascend chips by the labels of their device plugin, and virtual NPUs.

use super::{NodeInfo, Product, label, one, own_labels, sanitised};

/// The chip's exact type before its series.
const PRODUCTS: [&str; 2] = ["node.kubernetes.io/npu.chip.name", "accelerator"];

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let Some((key, value)) = PRODUCTS.iter().find_map(|key| Some((*key, label(node, key)?))) else {
        return Vec::new();
    };
    let name = match key {
        "accelerator" if value.starts_with("huawei-") => sanitised(value),
        "accelerator" => return Vec::new(),
        _ => sanitised(&format!("huawei-ascend{}", value.trim_start_matches("Ascend"))),
    };
    let npus = node.allocatable.keys().filter(|resource| resource.starts_with("huawei.com/Ascend"));
    npus.map(|resource| {
        // `huawei.com/Ascend910-2c` is a virtual NPU, a part of a chip.
        let part = resource.trim_start_matches("huawei.com/").split_once('-').map(|(_, part)| part);
        Product {
            name: part.map_or_else(|| name.clone(), |part| format!("{name}-{}", sanitised(part))),
            vendor: "huawei",
            family: Some("ascend".to_owned()),
            selectors: one(&[(key, value)]),
            resource: resource.clone(),
            part: part.is_some(),
            whole: own_labels(node),
            ..Product::default()
        }
    })
    .collect()
}
