//! Google: TPU node pools of GKE.

use super::product::{Product, clone_labels, label, sanitize, single_selector};
use crate::inventory::NodeInfo;

const PRODUCT: &str = "cloud.google.com/gke-tpu-accelerator";

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let tpu = |product: &str| Product {
        name: sanitize(product),
        vendor: "google",
        family: Some("tpu".to_owned()),
        selectors: single_selector(&[(PRODUCT, product)]),
        resource: "google.com/tpu".to_owned(),
        device_labels: clone_labels(node),
        ..Product::default()
    };
    label(node, PRODUCT).map(tpu).into_iter().collect()
}
