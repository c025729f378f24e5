//! Nodes without a vendor's discovery: what the cloud says about its node pools.

use super::{NodeInfo, Product, label, offers, one, own_labels, sanitised};

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
    let resource = RESOURCES.into_iter().find(|(resource, _)| offers(node, resource));
    let found = |((key, value), (resource, vendor)): ((&str, &str), (&str, &'static str))| Product {
        name: sanitised(value),
        vendor,
        selectors: one(&[(key, value)]),
        resource: resource.to_owned(),
        whole: own_labels(node),
        ..Product::default()
    };
    product.zip(resource).map(found).into_iter().collect()
}
