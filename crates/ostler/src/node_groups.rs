//! Node groups in shorthand (`this, 8×H100-80G ×2, this+2×L4`), converted to Node objects with the labels of the vendors'
//! feature discovery.

pub(crate) mod input;
mod product;

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::gpus::{GPU_RESOURCE, HostAccelerators};
use crate::host_node;
use crate::simulated_devices::simulated_ids;
use product::Product;

pub(crate) use product::{is_accelerator_resource, product_name};

/// Annotation of simulated nodes with their accelerators, such as `8×h100`.
pub(crate) const ACCELERATORS_ANNOTATION: &str = "ostler.dev/accelerators";

/// Annotation that marks simulated nodes.
pub(crate) const SIMULATED_ANNOTATION: &str = "ostler.dev/simulated";

/// Other resources of a simulated node.
const CPU: &str = "192";
const MEMORY: &str = "2Ti";
const PODS: &str = "250";

/// Maximum number of nodes of a group. Kubernetes supports 5000 nodes, so a larger number is probably a typo.
const MAX_NODES: u32 = 10_000;
/// Maximum number of accelerators of a node.
const MAX_ACCELERATORS: u32 = 1_000;

/// A group of equal nodes: `8×H100-80G ×2`, or with a name `big=8×H100-80G`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeGroup {
    pub name: String,
    pub accelerators: u32,
    pub product: String,
    pub nodes: u32,
}

/// An entry of the shorthand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeEntry {
    /// `this`: the host that `ostler up` runs on, with its GPUs.
    Host,
    /// `this+2×L4`: the host with simulated accelerators instead of its GPUs.
    HostWith(NodeGroup),
    /// A group of equal simulated nodes.
    Simulated(NodeGroup),
}

/// Error in the shorthand of node groups.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum NodeShorthandError {
    /// An item does not have the form of a group.
    #[error("`{0}` is not `[NAME=]COUNT×PRODUCT [×NODES]`, for example `8×H100-80G ×2`")]
    InvalidFormat(String),
    /// A number of accelerators or nodes is zero, too large or not a number.
    #[error("`{item}`: invalid number of {unit} {number}; expected 1 to {max}")]
    InvalidCount { item: String, number: String, unit: &'static str, max: u32 },
    /// A name is not valid as the name of a node.
    #[error("`{0}`: a node name may contain only a-z, 0-9 and -")]
    InvalidName(String),
    /// The host is more than one node, or has another name.
    #[error("`{0}` is not `this` or `this+COUNT×PRODUCT`, for example `this+2×L4`")]
    InvalidHost(String),
    /// The product is not a known accelerator.
    #[error("unknown accelerator `{0}`; expected one of {known}, or a class of `ostler catalog list classes`", known = product::examples())]
    UnknownProduct(String),
}

/// Parses groups that are separated by commas or newlines; `#` starts a comment.
pub(crate) fn parse(text: &str) -> Result<Vec<NodeEntry>, NodeShorthandError> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or(""));
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|item| !item.is_empty()).map(parse_entry).collect()
}

fn parse_entry(item: &str) -> Result<NodeEntry, NodeShorthandError> {
    match item.strip_prefix("this").map(str::trim_start) {
        Some("") => Ok(NodeEntry::Host),
        Some(rest) if rest.starts_with('+') => parse_host_accelerators(item, &rest[1..]),
        _ => parse_group(item).map(NodeEntry::Simulated),
    }
}

fn parse_host_accelerators(item: &str, accelerators: &str) -> Result<NodeEntry, NodeShorthandError> {
    let group = parse_group(accelerators.trim())?;
    if group.nodes != 1 || accelerators.contains('=') {
        return Err(NodeShorthandError::InvalidHost(item.to_owned()));
    }
    Ok(NodeEntry::HostWith(group))
}

fn parse_group(item: &str) -> Result<NodeGroup, NodeShorthandError> {
    let invalid_format = || NodeShorthandError::InvalidFormat(item.to_owned());
    let parse_number = |unit, text: &str, max: u32| {
        let number = text.trim().to_owned();
        let valid = number.parse().ok().filter(|number| (1..=max).contains(number));
        valid.ok_or(NodeShorthandError::InvalidCount { item: item.to_owned(), number, unit, max })
    };
    let (name, rest) = match item.split_once('=') {
        Some((name, rest)) => (Some(name.trim()), rest.trim()),
        None => (None, item),
    };
    let (count, rest) = rest.split_once(['×', 'x', '*']).ok_or_else(invalid_format)?;
    let (product, nodes) = match rest.trim().split_once(char::is_whitespace) {
        Some((product, nodes)) => (product, nodes.trim().trim_start_matches(['×', 'x', '*'])),
        None => (rest.trim(), "1"),
    };
    let known_product = product::find(product).ok_or_else(|| NodeShorthandError::UnknownProduct(product.to_owned()))?;
    if name.is_some_and(|name| !is_valid_node_name(name)) {
        return Err(NodeShorthandError::InvalidName(item.to_owned()));
    }
    Ok(NodeGroup {
        name: name.map_or_else(|| known_product.short_name.clone(), str::to_owned),
        accelerators: parse_number("accelerators", count, MAX_ACCELERATORS)?,
        product: product.to_owned(),
        nodes: parse_number("nodes", nodes, MAX_NODES)?,
    })
}

/// Returns the Node objects `{name}-0`, `{name}-1`, … of all groups. Groups with the same name are numbered consecutively.
/// `accelerators` are those of this host.
pub(crate) fn to_nodes(entries: &[NodeEntry], accelerators: &HostAccelerators) -> Vec<Value> {
    let mut nodes = Vec::new();
    if entries.iter().any(|entry| matches!(entry, NodeEntry::Host | NodeEntry::HostWith(_))) {
        nodes.push(host_node::node(accelerators));
    }
    let mut next_numbers = std::collections::BTreeMap::<&str, u32>::new();
    for entry in entries {
        let NodeEntry::Simulated(group) = entry else { continue };
        let Some(product) = product::find(&group.product) else { continue };
        let number = next_numbers.entry(&group.name).or_default();
        for _ in 0..group.nodes {
            nodes.push(simulated_node(&format!("{}-{number}", group.name), group.accelerators, &product));
            *number += 1;
        }
    }
    nodes
}

/// Returns the accelerators of this host if it is one of the nodes.
pub(crate) fn host_accelerators(entries: &[NodeEntry]) -> HostAccelerators {
    let simulated = entries.iter().find_map(|entry| match entry {
        NodeEntry::HostWith(group) => pretended_accelerators(group),
        NodeEntry::Host | NodeEntry::Simulated(_) => None,
    });
    match simulated {
        Some(accelerators) => accelerators,
        None if entries.contains(&NodeEntry::Host) => HostAccelerators::discover(),
        None => HostAccelerators::default(),
    }
}

/// Returns the accelerators that the stored node of this host pretends to have.
pub(crate) fn stored_accelerators(host: &Value) -> Option<HostAccelerators> {
    let annotation = host["metadata"]["annotations"][host_node::SIMULATED_ACCELERATORS_ANNOTATION].as_str()?;
    pretended_accelerators(&parse_group(annotation).ok()?)
}

fn pretended_accelerators(group: &NodeGroup) -> Option<HostAccelerators> {
    let product = product::find(&group.product)?;
    let count = group.accelerators;
    let mut labels: Map<String, Value> =
        product.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    if product.resource == GPU_RESOURCE {
        labels.insert("nvidia.com/gpu.count".to_owned(), json!(count.to_string()));
    }
    Some(HostAccelerators {
        ids: simulated_ids(&host_node::node_name(), &product.resource, count as usize),
        resource: product.resource,
        labels,
        simulated: Some(format!("{count}×{}", group.product)),
    })
}

fn simulated_node(name: &str, accelerators: u32, product: &Product) -> Value {
    let mut resources = json!({"cpu": CPU, "memory": MEMORY, "pods": PODS});
    resources[&product.resource] = json!(accelerators.to_string());
    let mut labels = json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    });
    for (key, value) in &product.labels {
        labels[key] = json!(value);
    }
    if product.resource == GPU_RESOURCE {
        labels["nvidia.com/gpu.count"] = json!(accelerators.to_string());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {SIMULATED_ANNOTATION: "true", ACCELERATORS_ANNOTATION: format!("{accelerators}×{}", product.short_name)},
        },
        "spec": {},
        "status": {"capacity": resources, "allocatable": resources},
    })
}

fn is_valid_node_name(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.len() <= 50 && name.chars().all(is_valid) && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("8×H100", "h100", 8, 1)]
    #[case::repeated("8×H100-80G ×2", "h100", 8, 2)]
    #[case::ascii("4xL40S x3", "l40s", 4, 3)]
    #[case::named("big=8*A100-40G", "big", 8, 1)]
    #[case::from_catalog("8×MI300X ×3", "mi300x", 8, 3)]
    #[case::class("4×nvidia-b200", "b200", 4, 1)]
    #[case::mig_slice("7×nvidia-h100-80gb-mig-1g.10gb", "h100-80gb-mig-1g-10gb", 7, 1)]
    fn parses_groups(#[case] text: &str, #[case] name: &str, #[case] accelerators: u32, #[case] count: u32) {
        let NodeEntry::Simulated(group) = parse(text).unwrap().remove(0) else { panic!() };
        assert_eq!((group.name.as_str(), group.accelerators, group.nodes), (name, accelerators, count));
    }

    #[rstest]
    #[case::no_count("H100", "`H100` is not `[NAME=]COUNT×PRODUCT [×NODES]`, for example `8×H100-80G ×2`")]
    #[case::unknown(
        "8×H900",
        "unknown accelerator `H900`; expected one of H200-141G, H100-80G, A100-80G, A100-40G, L40S-48G, L4-24G, A10-24G, T4-16G, or a class of `ostler catalog list classes`"
    )]
    #[case::no_accelerators("0×H100", "`0×H100`: invalid number of accelerators 0; expected 1 to 1000")]
    #[case::too_many_nodes("8×H100 ×20000", "`8×H100 ×20000`: invalid number of nodes 20000; expected 1 to 10000")]
    #[case::two_hosts("this+2×L4 ×2", "`this+2×L4 ×2` is not `this` or `this+COUNT×PRODUCT`, for example `this+2×L4`")]
    #[case::named_host("this+a=2×L4", "`this+a=2×L4` is not `this` or `this+COUNT×PRODUCT`, for example `this+2×L4`")]
    #[case::other_host("thisone", "`thisone` is not `[NAME=]COUNT×PRODUCT [×NODES]`, for example `8×H100-80G ×2`")]
    #[case::negative("8×H100 ×-3", "`8×H100 ×-3`: invalid number of nodes -3; expected 1 to 10000")]
    fn reports_errors(#[case] text: &str, #[case] message: &str) {
        assert_eq!(parse(text).unwrap_err().to_string(), message);
    }

    #[test]
    fn creates_host_node_once() {
        let nodes = to_nodes(&parse("this, 8×H100, this").unwrap(), &HostAccelerators::default());
        let is_simulated = |node: &Value| node["metadata"]["annotations"][SIMULATED_ANNOTATION] == "true";
        assert_eq!(nodes.iter().map(is_simulated).collect::<Vec<_>>(), [false, true]);
        assert_ne!(nodes[0]["status"]["allocatable"]["memory"], "0Ki");
    }

    #[test]
    fn host_pretends_to_have_accelerators() {
        let entries = parse("this+2×L4").unwrap();
        let accelerators = host_accelerators(&entries);
        let node = to_nodes(&entries, &accelerators).remove(0);
        assert_eq!(node["status"]["allocatable"]["nvidia.com/gpu"], "2");
        assert_eq!(node["metadata"]["labels"]["nvidia.com/gpu.product"], "NVIDIA-L4");
        assert_eq!(node["metadata"]["labels"]["nvidia.com/gpu.count"], "2");
        assert_eq!(accelerators.ids.len(), 2);
        assert_eq!(stored_accelerators(&node), Some(accelerators), "a start without --nodes restores them");
        assert_eq!(stored_accelerators(&host_node::node(&HostAccelerators::default())), None);
    }

    #[test]
    fn numbers_nodes_per_name() {
        let names: Vec<_> = to_nodes(&parse("8×H100 ×2, 4×H100").unwrap(), &HostAccelerators::default())
            .iter()
            .map(|node| node["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["h100-0", "h100-1", "h100-2"]);
    }
}
