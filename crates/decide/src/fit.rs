//! Number of accelerators of a replica, and whether the model fits into their memory.

use crate::capacity::PoolCapacity;
use crate::configuration::ClassConfiguration;
use crate::demand::Model;
use crate::match_context::MatchContext;
use crate::merge;
use crate::quantization;
use crate::reason::{ClassRejection, CountLimit};
use crate::shape::ReplicaShape;
use crate::supply::Class;

/// The shape of a replica on a class, and what the manifests request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcceleratorFit {
    pub(crate) shape: ReplicaShape,
    pub(crate) request: AcceleratorRequest,
}

/// Number of accelerators that runtime and service request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceleratorRequest {
    /// Tensor × pipeline parallelism of one replica, set by a flag or an environment variable.
    pub parallelism: Option<u32>,
    /// Accelerators per node from resource requests: the maximum over all layers.
    pub per_node: Option<u32>,
}

// === impl AcceleratorRequest ===

impl AcceleratorRequest {
    /// Whether the manifests fix the number of accelerators.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.parallelism.is_some() || self.per_node.is_some()
    }

    /// Returns (parallelism, accelerators in resource requests) if both are set and differ on `nodes` nodes.
    #[must_use]
    pub fn mismatch(&self, nodes: u32) -> Option<(u32, u32)> {
        let counts = (self.parallelism?, self.per_node?.saturating_mul(nodes));
        (counts.0 != counts.1).then_some(counts)
    }
}

/// Accelerator counts per node to try, in order.
const PER_NODE_COUNTS: [u32; 4] = [1, 2, 4, 8];
/// Node counts per replica to try, in order.
const NODES: [u32; 4] = [1, 2, 4, 8];

/// Returns the requested shape; if none is requested, the smallest one that the model fits into. `limiting` contains
/// the nodes that limit the accelerators of one Pod. They do not limit the current shape: its Pods run, although a node
/// has lost an accelerator since they were scheduled.
///
/// # Errors
/// `TooManyPerNode` if no node has the requested number; `ModelDoesNotFit` with the values of the largest shape.
pub(crate) fn fit(
    context: &MatchContext<'_>,
    class: &Class,
    limiting: Option<&PoolCapacity>,
) -> Result<AcceleratorFit, ClassRejection> {
    let request = requested_accelerators(context, Some(class));
    let fit = fit_on_nodes(context, request, class, limiting);
    fit.or_else(|rejection| current_fit(context, request, class).ok_or(rejection))
}

/// Returns the current shape on `class` if nodes of any size would permit it.
fn current_fit(context: &MatchContext<'_>, request: AcceleratorRequest, class: &Class) -> Option<AcceleratorFit> {
    let shape = context.current?.shape_on(&class.name)?;
    let permitted = fit_on_nodes(context, request, class, None).ok()?.shape;
    let is_permitted = match request.is_fixed() {
        true => shape == permitted,
        false => shape.accelerators() >= permitted.accelerators(),
    };
    is_permitted.then_some(AcceleratorFit { shape, request })
}

fn fit_on_nodes(
    context: &MatchContext<'_>,
    request: AcceleratorRequest,
    class: &Class,
    limiting: Option<&PoolCapacity>,
) -> Result<AcceleratorFit, ClassRejection> {
    let (shapes, limit) = candidate_shapes(context, request, class, limiting);
    let (shapes, largest) = placeable_shapes(shapes, limiting)?;
    let (Some(required), Some(usable)) = (context.model_memory, class.memory.map(usable_memory)) else {
        let shape = shapes.first().copied().unwrap_or(largest);
        return Ok(AcceleratorFit { shape, request });
    };
    let holds_model = |shape: &ReplicaShape| u64::from(shape.accelerators()).saturating_mul(usable) >= required;
    let shape = shapes.iter().copied().find(holds_model).ok_or(ClassRejection::ModelDoesNotFit {
        required,
        per_accelerator: usable,
        accelerators: largest.accelerators(),
        limit,
    })?;
    Ok(AcceleratorFit { shape, request })
}

/// Returns the shapes that an empty node could run, and the largest of them.
fn placeable_shapes(
    mut shapes: Vec<ReplicaShape>,
    limiting: Option<&PoolCapacity>,
) -> Result<(Vec<ReplicaShape>, ReplicaShape), ClassRejection> {
    let requested = shapes.iter().map(|shape| shape.per_node).min().unwrap_or(1);
    // Ignore a maximum of 0: the device plugins of these nodes have not registered yet.
    let max_per_node = limiting.and_then(PoolCapacity::max_per_node).filter(|max| *max > 0);
    if let Some(largest) = max_per_node {
        shapes.retain(|shape| shape.per_node <= largest);
        if shapes.is_empty() {
            return Err(ClassRejection::TooManyPerNode { requested, largest });
        }
    }
    let largest = shapes.last().copied().unwrap_or(ReplicaShape { per_node: 1, nodes: 1 });
    Ok((shapes, largest))
}

/// Returns the shapes to try, smallest first.
fn candidate_shapes(
    context: &MatchContext<'_>,
    request: AcceleratorRequest,
    class: &Class,
    limiting: Option<&PoolCapacity>,
) -> (Vec<ReplicaShape>, CountLimit) {
    let nodes = context.demand.nodes.or(context.runtime.nodes);
    let is_multi_node = nodes.is_none() && (context.demand.multi_node || context.runtime.multi_node);
    let nodes_to_try = if is_multi_node { &NODES[..] } else { &[1] };
    let largest_node = limiting.and_then(PoolCapacity::largest_node).filter(|largest| *largest > 0);
    if let Some(parallelism) = request.parallelism {
        let shape = split_parallelism(parallelism, nodes, nodes_to_try, largest_node.unwrap_or(8));
        return (vec![shape], CountLimit::Fixed);
    }
    if let Some(per_node) = request.per_node {
        let shape = |nodes: u32| ReplicaShape { per_node, nodes };
        return match nodes {
            Some(nodes) => (vec![shape(nodes)], CountLimit::Fixed),
            None => (nodes_to_try.iter().copied().map(shape).collect(), CountLimit::Fixed),
        };
    }
    if class.is_fraction() {
        return (vec![ReplicaShape { per_node: 1, nodes: nodes.unwrap_or(1) }], CountLimit::Fraction);
    }
    let per_node: Vec<u32> =
        PER_NODE_COUNTS.into_iter().filter(|count| largest_node.is_none_or(|largest| *count <= largest)).collect();
    let max_per_node = per_node.last().copied().unwrap_or(1);
    let limit = if max_per_node < 8 { CountLimit::LargestNode } else { CountLimit::Maximum };
    let single_node = per_node.iter().map(|count| ReplicaShape { per_node: *count, nodes: nodes.unwrap_or(1) });
    let multi_node = nodes_to_try.iter().skip(1).map(|nodes| ReplicaShape { per_node: max_per_node, nodes: *nodes });
    (single_node.chain(multi_node).collect(), limit)
}

/// Splits the requested parallelism over `nodes` nodes if set, otherwise over the fewest nodes with at most
/// `max_per_node` accelerators each.
fn split_parallelism(parallelism: u32, nodes: Option<u32>, nodes_to_try: &[u32], max_per_node: u32) -> ReplicaShape {
    let is_sufficient = |nodes: &&u32| parallelism.div_ceil(**nodes) <= max_per_node;
    let fewest_nodes = nodes_to_try.iter().find(is_sufficient).or(nodes_to_try.last()).copied().unwrap_or(1);
    let nodes = nodes.unwrap_or(fewest_nodes).max(1);
    ReplicaShape { per_node: parallelism.div_ceil(nodes), nodes }
}

/// Returns the number of accelerators that the manifests request on `class`, or without a class. Parallelism of the service
/// takes precedence over the runtime's, and a configuration for the class over the runtime's own arguments.
pub(crate) fn requested_accelerators(context: &MatchContext<'_>, class: Option<&Class>) -> AcceleratorRequest {
    let configured_parallelism = |layers: &[&[ClassConfiguration]]| -> Option<u32> {
        let all = layers.iter().rev().flat_map(|layer| layer.iter().rev());
        let for_class = all.filter(|configuration| is_for_class(configuration, class));
        for_class.into_iter().find_map(merge::parallelism)
    };
    let [runtime @ .., service] = &context.configurations;
    let service_parallelism = context.demand.parallelism.or_else(|| configured_parallelism(&[service]));
    let runtime_parallelism = || configured_parallelism(runtime).or(context.runtime.parallelism);
    // Resources of the service take precedence over the parallelism of weaker layers (seed 000, Story 5).
    let parallelism = service_parallelism
        .or_else(|| if service_requests_resources(context, class) { None } else { runtime_parallelism() });
    AcceleratorRequest { parallelism, per_node: requested_per_node(context, class) }
}

fn is_for_class(configuration: &ClassConfiguration, class: Option<&Class>) -> bool {
    class.is_some_and(|class| configuration.class == class.name)
}

/// Whether the resources of the service, or of its configuration for the class, request accelerators.
fn service_requests_resources(context: &MatchContext<'_>, class: Option<&Class>) -> bool {
    let [.., service] = &context.configurations;
    let resource_names = context.accelerator_resources;
    let configuration_requests_accelerators = |configuration: &ClassConfiguration| {
        is_for_class(configuration, class)
            && merge::resources::accelerator_count(&configuration.resources, resource_names).is_some()
    };
    let is_accelerator_request = |(name, count): (&String, &u32)| resource_names.contains(name) && *count > 0;
    service.iter().any(configuration_requests_accelerators)
        || context.demand.resources.iter().any(is_accelerator_request)
}

fn requested_per_node(context: &MatchContext<'_>, class: Option<&Class>) -> Option<u32> {
    let resource_names = context.accelerator_resources;
    let requested_units = [&context.demand.resources, &context.runtime.resources].into_iter().flatten();
    let requested_units = requested_units.filter(|(name, count)| resource_names.contains(*name) && **count > 0);
    // The resource names of all vendors count as accelerators; only the class's own resource may have several units per
    // accelerator.
    let units_per_accelerator = class.and_then(Class::resource).map_or(1, |resource| resource.quantity.max(1));
    let class_resource = class.and_then(Class::resource_name);
    let configured = context.configurations.iter().flat_map(|layer| layer.iter());
    let configured = configured
        .filter(|configuration| is_for_class(configuration, class))
        .flat_map(|configuration| [Some(&configuration.resources), configuration.runner.get("resources")])
        .filter_map(|resources| merge::resources::accelerator_count(resources?, resource_names));
    requested_units
        .map(
            |(name, count)| {
                if Some(name.as_str()) == class_resource { count.div_ceil(units_per_accelerator) } else { *count }
            },
        )
        .chain(configured.map(|count| count.div_ceil(units_per_accelerator)))
        .max()
}

/// Returns the estimated accelerator memory of `model` in bytes: its weights and 20 % for KV cache and activations. `None`
/// if the number of parameters is unknown.
#[must_use]
pub fn estimated_memory(model: &Model) -> Option<u64> {
    let bits = quantization::bits_per_parameter(model.quantization.as_deref());
    // parameters × bits / 8 × 1.2, in integer arithmetic.
    model.parameters.map(|count| count.saturating_mul(u64::from(bits) * 3) / 20)
}

/// Returns the bytes of accelerator memory that an engine may use: 90 %.
fn usable_memory(memory: u64) -> u64 {
    memory / 10 * 9
}
