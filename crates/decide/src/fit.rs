//! How many accelerators a component takes, and whether the model's weights fit into them.

use crate::demand::{ComponentDemand, Model};
use crate::inventory::Availability;
use crate::merge::Configuration;
use crate::reason::{ClassRejection, CountLimit};
use crate::supply::{Class, RuntimeComponent};

/// Accelerators of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub per_node: u32,
    pub nodes: u32,
}

impl Shape {
    #[must_use]
    pub fn accelerators(self) -> u32 {
        self.per_node.saturating_mul(self.nodes)
    }
}

const PER_NODE: [u32; 4] = [1, 2, 4, 8];
const NODES: [u32; 4] = [1, 2, 4, 8];

/// The stated shape if runtime or service fix one, else the smallest that holds the model.
///
/// # Errors
/// `ModelDoesNotFit` with the numbers of the largest shape that was tried.
pub fn shape(
    model: Option<&Model>,
    demand: &ComponentDemand,
    runtime: &RuntimeComponent,
    class: &Class,
    accelerator_resources: &std::collections::BTreeSet<String>,
) -> Result<Shape, ClassRejection> {
    let nodes = demand.nodes.or(runtime.nodes);
    let fixed = fixed_per_node(demand, runtime, class, accelerator_resources, nodes.unwrap_or(1));
    let needed = model.and_then(weights);
    let usable = class.memory.map(usable_memory);
    let (Some(needed), Some(usable)) = (needed, usable) else {
        return Ok(Shape { per_node: fixed.unwrap_or(1), nodes: nodes.unwrap_or(1) });
    };
    let (shapes, limit) = shapes(fixed, nodes, runtime.multi_node, class);
    let holds = |shape: &Shape| u64::from(shape.accelerators()).saturating_mul(usable) >= needed;
    let largest = shapes.last().copied().unwrap_or(Shape { per_node: 1, nodes: 1 });
    shapes.iter().copied().find(holds).ok_or(ClassRejection::ModelDoesNotFit {
        needed,
        per_accelerator: usable,
        accelerators: largest.accelerators(),
        limit,
    })
}

/// Shapes to try, smallest first.
fn shapes(fixed: Option<u32>, nodes: Option<u32>, multi_node: bool, class: &Class) -> (Vec<Shape>, CountLimit) {
    if let Some(per_node) = fixed {
        return (vec![Shape { per_node, nodes: nodes.unwrap_or(1) }], CountLimit::Fixed);
    }
    let largest = class.availability.as_ref().and_then(Availability::largest_node).filter(|most| *most > 0);
    let per_node = PER_NODE.iter().copied().filter(|count| largest.is_none_or(|most| *count <= most));
    let per_node: Vec<u32> = per_node.collect();
    let most = per_node.last().copied().unwrap_or(1);
    let limit = if most < 8 { CountLimit::LargestNode } else { CountLimit::Most };
    let single = per_node.iter().map(|count| Shape { per_node: *count, nodes: nodes.unwrap_or(1) });
    let several = NODES.iter().skip(1).map(|nodes| Shape { per_node: most, nodes: *nodes });
    let several = several.filter(|_| multi_node && nodes.is_none());
    (single.chain(several).collect(), limit)
}

/// Accelerators per node as runtime or service state them: a parallelism flag first, then resources (the maximum of both).
fn fixed_per_node(
    demand: &ComponentDemand,
    runtime: &RuntimeComponent,
    class: &Class,
    names: &std::collections::BTreeSet<String>,
    nodes: u32,
) -> Option<u32> {
    let tuned = |configurations: &[Configuration]| {
        let ours = configurations.iter().rev().filter(|configuration| configuration.class == class.name);
        ours.into_iter().find_map(Configuration::parallelism)
    };
    let stated = demand.parallelism.or_else(|| tuned(&demand.configurations));
    let stated = stated.or_else(|| tuned(&runtime.configurations)).or(runtime.parallelism);
    if let Some(parallelism) = stated {
        return Some(parallelism.div_ceil(nodes.max(1)));
    }
    let stated = [&demand.resources, &runtime.resources].into_iter().flatten();
    let counted = stated.filter(|(name, count)| names.contains(*name) && **count > 0);
    // Each vendor's name means one concept; only the class's own name may stand for several units of one accelerator.
    let unit = class.resource().map_or(1, |resource| resource.quantity.max(1));
    let configured = demand
        .configurations
        .iter()
        .chain(&runtime.configurations)
        .filter(|configuration| configuration.class == class.name)
        .filter_map(|configuration| crate::merge::resources::accelerators(&configuration.resources, names));
    counted
        .map(|(name, count)| if *name == class.resource_name() { count.div_ceil(unit) } else { *count })
        .chain(configured.map(|count| count.div_ceil(unit)))
        .max()
}

/// Bytes that the weights take, with a fifth more for cache and activations.
#[must_use]
pub fn weights(model: &Model) -> Option<u64> {
    let halves_per_parameter = match model.quantization.as_deref().map(str::to_ascii_lowercase) {
        None => 4,
        Some(name) if ["int4", "awq", "gptq", "fp4"].iter().any(|kind| name.contains(kind)) => 1,
        Some(name) if ["fp8", "int8"].iter().any(|kind| name.contains(kind)) => 2,
        Some(_) => 4,
    };
    // parameters × bytes × 1.2, in integers: bytes = halves / 2.
    model.parameters.map(|count| count.saturating_mul(halves_per_parameter).saturating_mul(6) / 10)
}

/// Engines are left nine tenths of the memory.
#[must_use]
pub fn usable_memory(memory: u64) -> u64 {
    memory / 10 * 9
}
