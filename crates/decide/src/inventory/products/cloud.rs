//! Cloud providers: node pool labels, for nodes without vendor labels.

use super::product::{Product, clone_labels, has_resource, label, sanitize, single_selector};
use crate::inventory::NodeInfo;

const PRODUCTS: [&str; 4] = [
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-accelerator-name",
];
const RESOURCES: [(&str, &str); 3] =
    [("nvidia.com/gpu", "nvidia"), ("amd.com/gpu", "amd"), ("aws.amazon.com/neuron", "aws")];

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let product = PRODUCTS.iter().find_map(|key| Some((*key, label(node, key)?)));
    let resource = RESOURCES.into_iter().find(|(resource, _)| has_resource(node, resource));
    let detected = |((key, value), (resource, vendor)): ((&str, &str), (&str, &'static str))| Product {
        name: sanitize(value),
        vendor,
        selectors: single_selector(&[(key, value)]),
        resource: resource.to_owned(),
        device_labels: clone_labels(node),
        ..Product::default()
    };
    product.zip(resource).map(detected).into_iter().collect()
}
