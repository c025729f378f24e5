//! NVIDIA: labels of GPU feature discovery, with MIG in both strategies and time slicing.

use api::{AcceleratorMemory, ComputeCapability};

use super::{NodeInfo, Product, label, offers, one, own_labels, sanitised};

const PRODUCT: &str = "nvidia.com/gpu.product";
const RESOURCE: &str = "nvidia.com/gpu";

/// The whole GPUs (or, in strategy `single`, the slices that are called GPUs), and the slices of strategy `mixed`.
pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    gpu(node).into_iter().chain(slices(node)).collect()
}

fn gpu(node: &NodeInfo) -> Option<Product> {
    let mixed = label(node, "nvidia.com/mig.strategy") == Some("mixed");
    let all_sliced = mixed && node.allocatable.get(RESOURCE).is_some_and(|whole| *whole == 0);
    let product = label(node, PRODUCT).filter(|_| !all_sliced)?;
    let whole = whole(product);
    let part = whole != product;
    let mut memory = label(node, "nvidia.com/gpu.memory").and_then(mebibytes);
    // Replicas share the memory that the label states once.
    if product.ends_with("-SHARED") {
        let replicas = label(node, "nvidia.com/gpu.replicas").and_then(|text| text.parse::<u64>().ok());
        memory = memory.map(|memory| AcceleratorMemory(memory.0 / replicas.unwrap_or(1).max(1)));
    }
    let mut found = Product {
        name: sanitised(product),
        selectors: one(&[(PRODUCT, product)]),
        resource: RESOURCE.to_owned(),
        memory,
        part,
        ..of_device(node, whole)
    };
    if !part {
        found.features.extend(of_whole(node));
    }
    Some(found)
}

/// Parts can be divided no further, and cannot reach another device.
fn of_whole(node: &NodeInfo) -> impl Iterator<Item = String> {
    let mig = label(node, "nvidia.com/mig.capable") == Some("true");
    let nvlink = label(node, "nvidia.com/nvlink").is_some_and(|value| value != "false");
    [(mig, "mig"), (nvlink, "nvlink")].into_iter().filter(|(has, _)| *has).map(|(_, feature)| feature.to_owned())
}

/// `nvidia.com/mig-1g.5gb.product` and its like, one resource each.
fn slices(node: &NodeInfo) -> Vec<Product> {
    let slice = |(key, product): (&String, &String)| {
        let resource = key.strip_suffix(".product").filter(|resource| resource.starts_with("nvidia.com/mig-"))?;
        Some(Product {
            name: sanitised(product),
            selectors: one(&[(key, product)]),
            resource: resource.to_owned(),
            memory: label(node, &format!("{resource}.memory")).and_then(mebibytes),
            part: true,
            ..of_device(node, whole(product))
        })
    };
    node.labels.iter().filter_map(slice).filter(|slice| offers(node, &slice.resource)).collect()
}

/// What a part has in common with its device.
fn of_device(node: &NodeInfo, product: &str) -> Product {
    let mut whole = own_labels(node);
    whole.insert(PRODUCT.to_owned(), product.to_owned());
    let compute = compute(node);
    Product {
        vendor: "nvidia",
        family: label(node, "nvidia.com/gpu.family").filter(|family| *family != "undefined").map(str::to_owned),
        features: std::iter::once("cuda".to_owned()).chain(compute.iter().flat_map(of_architecture)).collect(),
        compute_capability: compute,
        whole,
        ..Product::default()
    }
}

/// The device that a slice or a replica is part of: `A100-SXM4-40GB-MIG-1g.5gb` → `A100-SXM4-40GB`.
fn whole(product: &str) -> &str {
    let product = product.strip_suffix("-SHARED").unwrap_or(product);
    product.split_once("-MIG-").map_or(product, |(whole, _)| whole)
}

/// Seed 000 reads `nvidia.com/gpu.compute`; GPU feature discovery publishes major and minor.
fn compute(node: &NodeInfo) -> Option<ComputeCapability> {
    let whole = label(node, "nvidia.com/gpu.compute").and_then(|text| text.parse().ok());
    whole.or_else(|| {
        let major = label(node, "nvidia.com/gpu.compute.major")?;
        let minor = label(node, "nvidia.com/gpu.compute.minor").unwrap_or("0");
        format!("{major}.{minor}").parse().ok()
    })
}

/// What every GPU of that capability has: tensor cores since Ampere (Turing's lesser ones lack them), FP8 since Ada.
fn of_architecture(compute: &ComputeCapability) -> Vec<String> {
    let since = |text: &str| text.parse::<ComputeCapability>().is_ok_and(|least| *compute >= least);
    let known = [("8.0", "tensor-cores"), ("8.9", "fp8")];
    known.iter().filter(|(least, _)| since(least)).map(|(_, feature)| (*feature).to_owned()).collect()
}

fn mebibytes(text: &str) -> Option<AcceleratorMemory> {
    text.parse().ok().filter(|mib| *mib > 0).map(AcceleratorMemory::from_mib)
}
