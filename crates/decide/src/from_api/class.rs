//! Converts an AcceleratorClass to a [`Class`].

use api::ome::{AcceleratorClass, AcceleratorDiscovery, AcceleratorResource};
use serde_json::Value;

use super::{FieldError, capabilities};
use crate::inventory::{self, Provenance};
use crate::nodes::{Availability, ClassNode, Discovery};
use crate::supply::{Class, ClassResource, Cost, CostTier};

/// Maximum number of nodes that the status of a class adds to those that it names: more than any cluster has.
const MAX_NODES: u32 = 10_000;

impl Class {
    /// Converts a class. `availability` contains its nodes; `None` if no node is known.
    ///
    /// # Errors
    /// An invalid capability or cost tier.
    pub fn from_api(class: &AcceleratorClass, availability: Option<Availability>) -> Result<Self, FieldError> {
        let spec = &class.spec;
        let capabilities = capabilities("spec.capabilities", &spec.capabilities)?;
        Ok(Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            vendor: spec.vendor.clone(),
            family: spec.family.clone(),
            discovery: Discovery {
                node_selector: spec.merged_node_selector(),
                terms: terms(&spec.discovery),
                pci_vendor: spec.discovery.pci_vendor_id.clone(),
                device_ids: spec.discovery.device_ids.clone(),
            },
            memory: capabilities.memory,
            compute_capability: capabilities.compute_capability,
            bandwidth: capabilities.bandwidth,
            features: capabilities.features,
            performance: capabilities.performance,
            resources: spec.resources.iter().map(resource).collect(),
            cost: cost(spec.cost.as_ref())?,
            is_discovered: is_discovered(class),
            is_created_from_flavor: is_created_from_flavor(class),
            availability,
        })
    }
}

/// Returns `nodeSelectorTerms` and the terms of the deployed field `affinity`.
fn terms(discovery: &AcceleratorDiscovery) -> Vec<Value> {
    const REQUIRED: &str = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let affinity_terms = discovery.affinity.as_ref().and_then(|affinity| affinity.pointer(REQUIRED)?.as_array());
    discovery.node_selector_terms.iter().chain(affinity_terms.into_iter().flatten()).cloned().collect()
}

fn is_created_from_flavor(class: &AcceleratorClass) -> bool {
    let annotations = class.metadata.annotations.as_ref();
    let provenance = annotations.and_then(|annotations| annotations.get(inventory::PROVENANCE_ANNOTATION));
    let provenance = provenance.and_then(|provenance| Provenance::parse(provenance));
    matches!(provenance, Some(Provenance::ResourceFlavor(_)))
}

fn is_discovered(class: &AcceleratorClass) -> bool {
    let labels = class.metadata.labels.as_ref();
    let discovered =
        labels.is_some_and(|labels| labels.get(inventory::AUTO_DISCOVERED_LABEL).is_some_and(|is| is == "true"));
    discovered
        && serde_json::to_value(class).is_ok_and(|mut class| {
            class["kind"] = "AcceleratorClass".into();
            inventory::is_unmodified(&class)
        })
}

impl Availability {
    /// Returns the nodes from the status of a class, with the totals divided evenly among them. Anybody may have written the
    /// status, so that no more than [`MAX_NODES`] nodes are taken from their number.
    #[must_use]
    pub fn from_status(status: &api::ome::AcceleratorClassStatus) -> Self {
        let count = |number: Option<i32>| number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        // The list of names is truncated for large classes.
        let available = count(status.available_nodes).min(MAX_NODES);
        let nodes = u32::try_from(status.nodes.len()).unwrap_or(u32::MAX).max(available).max(1);
        let share = |sum: u32, index: u32| sum / nodes + u32::from(index < sum % nodes);
        let (total, free) = (count(status.total_accelerators), count(status.available_accelerators));
        let node = |(index, name): (u32, &String)| ClassNode {
            name: name.clone(),
            labels: None,
            total: share(total, index),
            free: share(free, index),
            ..ClassNode::default()
        };
        let empty_name = String::new();
        let names = status.nodes.iter().chain(std::iter::repeat(&empty_name));
        let count = if status.nodes.is_empty() { 0 } else { nodes };
        Self { nodes: (0..count).zip(names).map(node).collect() }
    }
}

fn resource(spec: &AcceleratorResource) -> ClassResource {
    let quantity = spec.quantity.as_ref().and_then(|quantity| u32::try_from(quantity.value()).ok());
    ClassResource {
        name: spec.name.clone(),
        quantity: quantity.filter(|units| *units > 0).unwrap_or(1),
        divisible: spec.divisible.unwrap_or(false),
    }
}

fn cost(spec: Option<&api::ome::AcceleratorCost>) -> Result<Cost, FieldError> {
    let Some(spec) = spec else { return Ok(Cost::default()) };
    let dollars = |price: &Option<apimachinery::Quantity>| price.as_ref().map(apimachinery::Quantity::as_f64);
    let tier = match spec.tier.as_deref() {
        None | Some("") => None,
        Some("low") => Some(CostTier::Low),
        Some("medium") => Some(CostTier::Medium),
        Some("high") => Some(CostTier::High),
        Some(other) => {
            return Err(FieldError::new(
                "spec.cost.tier",
                format!("unknown tier `{other}`; use one of low, medium, high"),
            ));
        }
    };
    Ok(Cost {
        per_hour: dollars(&spec.per_hour),
        spot_per_hour: dollars(&spec.spot_per_hour),
        per_million_tokens: dollars(&spec.per_million_tokens),
        tier,
    })
}
