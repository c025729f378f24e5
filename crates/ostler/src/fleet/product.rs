//! What a simulated node carries: products as people write them, and every shipped accelerator class.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::catalog;

/// A product as its nodes show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Product {
    /// What nodes of it are called.
    pub(super) short: String,
    /// What Pods request.
    pub(super) resource: String,
    pub(super) labels: BTreeMap<String, String>,
}

/// Figures of GPU feature discovery where the driver's differ from what a GPU is sold as.
struct Known {
    names: &'static [&'static str],
    label: &'static str,
    /// `nvidia.com/gpu.memory`, in MiB.
    memory_mib: u32,
    compute: &'static str,
    family: &'static str,
}

const KNOWN: &[Known] = &[
    known(&["H200", "H200-141G"], "NVIDIA-H200", 143_771, "9.0", "hopper"),
    known(&["H100", "H100-80G"], "NVIDIA-H100-80GB-HBM3", 81_559, "9.0", "hopper"),
    known(&["A100", "A100-80G"], "NVIDIA-A100-SXM4-80GB", 81_920, "8.0", "ampere"),
    known(&["A100-40", "A100-40G"], "NVIDIA-A100-SXM4-40GB", 40_960, "8.0", "ampere"),
    known(&["L40S", "L40S-48G"], "NVIDIA-L40S", 46_068, "8.9", "ada-lovelace"),
    known(&["L4", "L4-24G"], "NVIDIA-L4", 23_034, "8.9", "ada-lovelace"),
    known(&["A10", "A10-24G"], "NVIDIA-A10", 23_028, "8.6", "ampere"),
    known(&["T4", "T4-16G"], "Tesla-T4", 15_360, "7.5", "turing"),
];

const fn known(
    names: &'static [&'static str],
    label: &'static str,
    memory_mib: u32,
    compute: &'static str,
    family: &'static str,
) -> Known {
    Known { names, label, memory_mib, compute, family }
}

static CLASSES: LazyLock<Vec<Value>> =
    LazyLock::new(|| catalog::documents().map(|shipped| catalog::classes(&shipped)).unwrap_or_default());

/// The product that people call so: `H100-80G`, `B200`, `mi300x`, or a shipped class (`nvidia-b200`).
pub(super) fn find(name: &str) -> Option<Product> {
    let asked = name.to_ascii_lowercase();
    let by_name = KNOWN.iter().find(|one| one.names.iter().any(|known| known.eq_ignore_ascii_case(name)));
    by_name.map(Known::product).or_else(|| {
        let called = |class: &&Value| spellings(class_name(class)).contains(&asked);
        CLASSES.iter().find(called).and_then(of_class)
    })
}

/// The product as people write it, for the value of `nvidia.com/gpu.product`; the label itself where it is not known.
pub(super) fn spoken(label: &str) -> &str {
    let known = KNOWN.iter().find(|product| product.label == label);
    known.and_then(|product| product.names.last()).copied().unwrap_or(label)
}

/// Some of those that are known.
pub(super) fn examples() -> String {
    KNOWN.iter().filter_map(|product| product.names.last().copied()).collect::<Vec<_>>().join(", ")
}

impl Known {
    fn product(&self) -> Product {
        let labels = feature_discovery(self.label, &self.memory_mib.to_string(), self.compute, self.family);
        let short = self.names.first().copied().unwrap_or_default().to_ascii_lowercase();
        Product { short, resource: GPU.to_owned(), labels }
    }
}

pub(super) const GPU: &str = "nvidia.com/gpu";

/// Labels that GPU feature discovery would put.
fn feature_discovery(product: &str, memory_mib: &str, compute: &str, family: &str) -> BTreeMap<String, String> {
    let (major, minor) = compute.split_once('.').unwrap_or((compute, "0"));
    let labels = [
        ("present", "true"),
        ("product", product),
        ("memory", memory_mib),
        ("family", family),
        ("compute.major", major),
        ("compute.minor", minor),
    ];
    labels.into_iter().map(|(name, value)| (format!("{GPU}.{name}"), value.to_owned())).collect()
}

fn class_name(class: &Value) -> &str {
    class["metadata"]["name"].as_str().unwrap_or_default()
}

/// A class is called by its name, without its vendor, and each of these without its memory.
fn spellings(class: &str) -> Vec<String> {
    let bare = class.split_once('-').map_or(class, |(_, rest)| rest);
    let memory = |name: &str| {
        let (before, last) = name.rsplit_once('-')?;
        let digits = last.strip_suffix("gb").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some([before.to_owned(), format!("{before}-{digits}g")])
    };
    let shorter = [class, bare].into_iter().filter_map(memory).flatten();
    [class, bare].into_iter().map(str::to_owned).chain(shorter).collect()
}

/// The labels by which the class finds its nodes, and what its Pods request.
fn of_class(class: &Value) -> Option<Product> {
    let (spec, name) = (&class["spec"], class_name(class));
    let resource = spec["resources"][0]["name"].as_str()?.to_owned();
    let mut labels = discovered(&spec["discovery"]);
    if resource == GPU {
        let text = |field: &str| spec.pointer(field).and_then(Value::as_str).unwrap_or_default();
        let memory: u64 = text("/capabilities/memoryGB").trim_end_matches("Gi").parse().ok()?;
        let product = labels.get("nvidia.com/gpu.product").cloned().unwrap_or_default();
        let compute = text("/capabilities/computeCapability");
        labels.extend(feature_discovery(&product, &(memory * 1024).to_string(), compute, text("/family")));
    }
    let short = name.split_once('-').map_or(name, |(_, rest)| rest).replace('.', "-");
    (!labels.is_empty()).then_some(Product { short, resource, labels })
}

/// One way in which a node belongs to it.
fn discovered(discovery: &Value) -> BTreeMap<String, String> {
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let selector: BTreeMap<String, String> =
        discovery["nodeSelector"].as_object().into_iter().flatten().filter_map(pair).collect();
    if !selector.is_empty() {
        return selector;
    }
    let expressions = discovery["nodeSelectorTerms"][0]["matchExpressions"].as_array().into_iter().flatten();
    let first = |one: &Value| Some((one["key"].as_str()?.to_owned(), one["values"][0].as_str()?.to_owned()));
    let of_terms: BTreeMap<String, String> = expressions.filter_map(first).collect();
    if of_terms.is_empty() { by_device(discovery).into_iter().collect() } else { of_terms }
}

/// The label of node-feature-discovery for a device that nothing else tells.
fn by_device(discovery: &Value) -> Option<(String, String)> {
    let (vendor, device) = (discovery["pciVendorID"].as_str()?, discovery["deviceIDs"][0].as_str()?);
    Some((format!("feature.node.kubernetes.io/pci-1200_{vendor}_{device}.present"), "true".to_owned()))
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
    fn products(#[case] name: &str, #[case] short: &str, #[case] resource: &str) {
        let product = find(name).unwrap();
        assert_eq!((product.short.as_str(), product.resource.as_str()), (short, resource));
    }

    /// Every class can be tried without its hardware: a node of it belongs to it and to no other.
    #[test]
    fn a_node_of_every_class_is_of_that_class() {
        for class in CLASSES.iter() {
            let product = find(class_name(class)).unwrap_or_else(|| panic!("{}", class_name(class)));
            let of = |one: &&Value| {
                let class = serde_json::from_value((*one).clone()).unwrap();
                let class = decide::Class::from_api(&class, None).unwrap();
                let named = class.resource_name() == Some(product.resource.as_str());
                named && decide::inventory::belongs(&class.discovery, "n", &product.labels)
            };
            let owners: Vec<&str> = CLASSES.iter().filter(of).map(class_name).collect();
            assert_eq!(owners, [class_name(class)]);
        }
    }
}
