//! Kueue's ResourceFlavor ⇄ AcceleratorClass, as pure conversions; both API versions have the same fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::discover::{capabilities, imagined, known_as};
use super::products::{Product, detect_products, is_accelerator_label};
use super::{Inventory, Provenance, set_provenance};
use crate::nodes::labels_match_selector;
use crate::supply::Class;

/// Annotation on a class: the flavor that it stands for (seed 000, Story 3).
const FLAVOR: &str = "ome.io/kueue-resource-flavor";
/// Annotation on a flavor: the class that it stands for. Written by a person, it says that a flavor whose labels do
/// not tell selects accelerators.
const CLASS: &str = "ome.io/accelerator-class";
/// Kueue takes no more.
const MOST_LABELS: usize = 8;

/// What a class says about a flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlavorLink<'a> {
    /// `integration.kueueResourceFlavor`: the flavor has to exist.
    Required(&'a str),
    /// Made from a flavor.
    CreatedFrom(&'a str),
}

/// Why a class has no flavor that selects its nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlavorError {
    #[error(
        "a ResourceFlavor selects nodes by labels alone, and the class by terms or PCI ids; add discovery.nodeSelector"
    )]
    NoSelector,
    #[error("a ResourceFlavor takes at most {MOST_LABELS} node labels, and discovery.nodeSelector has {0}")]
    TooManyLabels(usize),
}

/// The flavor that a class is linked to, if any.
#[must_use]
pub fn flavor_link(class: &Value) -> Option<FlavorLink<'_>> {
    let wanted = class.pointer("/spec/integration/kueueResourceFlavor").and_then(Value::as_str);
    let from = || class["metadata"]["annotations"][FLAVOR].as_str().map(FlavorLink::CreatedFrom);
    wanted.filter(|name| !name.is_empty()).map(FlavorLink::Required).or_else(from)
}

/// Whether a flavor is for accelerators: by its node labels, or because an annotation says so. Its name plays no part.
#[must_use]
pub fn is_accelerator_flavor(flavor: &Value) -> bool {
    let labels = node_labels(flavor);
    !labels.is_empty()
        && (labels.iter().any(|(key, value)| is_accelerator_label(key, value))
            || flavor["metadata"]["annotations"][CLASS].is_string())
}

/// The class that stands for a person's flavor: its node labels, and the facts of the accelerators that they select,
/// from the shipped table, the labels themselves, and the nodes that have them.
#[must_use]
pub fn class_from_flavor(flavor: &Value, index: &Inventory, known: &[(Class, Value)]) -> Value {
    let labels = node_labels(flavor);
    let name = flavor["metadata"]["name"].as_str().unwrap_or_default();
    let product = product_of(&labels, index);
    let facts = product.as_ref().and_then(|product| known_as(product, known)).map(|known| &known["spec"]);
    let mut spec = json!({"discovery": {"nodeSelector": labels}, "capabilities": {}});
    if let Some(product) = &product {
        spec["vendor"] = json!(product.vendor);
        spec["capabilities"] = capabilities(product, facts);
        spec["resources"] = json!([{"name": product.resource, "quantity": "1", "divisible": false}]);
        let family = product.family.as_ref().map(|family| json!(family)).unwrap_or_default();
        for (field, labelled) in [("family", family), ("model", Value::Null)] {
            let value = facts.map(|facts| facts[field].clone()).filter(|value| !value.is_null()).unwrap_or(labelled);
            if !value.is_null() {
                spec[field] = value;
            }
        }
    }
    let mut class = json!({
        "apiVersion": api::ome::API_VERSION, "kind": "AcceleratorClass",
        "metadata": {"name": name, "annotations": {FLAVOR: name}}, "spec": spec,
    });
    set_provenance(&mut class, &Provenance::ResourceFlavor(name.to_owned()));
    class
}

/// The flavor that a class asks for by name.
///
/// # Errors
/// The class selects its nodes in a way that no flavor can.
pub fn flavor_from_class(class: &Value, flavor: &str, api_version: &str) -> Result<Value, FlavorError> {
    let mut labels = text_map(&class["spec"]["nodeSelector"]);
    labels.extend(text_map(&class["spec"]["discovery"]["nodeSelector"]));
    match labels.len() {
        0 => return Err(FlavorError::NoSelector),
        count if count > MOST_LABELS => return Err(FlavorError::TooManyLabels(count)),
        _ => {}
    }
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    let mut made = json!({
        "apiVersion": api_version, "kind": "ResourceFlavor",
        "metadata": {"name": flavor, "annotations": {CLASS: name}}, "spec": {"nodeLabels": labels},
    });
    set_provenance(&mut made, &Provenance::AcceleratorClass(name.to_owned()));
    Ok(made)
}

fn node_labels(flavor: &Value) -> BTreeMap<String, String> {
    text_map(&flavor["spec"]["nodeLabels"])
}

fn text_map(value: &Value) -> BTreeMap<String, String> {
    let pairs = value.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// What nodes with these labels carry: the nodes that exist know best, the labels alone tell the rest.
fn product_of(labels: &BTreeMap<String, String>, index: &Inventory) -> Option<Product> {
    let of_nodes = || {
        let nodes = index.nodes().filter(|node| labels_match_selector(&node.labels, labels));
        let found: Vec<Product> = nodes.flat_map(detect_products).collect();
        let names: BTreeSet<&str> = found.iter().map(|product| product.name.as_str()).collect();
        // Different products have no facts in common.
        (names.len() == 1).then(|| found.into_iter().next()).flatten()
    };
    let of_labels = || detect_products(&imagined(labels)).into_iter().next();
    of_nodes().or_else(of_labels)
}

#[cfg(test)]
#[path = "flavor_tests.rs"]
mod tests;
