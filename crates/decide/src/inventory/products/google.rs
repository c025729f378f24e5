//! Google: TPU node pools of GKE.

use super::{NodeInfo, Product, label, one, own_labels, sanitised};

const PRODUCT: &str = "cloud.google.com/gke-tpu-accelerator";

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let tpu = |product: &str| Product {
        name: sanitised(product),
        vendor: "google",
        family: Some("tpu".to_owned()),
        selectors: one(&[(PRODUCT, product)]),
        resource: "google.com/tpu".to_owned(),
        whole: own_labels(node),
        ..Product::default()
    };
    label(node, PRODUCT).map(tpu).into_iter().collect()
}
