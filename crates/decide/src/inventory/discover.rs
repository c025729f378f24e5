//! Discovery of accelerator classes from the labels of nodes.
//!
//! Generates a class for every product that no class matches. An existing class is only updated if it was generated here and
//! is unmodified. Classes are never deleted, because their nodes may return.

use std::collections::{BTreeMap, BTreeSet};

use api::AcceleratorMemory;
use serde_json::{Map, Value, json};

use super::products::{self, Product, detect_products};
use super::{Inventory, NodeInfo, Provenance, is_unmodified, provenance, set_provenance};
use crate::nodes::matches_discovery;
use crate::supply::Class;

/// Label of a class that was generated from node labels.
pub(crate) const AUTO_DISCOVERED_LABEL: &str = "ome.io/auto-discovered";

/// Returns the classes to apply. `existing` are all AcceleratorClass objects, which `inventory` also contains. `catalog` are
/// the classes of the catalog, whose values take precedence over labels.
#[must_use]
pub fn discover_classes<'a>(
    inventory: &Inventory,
    existing: impl Iterator<Item = &'a Value>,
    catalog: &[(Class, Value)],
) -> Vec<Value> {
    let is_updatable: BTreeMap<&str, bool> =
        existing.map(|class| (object_name(class), is_discovered_and_unmodified(class))).collect();
    let mut discovered: BTreeMap<String, DiscoveredProduct> = BTreeMap::new();
    for node in inventory.nodes() {
        for product in detect_products(node) {
            let is_name_available = is_updatable.get(product.name.as_str()).copied().unwrap_or(true);
            let has_class = inventory.classes_for_node(&node.name).any(|class| covers(class, &product));
            discovered
                .entry(product.name.clone())
                .or_insert_with(|| DiscoveredProduct::new(&product))
                .add_node(&product, has_class || !is_name_available);
        }
    }
    let uncovered = discovered.into_values().filter(|discovered| !discovered.is_covered);
    uncovered.map(|discovered| generate_class(&discovered.product, catalog)).collect()
}

fn object_name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_discovered_and_unmodified(class: &Value) -> bool {
    provenance(class) == Some(Provenance::Nodes) && is_unmodified(class)
}

/// Whether another class on the node requests the resource of the product.
fn covers(class: &Class, product: &Product) -> bool {
    let requests = |resource: &str| {
        class.resource_name() == Some(resource) || class.resources.iter().any(|declared| declared.name == resource)
    };
    class.name != product.name && requests(&product.resource)
}

/// A product, merged from all nodes that have it.
struct DiscoveredProduct {
    product: Product,
    /// Whether a class covers the product on at least one node.
    is_covered: bool,
}

impl DiscoveredProduct {
    fn new(product: &Product) -> Self {
        Self { product: product.clone(), is_covered: false }
    }

    /// Adds a node. Where nodes differ, the least value and the union of the features apply.
    fn add_node(&mut self, product: &Product, is_covered: bool) {
        self.is_covered |= is_covered;
        let merged = &mut self.product;
        merged.selectors.extend(product.selectors.iter().cloned());
        merged.features.extend(product.features.iter().cloned());
        merged.memory = least_memory(merged.memory, product.memory);
        merged.compute_capability =
            merged.compute_capability.take().into_iter().chain(product.compute_capability.clone()).min();
        if merged.family.is_none() {
            merged.family.clone_from(&product.family);
        }
    }
}

fn least_memory(a: Option<AcceleratorMemory>, b: Option<AcceleratorMemory>) -> Option<AcceleratorMemory> {
    a.into_iter().chain(b).min()
}

fn generate_class(product: &Product, catalog: &[(Class, Value)]) -> Value {
    let known = find_in_catalog(product, catalog).map(|class| &class["spec"]);
    let mut spec = Map::new();
    spec.insert("vendor".to_owned(), json!(product.vendor));
    for field in ["family", "model"] {
        let declared = known.map(|known| known[field].clone()).filter(|value| !value.is_null());
        let from_labels = product.family.as_ref().filter(|_| field == "family").map(|family| json!(family));
        spec.extend(declared.or(from_labels).map(|value| (field.to_owned(), value)));
    }
    spec.insert("discovery".to_owned(), discovery(product, known));
    spec.insert("capabilities".to_owned(), capabilities(product, known));
    spec.insert("resources".to_owned(), json!([{"name": product.resource, "quantity": "1", "divisible": false}]));
    let mut class = json!({
        "apiVersion": api::ome::API_VERSION, "kind": "AcceleratorClass",
        "metadata": {"name": product.name, "labels": {AUTO_DISCOVERED_LABEL: "true"}}, "spec": spec,
    });
    set_provenance(&mut class, &Provenance::Nodes);
    class
}

/// Node name for matching a product, which is not specific to a node.
const NO_NODE_NAME: &str = "";

/// Returns the class of the catalog for a product. A class that names the product takes precedence over one that matches its
/// properties.
pub(super) fn find_in_catalog<'c>(product: &Product, catalog: &'c [(Class, Value)]) -> Option<&'c Value> {
    let is_device = |resource: &str| {
        if product.is_partition { resource != product.resource } else { resource == product.resource }
    };
    let matches = |(class, _): &&(Class, Value)| {
        matches_discovery(&class.discovery, NO_NODE_NAME, &product.device_labels)
            && class.resource_name().is_some_and(|resource| is_device(resource) || resource == product.resource)
    };
    let matches_properties = |(class, _): &&(Class, Value)| !products::names_product(class, &product.device_labels);
    catalog.iter().filter(matches).min_by_key(matches_properties).map(|(_, value)| value)
}

fn discovery(product: &Product, known: Option<&Value>) -> Value {
    let terms = products::node_selector_terms(&product.selectors);
    let single_selector = product.selectors.first().filter(|_| product.selectors.len() == 1);
    let mut discovery = match single_selector {
        Some(selector) => json!({"nodeSelector": selector}),
        None => json!({"nodeSelectorTerms": terms}),
    };
    // The nodes of a partition have the PCI device of the whole device, which would match all its nodes.
    for field in ["pciVendorID", "deviceIDs"] {
        let declared = known.filter(|_| !product.is_partition).map(|known| &known["discovery"][field]);
        if let Some(declared) = declared.filter(|declared| !declared.is_null()) {
            discovery[field] = declared.clone();
        }
    }
    discovery
}

/// Returns the capabilities of the catalog, completed from labels. A partition has the architecture of its device, but not
/// its memory and throughput.
pub(super) fn capabilities(product: &Product, known: Option<&Value>) -> Value {
    let mut capabilities = known.map(|known| known["capabilities"].clone()).unwrap_or_default();
    if !capabilities.is_object() {
        capabilities = json!({});
    }
    if product.is_partition {
        for field in ["memoryGB", "memoryBandwidthGBps", "performance", "clockSpeedMHz"] {
            if let Some(object) = capabilities.as_object_mut() {
                object.remove(field);
            }
        }
    }
    let if_unset = |value: &Value, from_labels: Option<Value>| if value.is_null() { from_labels } else { None };
    if let Some(memory) = if_unset(&capabilities["memoryGB"], product.memory.map(|memory| json!(memory))) {
        capabilities["memoryGB"] = memory;
    }
    let compute_capability = product.compute_capability.as_ref().map(|version| json!(version.to_string()));
    if let Some(version) = if_unset(&capabilities["computeCapability"], compute_capability) {
        capabilities["computeCapability"] = version;
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

/// Returns the features of catalog and labels. `mig` only comes from labels, because partitioning is a setting of the node.
fn features(product: &Product, capabilities: &Value) -> BTreeSet<String> {
    let declared = capabilities["features"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let requires_whole_device = |feature: &str| feature.starts_with("mig") || feature.starts_with("nvlink");
    let applicable_features =
        declared.filter(|feature| *feature != "mig" && !(product.is_partition && requires_whole_device(feature)));
    applicable_features.map(str::to_owned).chain(product.features.iter().cloned()).collect()
}

/// Returns a node with these labels and all known resources, to detect products from the labels of a selector.
pub(super) fn hypothetical_node(labels: &BTreeMap<String, String>) -> NodeInfo {
    let resources = crate::supply::ACCELERATOR_RESOURCES.iter().map(|resource| ((*resource).to_owned(), 1));
    NodeInfo { labels: std::sync::Arc::new(labels.clone()), allocatable: resources.collect(), ..NodeInfo::default() }
}

#[cfg(test)]
#[path = "discover_tests.rs"]
mod tests;
