//! Kueue's ResourceFlavor ⇄ AcceleratorClass, as pure conversions; both API versions have the same fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::discover::{capabilities, imagined, known_as};
use super::products::{Product, is_accelerator_label, products};
use super::{Index, Maker, has_all, mark};
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
pub enum Linked<'a> {
    /// `integration.kueueResourceFlavor`: the flavor has to exist.
    Wanted(&'a str),
    /// Made from a flavor.
    From(&'a str),
}

/// Why a class has no flavor that selects its nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExpressible {
    #[error(
        "a ResourceFlavor selects nodes by labels alone, and the class by terms or PCI ids; add discovery.nodeSelector"
    )]
    NoSelector,
    #[error("a ResourceFlavor takes at most {MOST_LABELS} node labels, and discovery.nodeSelector has {0}")]
    TooManyLabels(usize),
}

/// The flavor that a class is linked to, if any.
#[must_use]
pub fn flavor_reference(class: &Value) -> Option<Linked<'_>> {
    let wanted = class.pointer("/spec/integration/kueueResourceFlavor").and_then(Value::as_str);
    let from = || class["metadata"]["annotations"][FLAVOR].as_str().map(Linked::From);
    wanted.filter(|name| !name.is_empty()).map(Linked::Wanted).or_else(from)
}

/// Whether a flavor is for accelerators: by its node labels, or because an annotation says so. Its name plays no part.
#[must_use]
pub fn selects_accelerators(flavor: &Value) -> bool {
    let labels = node_labels(flavor);
    !labels.is_empty()
        && (labels.iter().any(|(key, value)| is_accelerator_label(key, value))
            || flavor["metadata"]["annotations"][CLASS].is_string())
}

/// The class that stands for a person's flavor: its node labels, and the facts of the accelerators that they select,
/// from the shipped table, the labels themselves, and the nodes that have them.
#[must_use]
pub fn class_of_flavor(flavor: &Value, index: &Index, known: &[(Class, Value)]) -> Value {
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
    mark(&mut class, &Maker::ResourceFlavor(name.to_owned()));
    class
}

/// The flavor that a class asks for by name.
///
/// # Errors
/// The class selects its nodes in a way that no flavor can.
pub fn flavor_of_class(class: &Value, flavor: &str, api_version: &str) -> Result<Value, NotExpressible> {
    let mut labels = text_map(&class["spec"]["nodeSelector"]);
    labels.extend(text_map(&class["spec"]["discovery"]["nodeSelector"]));
    match labels.len() {
        0 => return Err(NotExpressible::NoSelector),
        count if count > MOST_LABELS => return Err(NotExpressible::TooManyLabels(count)),
        _ => {}
    }
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    let mut made = json!({
        "apiVersion": api_version, "kind": "ResourceFlavor",
        "metadata": {"name": flavor, "annotations": {CLASS: name}}, "spec": {"nodeLabels": labels},
    });
    mark(&mut made, &Maker::AcceleratorClass(name.to_owned()));
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
fn product_of(labels: &BTreeMap<String, String>, index: &Index) -> Option<Product> {
    let of_nodes = || {
        let nodes = index.nodes().filter(|node| has_all(&node.labels, labels));
        let found: Vec<Product> = nodes.flat_map(products).collect();
        let names: BTreeSet<&str> = found.iter().map(|product| product.name.as_str()).collect();
        // Different products have no facts in common.
        (names.len() == 1).then(|| found.into_iter().next()).flatten()
    };
    let of_labels = || products(&imagined(labels)).into_iter().next();
    of_nodes().or_else(of_labels)
}

#[cfg(test)]
#[path = "flavor_tests.rs"]
mod tests;
