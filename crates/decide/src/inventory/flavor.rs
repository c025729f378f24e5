//! Converts between Kueue ResourceFlavors and AcceleratorClasses. Both versions of the Kueue API have the same fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::discover::{capabilities, find_in_catalog, hypothetical_node};
use super::products::{Product, detect_products, is_accelerator_label};
use super::{Inventory, Provenance, set_provenance};
use crate::nodes::labels_match_selector;
use crate::supply::Class;

/// Annotation of a class with its flavor (seed 000, Story 3).
const FLAVOR_ANNOTATION: &str = "ome.io/kueue-resource-flavor";
/// Annotation of a flavor with its class. A user sets it on a flavor for accelerators that its labels do not identify.
const CLASS_ANNOTATION: &str = "ome.io/accelerator-class";
/// Maximum number of node labels of a flavor in Kueue.
const MAX_NODE_LABELS: usize = 8;

/// The relation of a class to a flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlavorLink<'a> {
    /// `integration.kueueResourceFlavor`: the flavor must exist.
    Required(&'a str),
    /// The class is generated from the flavor.
    CreatedFrom(&'a str),
}

/// Why no flavor can select the nodes of a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlavorError {
    #[error(
        "a ResourceFlavor selects nodes by labels only, and the class by terms or PCI IDs; set discovery.nodeSelector"
    )]
    /// The class has no node selector.
    NoSelector,
    #[error("a ResourceFlavor has at most {MAX_NODE_LABELS} node labels, and discovery.nodeSelector has {0}")]
    /// The node selector has too many labels.
    TooManyLabels(usize),
}

/// Returns the flavor that a class is linked to.
#[must_use]
pub fn flavor_link(class: &Value) -> Option<FlavorLink<'_>> {
    let required = class.pointer("/spec/integration/kueueResourceFlavor").and_then(Value::as_str);
    let created_from = || class["metadata"]["annotations"][FLAVOR_ANNOTATION].as_str().map(FlavorLink::CreatedFrom);
    required.filter(|name| !name.is_empty()).map(FlavorLink::Required).or_else(created_from)
}

/// Whether the node labels or an annotation of a flavor mark it as an accelerator flavor. The name of the flavor is not
/// considered.
#[must_use]
pub fn is_accelerator_flavor(flavor: &Value) -> bool {
    let labels = node_labels(flavor);
    !labels.is_empty()
        && (labels.iter().any(|(key, value)| is_accelerator_label(key, value))
            || flavor["metadata"]["annotations"][CLASS_ANNOTATION].is_string())
}

/// Generates the class of a user's flavor: its node labels, and the properties of the accelerators on these nodes from the
/// catalog, the labels and the nodes.
#[must_use]
pub fn class_from_flavor(flavor: &Value, inventory: &Inventory, catalog: &[(Class, Value)]) -> Value {
    let labels = node_labels(flavor);
    let name = flavor["metadata"]["name"].as_str().unwrap_or_default();
    let product = find_product(&labels, inventory);
    let known = product.as_ref().and_then(|product| find_in_catalog(product, catalog)).map(|class| &class["spec"]);
    let mut spec = json!({"discovery": {"nodeSelector": labels}, "capabilities": {}});
    if let Some(product) = &product {
        spec["vendor"] = json!(product.vendor);
        spec["capabilities"] = capabilities(product, known);
        spec["resources"] = json!([{"name": product.resource, "quantity": "1", "divisible": product.is_slice}]);
        let family = product.family.as_ref().map(|family| json!(family)).unwrap_or_default();
        for (field, from_labels) in [("family", family), ("model", Value::Null)] {
            let declared = known.map(|known| known[field].clone()).filter(|value| !value.is_null());
            let value = declared.unwrap_or(from_labels);
            if !value.is_null() {
                spec[field] = value;
            }
        }
    }
    let mut class = json!({
        "apiVersion": api::ome::API_VERSION, "kind": "AcceleratorClass",
        "metadata": {"name": name, "annotations": {FLAVOR_ANNOTATION: name}}, "spec": spec,
    });
    set_provenance(&mut class, &Provenance::ResourceFlavor(name.to_owned()));
    class
}

/// Generates the flavor that a class requires.
///
/// # Errors
/// No flavor can select the nodes of the class.
pub fn flavor_from_class(class: &Value, flavor: &str, api_version: &str) -> Result<Value, FlavorError> {
    let mut labels = string_map(&class["spec"]["nodeSelector"]);
    labels.extend(string_map(&class["spec"]["discovery"]["nodeSelector"]));
    match labels.len() {
        0 => return Err(FlavorError::NoSelector),
        count if count > MAX_NODE_LABELS => return Err(FlavorError::TooManyLabels(count)),
        _ => {}
    }
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    let mut generated = json!({
        "apiVersion": api_version, "kind": "ResourceFlavor",
        "metadata": {"name": flavor, "annotations": {CLASS_ANNOTATION: name}}, "spec": {"nodeLabels": labels},
    });
    set_provenance(&mut generated, &Provenance::AcceleratorClass(name.to_owned()));
    Ok(generated)
}

fn node_labels(flavor: &Value) -> BTreeMap<String, String> {
    string_map(&flavor["spec"]["nodeLabels"])
}

fn string_map(value: &Value) -> BTreeMap<String, String> {
    let pairs = value.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Returns the product of nodes with these labels, detected from existing nodes or, without any, from the labels.
fn find_product(labels: &BTreeMap<String, String>, inventory: &Inventory) -> Option<Product> {
    let from_nodes = || {
        let nodes = inventory.nodes().filter(|node| labels_match_selector(&node.labels, labels));
        let products: Vec<Product> = nodes.flat_map(detect_products).collect();
        let names: BTreeSet<&str> = products.iter().map(|product| product.name.as_str()).collect();
        // Nodes with different products share no properties.
        (names.len() == 1).then(|| products.into_iter().next()).flatten()
    };
    let from_labels = || detect_products(&hypothetical_node(labels)).into_iter().next();
    from_nodes().or_else(from_labels)
}

#[cfg(test)]
#[path = "flavor_tests.rs"]
mod tests;
