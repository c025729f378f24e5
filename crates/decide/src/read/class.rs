//! AcceleratorClass → [`Class`].

use api::ome::{AcceleratorClass, AcceleratorResource};

use super::{ReadError, capabilities};
use crate::inventory::{Availability, ClassNode, Discovery};
use crate::supply::{Class, ClassResource, Cost, Tier};

impl Class {
    /// Reads a class; `availability` is what `inventory` says of its nodes, `None` if nothing is known of any node.
    ///
    /// # Errors
    /// A capability or tier that cannot be understood.
    pub fn from_api(class: &AcceleratorClass, availability: Option<Availability>) -> Result<Self, ReadError> {
        let spec = &class.spec;
        let able = capabilities("spec.capabilities", &spec.capabilities)?;
        Ok(Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            vendor: spec.vendor.clone(),
            family: spec.family.clone(),
            discovery: Discovery {
                node_selector: spec.selector(),
                terms: spec.discovery.node_selector_terms.clone(),
                pci_vendor: spec.discovery.pci_vendor_id.clone(),
                device_ids: spec.discovery.device_ids.clone(),
            },
            memory: able.memory,
            compute: able.compute,
            bandwidth: able.bandwidth,
            features: able.features,
            performance: able.performance,
            resources: spec.resources.iter().map(resource).collect(),
            cost: cost(spec.cost.as_ref())?,
            availability,
        })
    }
}

impl Availability {
    /// What a class's status says, where no node can be seen: names, and totals spread over them.
    #[must_use]
    pub fn from_status(status: &api::ome::AcceleratorClassStatus) -> Self {
        let count = |number: Option<i32>| number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        let nodes = u32::try_from(status.nodes.len()).unwrap_or(u32::MAX).max(1);
        let share = |sum: u32, index: u32| sum / nodes + u32::from(index < sum % nodes);
        let (total, free) = (count(status.total_accelerators), count(status.available_accelerators));
        let node = |(index, name): (u32, &String)| ClassNode {
            name: name.clone(),
            labels: None,
            schedulable: true,
            total: share(total, index),
            free: share(free, index),
        };
        Self { nodes: (0..).zip(&status.nodes).map(node).collect() }
    }
}

fn resource(stated: &AcceleratorResource) -> ClassResource {
    let quantity = stated.quantity.as_ref().and_then(|quantity| u32::try_from(quantity.value()).ok());
    ClassResource {
        name: stated.name.clone(),
        quantity: quantity.filter(|units| *units > 0).unwrap_or(1),
        divisible: stated.divisible.unwrap_or(false),
    }
}

fn cost(stated: Option<&api::ome::AcceleratorCost>) -> Result<Cost, ReadError> {
    let Some(stated) = stated else { return Ok(Cost::default()) };
    let dollars = |price: &Option<api::Quantity>| price.as_ref().map(api::Quantity::as_f64);
    let tier = match stated.tier.as_deref() {
        None | Some("") => None,
        Some("low") => Some(Tier::Low),
        Some("medium") => Some(Tier::Medium),
        Some("high") => Some(Tier::High),
        Some(other) => {
            return Err(ReadError::new(
                "spec.cost.tier",
                format!("\"{other}\" is not a tier; one of low, medium, high"),
            ));
        }
    };
    Ok(Cost {
        per_hour: dollars(&stated.per_hour),
        spot_per_hour: dollars(&stated.spot_per_hour),
        per_million_tokens: dollars(&stated.per_million_tokens),
        tier,
    })
}
