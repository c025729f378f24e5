//! Which classes to make for the accelerators that nodes say they have.
//!
//! A class for every product that no class matches. What exists is changed only if it was made here and nobody edited
//! it, and nothing is ever removed: nodes come back.

use std::collections::{BTreeMap, BTreeSet};

use api::AcceleratorMemory;
use serde_json::{Map, Value, json};

use super::products::{self, Product, detect_products};
use super::{Inventory, NodeInfo, Provenance, is_unmodified, matches_discovery, provenance, set_provenance};
use crate::supply::Class;

/// Label of a class that was made from the labels of nodes.
pub const AUTO_DISCOVERED_LABEL: &str = "ome.io/auto-discovered";

/// The classes to apply. `existing` are all AcceleratorClass objects, which the index knows too; `known` are the
/// shipped ones, whose facts count before labels.
#[must_use]
pub fn discover_classes<'a>(
    index: &Inventory,
    existing: impl Iterator<Item = &'a Value>,
    known: &[(Class, Value)],
) -> Vec<Value> {
    let taken: BTreeMap<&str, bool> = existing.map(|class| (name(class), made_here(class))).collect();
    let mut found: BTreeMap<String, DiscoveredProduct> = BTreeMap::new();
    for node in index.nodes() {
        for product in detect_products(node) {
            let free = taken.get(product.name.as_str()).copied().unwrap_or(true);
            let matched = index.classes_of(&node.name).any(|class| matches(class, &product));
            found
                .entry(product.name.clone())
                .or_insert_with(|| DiscoveredProduct::of(&product))
                .add(&product, matched || !free);
        }
    }
    let wanted = found.into_values().filter(|found| !found.matched);
    wanted.map(|found| class(&found, known)).collect()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Ours to change.
fn made_here(class: &Value) -> bool {
    provenance(class) == Some(Provenance::ReplicaNodes) && is_unmodified(class)
}

/// Another class has these accelerators: one on the node that requests the same resource.
fn matches(class: &Class, product: &Product) -> bool {
    let requests = |resource: &str| {
        class.resource_name() == Some(resource) || class.resources.iter().any(|one| one.name == resource)
    };
    class.name != product.name && requests(&product.resource)
}

/// One product over all of its nodes.
struct DiscoveredProduct {
    product: Product,
    matched: bool,
}

impl DiscoveredProduct {
    fn of(product: &Product) -> Self {
        Self { product: product.clone(), matched: false }
    }

    /// Nodes may differ in what they say: of numbers the least is promised, features are united.
    fn add(&mut self, other: &Product, matched: bool) {
        self.matched |= matched;
        let mine = &mut self.product;
        mine.selectors.extend(other.selectors.iter().cloned());
        mine.features.extend(other.features.iter().cloned());
        mine.memory = least(mine.memory, other.memory);
        mine.compute_capability =
            mine.compute_capability.take().into_iter().chain(other.compute_capability.clone()).min();
        if mine.family.is_none() {
            mine.family.clone_from(&other.family);
        }
    }
}

fn least(one: Option<AcceleratorMemory>, other: Option<AcceleratorMemory>) -> Option<AcceleratorMemory> {
    one.into_iter().chain(other).min()
}

fn class(found: &DiscoveredProduct, known: &[(Class, Value)]) -> Value {
    let product = &found.product;
    let facts = known_as(product, known).map(|known| &known["spec"]);
    let mut spec = Map::new();
    spec.insert("vendor".to_owned(), json!(product.vendor));
    for field in ["family", "model"] {
        let stated = facts.map(|facts| facts[field].clone()).filter(|value| !value.is_null());
        let labelled = product.family.as_ref().filter(|_| field == "family").map(|family| json!(family));
        spec.extend(stated.or(labelled).map(|value| (field.to_owned(), value)));
    }
    spec.insert("discovery".to_owned(), discovery(product, facts));
    spec.insert("capabilities".to_owned(), capabilities(product, facts));
    spec.insert("resources".to_owned(), json!([{"name": product.resource, "quantity": "1", "divisible": false}]));
    let mut class = json!({
        "apiVersion": api::ome::API_VERSION, "kind": "AcceleratorClass",
        "metadata": {"name": product.name, "labels": {AUTO_DISCOVERED_LABEL: "true"}}, "spec": spec,
    });
    set_provenance(&mut class, &Provenance::ReplicaNodes);
    class
}

/// A product is on no node in particular.
const NO_NODE: &str = "";

/// The shipped class of these accelerators; of several the one that names the product before one that describes it.
pub(super) fn known_as<'k>(product: &Product, known: &'k [(Class, Value)]) -> Option<&'k Value> {
    let device =
        |resource: &str| if product.part { resource != product.resource } else { resource == product.resource };
    let fits = |(class, _): &&(Class, Value)| {
        matches_discovery(&class.discovery, NO_NODE, &product.whole)
            && class.resource_name().is_some_and(|resource| device(resource) || resource == product.resource)
    };
    let described = |(class, _): &&(Class, Value)| !products::pins(class, &product.whole);
    known.iter().filter(fits).min_by_key(described).map(|(_, value)| value)
}

fn discovery(product: &Product, facts: Option<&Value>) -> Value {
    let terms = products::terms(&product.selectors);
    let single = product.selectors.first().filter(|_| product.selectors.len() == 1);
    let mut discovery = match single {
        Some(selector) => json!({"nodeSelector": selector}),
        None => json!({"nodeSelectorTerms": terms}),
    };
    // A part's nodes have the PCI device of the whole, which would match all of its nodes.
    for field in ["pciVendorID", "deviceIDs"] {
        let stated = facts.filter(|_| !product.part).map(|facts| &facts["discovery"][field]);
        if let Some(stated) = stated.filter(|stated| !stated.is_null()) {
            discovery[field] = stated.clone();
        }
    }
    discovery
}

/// Facts of the shipped table first; labels fill the rest. A part has the architecture of its device, not its numbers.
pub(super) fn capabilities(product: &Product, facts: Option<&Value>) -> Value {
    let mut capabilities = facts.map(|facts| facts["capabilities"].clone()).unwrap_or_default();
    if !capabilities.is_object() {
        capabilities = json!({});
    }
    if product.part {
        for field in ["memoryGB", "memoryBandwidthGBps", "performance", "clockSpeedMHz"] {
            if let Some(object) = capabilities.as_object_mut() {
                object.remove(field);
            }
        }
    }
    let fill = |value: &Value, labelled: Option<Value>| if value.is_null() { labelled } else { None };
    if let Some(memory) = fill(&capabilities["memoryGB"], product.memory.map(|memory| json!(memory))) {
        capabilities["memoryGB"] = memory;
    }
    let compute = product.compute_capability.as_ref().map(|compute| json!(compute.to_string()));
    if let Some(compute) = fill(&capabilities["computeCapability"], compute) {
        capabilities["computeCapability"] = compute;
    }
    let features = features(product, &capabilities);
    if let Some(object) = capabilities.as_object_mut() {
        object.retain(|_, value| !value.is_null());
        object.remove("features");
        if !features.is_empty() {
            object.insert("features".to_owned(), json!(features));
        }
    }
    capabilities
}

/// `mig` only if a label says so: whether a GPU is sliced is a setting of the node.
fn features(product: &Product, capabilities: &Value) -> BTreeSet<String> {
    let stated = capabilities["features"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let of_whole = |feature: &str| feature.starts_with("mig") || feature.starts_with("nvlink");
    let kept = stated.filter(|feature| *feature != "mig" && !(product.part && of_whole(feature)));
    kept.map(str::to_owned).chain(product.features.iter().cloned()).collect()
}

/// A node with these labels alone, so that labels that a person wrote into a selector are read as a node's.
pub(super) fn imagined(labels: &BTreeMap<String, String>) -> NodeInfo {
    let every = crate::supply::ACCELERATOR_RESOURCES.iter().map(|resource| ((*resource).to_owned(), 1));
    NodeInfo { labels: std::sync::Arc::new(labels.clone()), allocatable: every.collect(), ..NodeInfo::default() }
}

#[cfg(test)]
#[path = "discover_tests.rs"]
mod tests;
