//! Facts about accelerators on nodes: which nodes belong to a class, and what of it is free.
//!
//! In: Node and Pod objects as JSON. Out: numbers. No client, no clock.

use std::collections::BTreeMap;

use apimachinery::quantity::Quantity;
use serde_json::Value;

use crate::supply::Class;

/// How nodes of a class are recognised; the ways are alternatives. An empty discovery matches no node.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    pub node_selector: BTreeMap<String, String>,
    /// `NodeSelectorTerm`s as JSON; besides the operators of Kubernetes `Gte` and `Lte`, and quantities as values.
    pub terms: Vec<Value>,
    pub pci_vendor: Option<String>,
    pub device_ids: Vec<String>,
}

/// One node as accelerator accounting sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Ready and not cordoned.
    pub schedulable: bool,
    /// Whole units per resource name.
    pub allocatable: BTreeMap<String, u32>,
    /// Requests of the Pods on it that have not ended.
    pub requested: BTreeMap<String, u32>,
}

impl NodeFacts {
    fn free(&self, resource: &str) -> u32 {
        let total = self.allocatable.get(resource).copied().unwrap_or(0);
        if !self.schedulable {
            return 0;
        }
        total.saturating_sub(self.requested.get(resource).copied().unwrap_or(0))
    }
}

/// A node of a class, counted in accelerators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassNode {
    pub name: String,
    /// `None` where only names are known (read back from a class's status): any selector may match.
    pub labels: Option<BTreeMap<String, String>>,
    pub schedulable: bool,
    pub total: u32,
    pub free: u32,
}

/// What is known of a class's nodes, in order of their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Availability {
    pub nodes: Vec<ClassNode>,
}

impl Availability {
    #[must_use]
    pub fn total(&self) -> u32 {
        self.nodes.iter().map(|node| node.total).sum()
    }

    #[must_use]
    pub fn free(&self) -> u32 {
        self.nodes.iter().map(|node| node.free).sum()
    }

    #[must_use]
    pub fn available_nodes(&self) -> usize {
        self.nodes.iter().filter(|node| node.schedulable).count()
    }

    /// Accelerators of the largest node.
    #[must_use]
    pub fn largest_node(&self) -> Option<u32> {
        self.nodes.iter().map(|node| node.total).max()
    }

    /// Nodes that the selector leaves.
    #[must_use]
    pub fn narrowed(&self, selector: &BTreeMap<String, String>) -> Self {
        let fits = |node: &&ClassNode| node.labels.as_ref().is_none_or(|labels| has_all(labels, selector));
        Self { nodes: self.nodes.iter().filter(fits).cloned().collect() }
    }

    /// How many groups of `per_node` free accelerators on one node there are.
    #[must_use]
    pub fn slots(&self, per_node: u32) -> u32 {
        self.nodes.iter().map(|node| node.free / per_node.max(1)).sum()
    }
}

/// Reads nodes and what runs on them. Pods that should not count (the service's own) are left out by the caller.
#[must_use]
pub fn observe(nodes: &[Value], pods: &[Value]) -> Vec<NodeFacts> {
    let mut facts: BTreeMap<String, NodeFacts> = BTreeMap::new();
    for node in nodes {
        let fact = node_facts(node);
        facts.insert(fact.name.clone(), fact);
    }
    for pod in pods.iter().filter(|pod| !ended(pod)) {
        let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str) else { continue };
        let Some(fact) = facts.get_mut(node) else { continue };
        for (name, units) in pod_requests(pod) {
            let requested = fact.requested.entry(name).or_default();
            *requested = requested.saturating_add(units);
        }
    }
    facts.into_values().collect()
}

/// The nodes of `class` among `nodes`, counted in accelerators.
#[must_use]
pub fn availability(class: &Class, nodes: &[NodeFacts]) -> Availability {
    let resource = class.resource_name();
    let unit = class.resource().map_or(1, |resource| resource.quantity.max(1));
    let count = |node: &NodeFacts| ClassNode {
        name: node.name.clone(),
        labels: Some(node.labels.clone()),
        schedulable: node.schedulable,
        total: node.allocatable.get(resource).copied().unwrap_or(0) / unit,
        free: node.free(resource) / unit,
    };
    let members = nodes.iter().filter(|node| belongs(&class.discovery, &node.labels));
    Availability { nodes: members.map(count).collect() }
}

/// Does a node with these labels carry the class's accelerators?
#[must_use]
pub fn belongs(discovery: &Discovery, labels: &BTreeMap<String, String>) -> bool {
    let selected = !discovery.node_selector.is_empty() && has_all(labels, &discovery.node_selector);
    selected || discovery.terms.iter().any(|term| term_matches(term, labels)) || pci_matches(discovery, labels)
}

/// Every key with its value; product names count with or without their `NVIDIA-`.
#[must_use]
pub fn has_all(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key).is_some_and(|label| same_value(key, label, value)))
}

/// Whether a label's value means `wanted`.
pub(crate) fn same_value(key: &str, label: &str, wanted: &str) -> bool {
    let bare = |text: &str| text.trim_start_matches("NVIDIA-").to_owned();
    label == wanted || (key == "nvidia.com/gpu.product" && bare(label) == bare(wanted))
}

/// All expressions of the term hold; a term without expressions matches nothing, as in Kubernetes.
#[must_use]
pub fn term_matches(term: &Value, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.get("matchExpressions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    !expressions.is_empty() && expressions.iter().all(|expression| expression_matches(expression, labels))
}

fn expression_matches(expression: &Value, labels: &BTreeMap<String, String>) -> bool {
    let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
    let values: Vec<String> = expression
        .get("values")
        .and_then(Value::as_array)
        .map(|values| values.iter().map(text_of).collect())
        .unwrap_or_default();
    let label = labels.get(key);
    let is_in = || label.is_some_and(|label| values.iter().any(|value| same_value(key, label, value)));
    let order = || compare(key, label?, values.first()?);
    match expression.get("operator").and_then(Value::as_str).unwrap_or_default() {
        "In" => is_in(),
        "NotIn" => !is_in(),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => order().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => order().is_some_and(std::cmp::Ordering::is_lt),
        "Gte" => order().is_some_and(std::cmp::Ordering::is_ge),
        "Lte" => order().is_some_and(std::cmp::Ordering::is_le),
        _ => false,
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Compares a node label with a quantity in the label's own unit. Plain integers compare exactly; sizes with a
/// suffix within 2 %, because an 80 GiB device reports 81,559 MiB.
fn compare(key: &str, label: &str, wanted: &str) -> Option<std::cmp::Ordering> {
    if let (Ok(label), Ok(wanted)) = (label.parse::<i64>(), wanted.parse::<i64>()) {
        return Some(label.cmp(&wanted));
    }
    let label = label.parse::<Quantity>().ok()?.as_f64() * label_unit(key);
    let wanted = wanted.parse::<Quantity>().ok()?.as_f64();
    if (label - wanted).abs() <= wanted.abs() * TOLERANCE {
        return Some(std::cmp::Ordering::Equal);
    }
    label.partial_cmp(&wanted)
}

/// Share by which memory may fall short of its nominal size.
pub const TOLERANCE: f64 = 0.02;

/// Bytes that one unit of the label stands for.
#[must_use]
pub fn label_unit(key: &str) -> f64 {
    // GPU feature discovery publishes memory in MiB.
    if key == "nvidia.com/gpu.memory" { f64::from(1 << 20) } else { 1.0 }
}

/// node-feature-discovery labels: `feature.node.kubernetes.io/pci-0302_10de_2330.present`.
fn pci_matches(discovery: &Discovery, labels: &BTreeMap<String, String>) -> bool {
    let Some(vendor) = discovery.pci_vendor.as_deref().map(str::to_ascii_lowercase) else { return false };
    let pci = labels.iter().filter(|(_, value)| *value == "true");
    let mut ids =
        pci.filter_map(|(key, _)| key.strip_prefix("feature.node.kubernetes.io/pci-")?.strip_suffix(".present"));
    ids.any(|id| {
        let parts: Vec<String> = id.split('_').map(str::to_ascii_lowercase).collect();
        let known = |device: &String| parts.contains(&device.to_ascii_lowercase());
        parts.contains(&vendor) && discovery.device_ids.iter().any(known)
    })
}

fn node_facts(node: &Value) -> NodeFacts {
    let conditions =
        node.pointer("/status/conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let not_ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] != "True");
    let cordoned = node.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false);
    // A snapshot written by hand often has capacity only.
    let allocatable = node.pointer("/status/allocatable").or_else(|| node.pointer("/status/capacity"));
    NodeFacts {
        name: node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
        labels: labels_of(node),
        schedulable: !not_ready && !cordoned,
        allocatable: allocatable.map(whole_units).unwrap_or_default(),
        requested: BTreeMap::new(),
    }
}

fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels.map(|labels| labels.iter().map(|(key, value)| (key.clone(), text_of(value))).collect()).unwrap_or_default()
}

fn ended(pod: &Value) -> bool {
    matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"))
}

/// What a Pod holds: the sum over its containers, or the largest init container if that is more.
fn pod_requests(pod: &Value) -> BTreeMap<String, u32> {
    let mut held = BTreeMap::new();
    for (name, units) in containers(pod, "containers").flat_map(container_requests) {
        let sum: &mut u32 = held.entry(name).or_default();
        *sum = sum.saturating_add(units);
    }
    for (name, units) in containers(pod, "initContainers").flat_map(container_requests) {
        let most: &mut u32 = held.entry(name).or_default();
        *most = units.max(*most);
    }
    held
}

fn containers<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    pod.get("spec").and_then(|spec| spec.get(field)).and_then(Value::as_array).into_iter().flatten()
}

fn container_requests(container: &Value) -> BTreeMap<String, u32> {
    container.get("resources").map(extended_resources).unwrap_or_default()
}

/// Whole units per extended resource name of a `resources` object: the greater of request and limit.
#[must_use]
pub fn extended_resources(resources: &Value) -> BTreeMap<String, u32> {
    let mut units: BTreeMap<String, u32> = BTreeMap::new();
    for side in ["limits", "requests"] {
        for (name, count) in resources.get(side).map(whole_units).unwrap_or_default() {
            let most = units.entry(name).or_default();
            *most = count.max(*most);
        }
    }
    units
}

/// Extended resources are named `domain/name` and counted in whole units.
fn whole_units(quantities: &Value) -> BTreeMap<String, u32> {
    let pairs = quantities.as_object().into_iter().flatten().filter(|(name, _)| name.contains('/'));
    pairs.filter_map(|(name, value)| Some((name.clone(), units(value)?))).collect()
}

fn units(value: &Value) -> Option<u32> {
    let quantity = text_of(value).parse::<Quantity>().ok()?;
    u32::try_from(quantity.value()).ok()
}
