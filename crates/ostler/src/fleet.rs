//! Fleet shorthand (`this, 8×H100-80G ×2, 4×MI300X`) becomes Node objects with the labels that vendors' discovery would put.

mod product;
pub(crate) mod stated;

use product::Product;
use serde_json::{Value, json};
use thiserror::Error;

use crate::gpus::Gpus;
use crate::this_machine;

/// Annotation of simulated nodes: what they carry, as people write it.
pub(crate) const CARRIES: &str = "ostler.dev/accelerators";

/// Annotation of nodes that were made here.
pub(crate) const SIMULATED: &str = "ostler.dev/simulated";

/// What a simulated node has besides accelerators.
const CPU: &str = "192";
const MEMORY: &str = "2Ti";
const PODS: &str = "250";

/// Of one group. More is a typing error: Kubernetes itself ends at 5000 nodes.
const MOST_NODES: u32 = 10_000;
/// Of one node.
const MOST_ACCELERATORS: u32 = 1_000;

/// `8×H100-80G ×2` or, named, `big=8×H100-80G`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub name: String,
    pub accelerators: u32,
    pub product: String,
    pub nodes: u32,
}

/// One entry of the shorthand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// `this`: the machine that `ostler up` runs on.
    ThisMachine,
    Simulated(Group),
}

/// The shorthand is not one.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum FleetError {
    #[error("`{0}` is not `[NAME=]COUNT×PRODUCT [×NODES]`, for example `8×H100-80G ×2`")]
    Shape(String),
    #[error("`{item}`: {number} {what}; one to {most} are possible")]
    Number { item: String, number: String, what: &'static str, most: u32 },
    #[error("`{0}`: a node's name has a-z, 0-9 and - only")]
    Name(String),
    #[error("`{0}` is not a product known here; one of {known}, or a class of `ostler catalog list classes`", known = product::examples())]
    UnknownProduct(String),
}

/// Reads comma- or line-separated groups; `#` starts a comment.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, FleetError> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or(""));
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|item| !item.is_empty()).map(entry).collect()
}

fn entry(item: &str) -> Result<Entry, FleetError> {
    if item == "this" { Ok(Entry::ThisMachine) } else { group(item).map(Entry::Simulated) }
}

fn group(item: &str) -> Result<Group, FleetError> {
    let shape = || FleetError::Shape(item.to_owned());
    let number = |what, text: &str, most: u32| {
        let number = text.trim().to_owned();
        let possible = number.parse().ok().filter(|number| (1..=most).contains(number));
        possible.ok_or(FleetError::Number { item: item.to_owned(), number, what, most })
    };
    let (name, rest) = match item.split_once('=') {
        Some((name, rest)) => (Some(name.trim()), rest.trim()),
        None => (None, item),
    };
    let (count, rest) = rest.split_once(['×', 'x', '*']).ok_or_else(shape)?;
    let (product, nodes) = match rest.trim().split_once(char::is_whitespace) {
        Some((product, nodes)) => (product, nodes.trim().trim_start_matches(['×', 'x', '*'])),
        None => (rest.trim(), "1"),
    };
    let known = product::find(product).ok_or_else(|| FleetError::UnknownProduct(product.to_owned()))?;
    if name.is_some_and(|name| !is_name(name)) {
        return Err(FleetError::Name(item.to_owned()));
    }
    Ok(Group {
        name: name.map_or_else(|| known.short.clone(), str::to_owned),
        accelerators: number("accelerators", count, MOST_ACCELERATORS)?,
        product: product.to_owned(),
        nodes: number("nodes", nodes, MOST_NODES)?,
    })
}

/// Node objects `{name}-0`, `{name}-1`, … of all groups; the numbers go on where two groups share a name.
pub(crate) fn nodes(entries: &[Entry], gpus: &Gpus) -> Vec<Value> {
    let mut made = Vec::new();
    if entries.contains(&Entry::ThisMachine) {
        made.push(this_machine::node(gpus));
    }
    let mut next = std::collections::BTreeMap::<&str, u32>::new();
    for entry in entries {
        let Entry::Simulated(group) = entry else { continue };
        let Some(product) = product::find(&group.product) else { continue };
        let number = next.entry(&group.name).or_default();
        for _ in 0..group.nodes {
            made.push(node(&format!("{}-{number}", group.name), group.accelerators, &product));
            *number += 1;
        }
    }
    made
}

fn node(name: &str, accelerators: u32, product: &Product) -> Value {
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
    if product.resource == product::GPU {
        labels["nvidia.com/gpu.count"] = json!(accelerators.to_string());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {SIMULATED: "true", CARRIES: format!("{accelerators}×{}", product.short)},
        },
        "spec": {},
        "status": {"capacity": resources, "allocatable": resources},
    })
}

/// The product as people write it, for the value of `nvidia.com/gpu.product`; the label itself where it is not known.
pub(crate) fn spoken(label: &str) -> &str {
    product::spoken(label)
}

fn is_name(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.len() <= 50 && name.chars().all(inside) && !name.starts_with('-')
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
    #[case::of_the_catalogue("8×MI300X ×3", "mi300x", 8, 3)]
    #[case::a_class("4×nvidia-b200", "b200", 4, 1)]
    #[case::a_slice("7×nvidia-h100-80gb-mig-1g.10gb", "h100-80gb-mig-1g-10gb", 7, 1)]
    fn groups(#[case] text: &str, #[case] name: &str, #[case] accelerators: u32, #[case] count: u32) {
        let Entry::Simulated(group) = parse(text).unwrap().remove(0) else { panic!() };
        assert_eq!((group.name.as_str(), group.accelerators, group.nodes), (name, accelerators, count));
    }

    #[rstest]
    #[case::no_count("H100", "`H100` is not `[NAME=]COUNT×PRODUCT [×NODES]`, for example `8×H100-80G ×2`")]
    #[case::unknown(
        "8×H900",
        "`H900` is not a product known here; one of H200-141G, H100-80G, A100-80G, A100-40G, L40S-48G, L4-24G, A10-24G, T4-16G, or a class of `ostler catalog list classes`"
    )]
    #[case::no_accelerators("0×H100", "`0×H100`: 0 accelerators; one to 1000 are possible")]
    #[case::too_many_nodes("8×H100 ×20000", "`8×H100 ×20000`: 20000 nodes; one to 10000 are possible")]
    #[case::negative("8×H100 ×-3", "`8×H100 ×-3`: -3 nodes; one to 10000 are possible")]
    fn mistakes(#[case] text: &str, #[case] message: &str) {
        assert_eq!(parse(text).unwrap_err().to_string(), message);
    }

    #[test]
    fn this_machine_is_one_node_beside_simulated_ones() {
        let made = nodes(&parse("this, 8×H100, this").unwrap(), &Gpus::default());
        let is_simulated = |node: &Value| node["metadata"]["annotations"]["ostler.dev/simulated"] == "true";
        assert_eq!(made.iter().map(is_simulated).collect::<Vec<_>>(), [false, true]);
        assert_ne!(made[0]["status"]["allocatable"]["memory"], "0Ki");
    }

    #[test]
    fn nodes_are_numbered_per_name() {
        let names: Vec<_> = nodes(&parse("8×H100 ×2, 4×H100").unwrap(), &Gpus::default())
            .iter()
            .map(|node| node["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["h100-0", "h100-1", "h100-2"]);
    }
}
