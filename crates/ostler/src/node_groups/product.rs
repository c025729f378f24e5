//! Accelerators of simulated nodes: common product names, and all shipped accelerator classes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use apimachinery::Quantity;
use serde_json::Value;

use crate::catalog;
use crate::gpus::GPU_RESOURCE;

/// An accelerator product and how its nodes are labeled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Product {
    /// Name prefix of its nodes.
    pub(super) short_name: String,
    /// Extended resource that Pods request.
    pub(super) resource: String,
    pub(super) labels: BTreeMap<String, String>,
}

/// A GPU whose values in GPU feature discovery differ from its data sheet.
struct KnownGpu {
    names: &'static [&'static str],
    label: &'static str,
    /// `nvidia.com/gpu.memory`, in MiB.
    memory_mib: u32,
    compute_capability: &'static str,
    family: &'static str,
}

/// GPUs by common name.
const KNOWN_GPUS: &[KnownGpu] = &[
    known_gpu(&["H200", "H200-141G"], "NVIDIA-H200", 143_771, "9.0", "hopper"),
    known_gpu(&["H100", "H100-80G"], "NVIDIA-H100-80GB-HBM3", 81_559, "9.0", "hopper"),
    known_gpu(&["A100", "A100-80G"], "NVIDIA-A100-SXM4-80GB", 81_920, "8.0", "ampere"),
    known_gpu(&["A100-40", "A100-40G"], "NVIDIA-A100-SXM4-40GB", 40_960, "8.0", "ampere"),
    known_gpu(&["L40S", "L40S-48G"], "NVIDIA-L40S", 46_068, "8.9", "ada-lovelace"),
    known_gpu(&["L4", "L4-24G"], "NVIDIA-L4", 23_034, "8.9", "ada-lovelace"),
    known_gpu(&["A10", "A10-24G"], "NVIDIA-A10", 23_028, "8.6", "ampere"),
    known_gpu(&["T4", "T4-16G"], "Tesla-T4", 15_360, "7.5", "turing"),
];

const fn known_gpu(
    names: &'static [&'static str],
    label: &'static str,
    memory_mib: u32,
    compute_capability: &'static str,
    family: &'static str,
) -> KnownGpu {
    KnownGpu { names, label, memory_mib, compute_capability, family }
}

static CLASSES: LazyLock<Vec<Value>> =
    LazyLock::new(|| catalog::documents().map(|documents| catalog::classes(&documents)).unwrap_or_default());

/// Finds a product by name: `H100-80G`, `B200`, `mi300x`, or a shipped class such as `nvidia-b200`.
pub(super) fn find(name: &str) -> Option<Product> {
    let lower_case = name.to_ascii_lowercase();
    let known_gpu = KNOWN_GPUS.iter().find(|gpu| gpu.names.iter().any(|alias| alias.eq_ignore_ascii_case(name)));
    known_gpu.map(KnownGpu::to_product).or_else(|| {
        let has_alias = |class: &&Value| aliases(class_name(class)).contains(&lower_case);
        CLASSES.iter().find(has_alias).and_then(from_class)
    })
}

/// Returns the common name of a product by its label `nvidia.com/gpu.product`, or the label if the product is unknown.
pub(crate) fn product_name(label: &str) -> &str {
    let known_gpu = KNOWN_GPUS.iter().find(|gpu| gpu.label == label);
    known_gpu.and_then(|gpu| gpu.names.last()).copied().unwrap_or(label)
}

/// Whether a class of the catalog has accelerators of this resource.
pub(crate) fn is_accelerator_resource(resource: &str) -> bool {
    let resources = CLASSES.iter().flat_map(|class| class["spec"]["resources"].as_array().into_iter().flatten());
    resources.into_iter().any(|declared| declared["name"] == resource)
}

/// Lists the common product names, for error messages.
pub(super) fn examples() -> String {
    KNOWN_GPUS.iter().filter_map(|gpu| gpu.names.last().copied()).collect::<Vec<_>>().join(", ")
}

/// Returns the labels of GPU feature discovery.
fn feature_discovery(
    product: &str,
    memory_mib: &str,
    compute_capability: &str,
    family: &str,
) -> BTreeMap<String, String> {
    let (major, minor) = compute_capability.split_once('.').unwrap_or((compute_capability, "0"));
    let labels = [
        ("present", "true"),
        ("product", product),
        ("memory", memory_mib),
        ("family", family),
        ("compute.major", major),
        ("compute.minor", minor),
    ];
    labels.into_iter().map(|(name, value)| (format!("{GPU_RESOURCE}.{name}"), value.to_owned())).collect()
}

fn class_name(class: &Value) -> &str {
    class["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the names of a class: its own name, without the vendor, and each of these without the memory size.
fn aliases(class: &str) -> Vec<String> {
    let without_vendor = class.split_once('-').map_or(class, |(_, rest)| rest);
    let without_memory = |name: &str| {
        let (prefix, last) = name.rsplit_once('-')?;
        let digits = last.strip_suffix("gb").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some([prefix.to_owned(), format!("{prefix}-{digits}g")])
    };
    let names_without_memory = [class, without_vendor].into_iter().filter_map(without_memory).flatten();
    [class, without_vendor].into_iter().map(str::to_owned).chain(names_without_memory).collect()
}

/// Returns the product of a class: the labels that select its nodes, and its resource.
fn from_class(class: &Value) -> Option<Product> {
    let (spec, name) = (&class["spec"], class_name(class));
    let resource = spec["resources"][0]["name"].as_str()?.to_owned();
    let mut labels = selected_labels(&spec["discovery"]);
    if resource == GPU_RESOURCE {
        let text = |field: &str| spec.pointer(field).and_then(Value::as_str).unwrap_or_default();
        let memory: Quantity = text("/capabilities/memoryGB").parse().ok()?;
        let memory_mib = (memory.value() >> 20).to_string();
        let product = labels.get("nvidia.com/gpu.product").cloned().unwrap_or_default();
        let compute_capability = text("/capabilities/computeCapability");
        labels.extend(feature_discovery(&product, &memory_mib, compute_capability, text("/family")));
    }
    let short_name = name.split_once('-').map_or(name, |(_, rest)| rest).replace('.', "-");
    (!labels.is_empty()).then_some(Product { short_name, resource, labels })
}

/// Returns node labels that match the discovery of a class.
fn selected_labels(discovery: &Value) -> BTreeMap<String, String> {
    let label = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let selector: BTreeMap<String, String> =
        discovery["nodeSelector"].as_object().into_iter().flatten().filter_map(label).collect();
    if !selector.is_empty() {
        return selector;
    }
    let expressions = discovery["nodeSelectorTerms"][0]["matchExpressions"].as_array().into_iter().flatten();
    let first_value = |expression: &Value| {
        Some((expression["key"].as_str()?.to_owned(), expression["values"][0].as_str()?.to_owned()))
    };
    let labels: BTreeMap<String, String> = expressions.filter_map(first_value).collect();
    if labels.is_empty() { pci_device_label(discovery).into_iter().collect() } else { labels }
}

/// Returns the label of node-feature-discovery for the PCI device of a class without a node selector.
fn pci_device_label(discovery: &Value) -> Option<(String, String)> {
    let (vendor, device) = (discovery["pciVendorID"].as_str()?, discovery["deviceIDs"][0].as_str()?);
    Some((format!("feature.node.kubernetes.io/pci-1200_{vendor}_{device}.present"), "true".to_owned()))
}

// === impl KnownGpu ===

impl KnownGpu {
    fn to_product(&self) -> Product {
        let labels = feature_discovery(self.label, &self.memory_mib.to_string(), self.compute_capability, self.family);
        let short_name = self.names.first().copied().unwrap_or_default().to_ascii_lowercase();
        Product { short_name, resource: GPU_RESOURCE.to_owned(), labels }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("H100-80G", "h100", "nvidia.com/gpu")]
    #[case("b200", "b200", "nvidia.com/gpu")]
    #[case("H20", "h20-96gb", "nvidia.com/gpu")]
    #[case("nvidia-h20-96g", "h20-96gb", "nvidia.com/gpu")]
    #[case("MI300X", "mi300x", "amd.com/gpu")]
    #[case("gaudi3", "gaudi3", "habana.ai/gaudi")]
    #[case("TPU-v6e", "tpu-v6e", "google.com/tpu")]
    fn finds_products(#[case] name: &str, #[case] short_name: &str, #[case] resource: &str) {
        let product = find(name).unwrap();
        assert_eq!((product.short_name.as_str(), product.resource.as_str()), (short_name, resource));
    }

    /// Each class can be tried out without its hardware: a simulated node of the class matches no other class.
    #[test]
    fn simulated_node_matches_only_its_class() {
        for class in CLASSES.iter() {
            let product = find(class_name(class)).unwrap_or_else(|| panic!("{}", class_name(class)));
            let matches = |candidate: &&Value| {
                let class = serde_json::from_value((*candidate).clone()).unwrap();
                let class = decide::Class::from_api(&class, None).unwrap();
                let has_resource = class.resource_name() == Some(product.resource.as_str());
                has_resource && decide::matches_discovery(&class.discovery, "n", &product.labels)
            };
            let matching: Vec<&str> = CLASSES.iter().filter(matches).map(class_name).collect();
            assert_eq!(matching, [class_name(class)]);
        }
    }
}
