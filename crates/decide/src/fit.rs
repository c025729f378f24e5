//! How many accelerators a component takes, and whether the model's weights fit into them.

use crate::case::Case;
use crate::configuration::Configuration;
use crate::demand::Model;
use crate::quantization;
use crate::reason::{ClassRejection, CountLimit};
use crate::room::Room;
pub use crate::shape::Shape;
use crate::supply::Class;

/// A shape, and what the manifests say about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    pub shape: Shape,
    pub stated: Stated,
}

/// What runtime and service state of the number of accelerators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// Tensor × pipeline parallelism of one replica, by a flag or a variable.
    pub parallelism: Option<u32>,
    /// Accelerators per node, by resources: the maximum of all layers.
    pub resources: Option<u32>,
}

impl Stated {
    /// Whether anything fixes the number.
    #[must_use]
    pub fn fixes(&self) -> bool {
        self.parallelism.is_some() || self.resources.is_some()
    }

    /// Parallelism and resources where they disagree on `nodes` nodes: (parallelism, accelerators by resources).
    #[must_use]
    pub fn mismatch(&self, nodes: u32) -> Option<(u32, u32)> {
        let pair = (self.parallelism?, self.resources?.saturating_mul(nodes));
        (pair.0 != pair.1).then_some(pair)
    }
}

const PER_NODE: [u32; 4] = [1, 2, 4, 8];
const NODES: [u32; 4] = [1, 2, 4, 8];

/// The stated shape if runtime or service fix one, else the smallest that holds the model. `known` are the nodes that
/// limit it.
///
/// # Errors
/// `TooManyPerNode` where no node has what is fixed; `ModelDoesNotFit` with the numbers of the largest shape that was tried.
pub fn fit(case: &Case<'_>, class: &Class, known: Option<&Room>) -> Result<Fit, ClassRejection> {
    let stated = stated(case, Some(class));
    let (shapes, limit) = shapes(case, stated, class, known);
    let (shapes, largest) = placeable(shapes, known)?;
    let (Some(needed), Some(usable)) = (case.weights, class.memory.map(usable_memory)) else {
        let shape = shapes.first().copied().unwrap_or(largest);
        return Ok(Fit { shape, stated });
    };
    let holds = |shape: &Shape| u64::from(shape.accelerators()).saturating_mul(usable) >= needed;
    let shape = shapes.iter().copied().find(holds).ok_or(ClassRejection::ModelDoesNotFit {
        needed,
        per_accelerator: usable,
        accelerators: largest.accelerators(),
        limit,
    })?;
    Ok(Fit { shape, stated })
}

/// Those shapes that some node could carry if it were empty, and the largest of them.
fn placeable(mut shapes: Vec<Shape>, known: Option<&Room>) -> Result<(Vec<Shape>, Shape), ClassRejection> {
    let asked = shapes.iter().map(|shape| shape.per_node).min().unwrap_or(1);
    // A node without any is one whose device plugin has not spoken yet.
    let most = known.and_then(Room::most_on_a_node).filter(|most| *most > 0);
    if let Some(largest) = most {
        shapes.retain(|shape| shape.per_node <= largest);
        if shapes.is_empty() {
            return Err(ClassRejection::TooManyPerNode { asked, largest });
        }
    }
    let largest = shapes.last().copied().unwrap_or(Shape { per_node: 1, nodes: 1 });
    Ok((shapes, largest))
}

/// Shapes to try, smallest first.
fn shapes(case: &Case<'_>, stated: Stated, class: &Class, known: Option<&Room>) -> (Vec<Shape>, CountLimit) {
    let nodes = case.component.nodes.or(case.offer.nodes);
    let several = nodes.is_none() && (case.component.multi_node || case.offer.multi_node);
    let nodes_to_try = if several { &NODES[..] } else { &[1] };
    let largest = known.and_then(Room::largest_node).filter(|most| *most > 0);
    if let Some(parallelism) = stated.parallelism {
        return (vec![split(parallelism, nodes, nodes_to_try, largest.unwrap_or(8))], CountLimit::Fixed);
    }
    if let Some(per_node) = stated.resources {
        let shapes = |nodes: u32| Shape { per_node, nodes };
        return match nodes {
            Some(nodes) => (vec![shapes(nodes)], CountLimit::Fixed),
            None => (nodes_to_try.iter().copied().map(shapes).collect(), CountLimit::Fixed),
        };
    }
    if class.is_fraction() {
        return (vec![Shape { per_node: 1, nodes: nodes.unwrap_or(1) }], CountLimit::Fraction);
    }
    let per_node: Vec<u32> = PER_NODE.into_iter().filter(|count| largest.is_none_or(|most| *count <= most)).collect();
    let most = per_node.last().copied().unwrap_or(1);
    let limit = if most < 8 { CountLimit::LargestNode } else { CountLimit::Most };
    let single = per_node.iter().map(|count| Shape { per_node: *count, nodes: nodes.unwrap_or(1) });
    let more = nodes_to_try.iter().skip(1).map(|nodes| Shape { per_node: most, nodes: *nodes });
    (single.chain(more).collect(), limit)
}

/// A stated parallelism over `nodes`, or else over the fewest nodes of `most` accelerators that carry it.
fn split(parallelism: u32, nodes: Option<u32>, nodes_to_try: &[u32], most: u32) -> Shape {
    let enough = |nodes: &&u32| parallelism.div_ceil(**nodes) <= most;
    let spread = nodes_to_try.iter().find(enough).or(nodes_to_try.last()).copied().unwrap_or(1);
    let nodes = nodes.unwrap_or(spread).max(1);
    Shape { per_node: parallelism.div_ceil(nodes), nodes }
}

/// What is stated of the number of accelerators of `class`, or without one. A parallelism of the service outranks one of
/// the runtime, and tuning for the class what stands in the runtime's own launch line.
#[must_use]
pub fn stated(case: &Case<'_>, class: Option<&Class>) -> Stated {
    let ours = |layers: &[&[Configuration]]| -> Option<u32> {
        let all = layers.iter().rev().flat_map(|layer| layer.iter().rev());
        let for_class = all.filter(|one| class.is_some_and(|class| one.class == class.name));
        for_class.into_iter().find_map(Configuration::parallelism)
    };
    let [runtime @ .., service] = &case.configurations;
    let parallelism = case.component.parallelism.or_else(|| ours(&[service]));
    let weaker = || ours(runtime).or(case.offer.parallelism);
    // What the service asks for in numbers outranks what weaker sources imply by their parallelism (seed 000, Story 5).
    let parallelism = parallelism.or_else(|| if asks(case, class) { None } else { weaker() });
    Stated { parallelism, resources: by_resources(case, class) }
}

/// Whether the service itself, or its own tuning for the class, asks for accelerators by resources.
fn asks(case: &Case<'_>, class: Option<&Class>) -> bool {
    let [.., tuning] = &case.configurations;
    let ours = tuning.iter().filter(|one| class.is_some_and(|class| one.class == class.name));
    let tuned = |one: &Configuration| crate::merge::resources::accelerators(&one.resources, case.resources).is_some();
    let named = |(name, count): (&String, &u32)| case.resources.contains(name) && *count > 0;
    ours.into_iter().any(tuned) || case.component.resources.iter().any(named)
}

fn by_resources(case: &Case<'_>, class: Option<&Class>) -> Option<u32> {
    let stated = [&case.component.resources, &case.offer.resources].into_iter().flatten();
    let counted = stated.filter(|(name, count)| case.resources.contains(*name) && **count > 0);
    // Each vendor's name means one concept; only the class's own name may stand for several units of one accelerator.
    let unit = class.and_then(Class::resource).map_or(1, |resource| resource.quantity.max(1));
    let own = class.and_then(Class::resource_name);
    let configured = case.configurations.iter().flat_map(|layer| layer.iter());
    let configured = configured
        .filter(|one| class.is_some_and(|class| one.class == class.name))
        .flat_map(|one| [Some(&one.resources), one.runner.get("resources")])
        .filter_map(|resources| crate::merge::resources::accelerators(resources?, case.resources));
    counted
        .map(|(name, count)| if Some(name.as_str()) == own { count.div_ceil(unit) } else { *count })
        .chain(configured.map(|count| count.div_ceil(unit)))
        .max()
}

/// Bytes that the weights take, with a fifth more for cache and activations.
#[must_use]
pub fn weights(model: &Model) -> Option<u64> {
    let bits = quantization::bits(model.quantization.as_deref());
    // parameters × bits / 8 × 1.2, in integers.
    model.parameters.map(|count| count.saturating_mul(u64::from(bits) * 3) / 20)
}

/// Engines are left nine tenths of the memory.
#[must_use]
pub fn usable_memory(memory: u64) -> u64 {
    memory / 10 * 9
}
