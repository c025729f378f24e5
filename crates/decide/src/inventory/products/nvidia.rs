//! NVIDIA: labels of GPU feature discovery, including both MIG strategies and time-slicing.

use api::{AcceleratorMemory, ComputeCapability};

use super::product::{Product, clone_labels, has_resource, label, sanitize, single_selector};
use crate::inventory::NodeInfo;

pub(super) const PRODUCT: &str = "nvidia.com/gpu.product";
pub(super) const RESOURCE: &str = "nvidia.com/gpu";
/// Prefix of the resources of slices with strategy `mixed`.
const SLICES: &str = "nvidia.com/mig-";

/// Returns the GPUs (in MIG strategy `single`, the slices under the GPU resource), and the slices of strategy `mixed`.
pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    gpu(node).into_iter().chain(slices(node)).collect()
}

/// Returns whether the node offers slices only. Strategy `single` offers them as GPUs, with a product of their own.
pub(super) fn is_fully_sliced(node: &NodeInfo) -> bool {
    let units = |resource: &str| node.allocatable.get(resource).copied();
    let has_slices = || node.allocatable.iter().any(|(resource, units)| resource.starts_with(SLICES) && *units > 0);
    let is_mixed = label(node, "nvidia.com/mig.strategy") == Some("mixed");
    (is_mixed && units(RESOURCE) == Some(0)) || (units(RESOURCE).unwrap_or(0) == 0 && has_slices())
}

fn gpu(node: &NodeInfo) -> Option<Product> {
    let product = label(node, PRODUCT).filter(|_| !is_fully_sliced(node))?;
    let device = device_name(product);
    let is_partition = device != product;
    let mut memory = label(node, "nvidia.com/gpu.memory").and_then(parse_mebibytes);
    // Time-slicing replicas share the memory of the device.
    if product.ends_with("-SHARED") {
        let replicas = label(node, "nvidia.com/gpu.replicas").and_then(|text| text.parse::<u64>().ok());
        memory = memory.map(|memory| AcceleratorMemory(memory.0 / replicas.unwrap_or(1).max(1)));
    }
    let mut gpu = Product {
        name: sanitize(product),
        selectors: single_selector(&[(PRODUCT, product)]),
        resource: RESOURCE.to_owned(),
        memory,
        is_partition,
        is_slice: is_partition,
        ..device_properties(node, device)
    };
    if !is_partition {
        gpu.features.extend(whole_device_features(node));
    }
    Some(gpu)
}

/// Returns features of whole devices: partitions cannot be partitioned again and have no NVLink.
fn whole_device_features(node: &NodeInfo) -> impl Iterator<Item = String> {
    let mig = label(node, "nvidia.com/mig.capable") == Some("true");
    let nvlink = label(node, "nvidia.com/nvlink").is_some_and(|value| value != "false");
    [(mig, "mig"), (nvlink, "nvlink")].into_iter().filter(|(has, _)| *has).map(|(_, feature)| feature.to_owned())
}

/// Returns the MIG slices, from labels such as `nvidia.com/mig-1g.5gb.product`.
fn slices(node: &NodeInfo) -> Vec<Product> {
    let slice = |(key, product): (&String, &String)| {
        let resource = key.strip_suffix(".product").filter(|resource| resource.starts_with(SLICES))?;
        Some(Product {
            name: sanitize(product),
            selectors: single_selector(&[(key, product)]),
            resource: resource.to_owned(),
            memory: label(node, &format!("{resource}.memory")).and_then(parse_mebibytes),
            is_partition: true,
            is_slice: true,
            ..device_properties(node, device_name(product))
        })
    };
    node.labels.iter().filter_map(slice).filter(|slice| has_resource(node, &slice.resource)).collect()
}

/// Returns the properties that a partition shares with its device.
fn device_properties(node: &NodeInfo, product: &str) -> Product {
    let mut device_labels = clone_labels(node);
    device_labels.insert(PRODUCT.to_owned(), product.to_owned());
    let compute_capability = compute_capability(node);
    Product {
        vendor: "nvidia",
        family: label(node, "nvidia.com/gpu.family").filter(|family| *family != "undefined").map(str::to_owned),
        features: std::iter::once("cuda".to_owned())
            .chain(compute_capability.iter().flat_map(architecture_features))
            .collect(),
        compute_capability,
        device_labels,
        ..Product::default()
    }
}

/// Returns the device of a slice or a replica: `A100-SXM4-40GB-MIG-1g.5gb` → `A100-SXM4-40GB`.
pub(super) fn device_name(product: &str) -> &str {
    let product = product.strip_suffix("-SHARED").unwrap_or(product);
    product.split_once("-MIG-").map_or(product, |(device, _)| device)
}

/// Returns the compute capability from `nvidia.com/gpu.compute` (seed 000), or from the major and minor version labels
/// of GPU feature discovery.
fn compute_capability(node: &NodeInfo) -> Option<ComputeCapability> {
    let version = label(node, "nvidia.com/gpu.compute").and_then(|text| text.parse().ok());
    version.or_else(|| {
        let major = label(node, "nvidia.com/gpu.compute.major")?;
        let minor = label(node, "nvidia.com/gpu.compute.minor").unwrap_or("0");
        format!("{major}.{minor}").parse().ok()
    })
}

/// Returns the features of every GPU with this capability: tensor cores since Ampere (some Turing GPUs lack them), FP8 since
/// Ada.
fn architecture_features(version: &ComputeCapability) -> Vec<String> {
    let is_at_least = |text: &str| text.parse::<ComputeCapability>().is_ok_and(|minimum| *version >= minimum);
    let known = [("8.0", "tensor-cores"), ("8.9", "fp8")];
    known.iter().filter(|(minimum, _)| is_at_least(minimum)).map(|(_, feature)| (*feature).to_owned()).collect()
}

fn parse_mebibytes(text: &str) -> Option<AcceleratorMemory> {
    text.parse().ok().filter(|mib| *mib > 0).map(AcceleratorMemory::from_mib)
}
