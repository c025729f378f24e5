//! Number of accelerators of a replica, and whether the model fits into their memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::accelerator_request::{AcceleratorRequest, RequestStrength, StatedCount};
use crate::capacity::{PodShape, PoolCapacity};
use crate::compute_request::ComputeRequest;
use crate::configuration::ClassConfiguration;
use crate::demand::Model;
use crate::engine_memory::{EngineOnClass, ModelMemory};
use crate::match_context::MatchContext;
use crate::memory_budget::MemoryBudget;
use crate::merge;
use crate::merge::origin::{Origin, SettingField};
use crate::merge::parallelism::{ParallelismSettings, merge_parallelism};
use crate::model_architecture::ParallelSizes;
use crate::parallelism::{Parallelism, StatedSize};
use crate::reason::{ClassRejection, CountLimit};
use crate::shape::ReplicaShape;
use crate::supply::Class;

/// The shape of a replica on a class, and what the manifests request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceleratorFit {
    pub(crate) shape: ReplicaShape,
    pub(crate) request: AcceleratorRequest,
    /// Accelerators that containers beside the engine request.
    pub(crate) beside_engine: u32,
    /// CPU and memory that a Pod requests.
    pub(crate) compute: ComputeRequest,
}

// === impl AcceleratorFit ===

impl AcceleratorFit {
    /// Returns what one Pod requests of a node.
    pub(crate) fn pod(&self) -> PodShape {
        let accelerators = self.shape.per_node.saturating_add(self.beside_engine);
        PodShape { accelerators, compute: self.compute }
    }
}

/// The most accelerators that an engine can have on one node; `None` if nothing is known.
#[derive(Clone, Copy, Default)]
struct NodeLimits {
    /// Those of the largest node.
    largest_node: Option<u32>,
    /// An upper bound, if only the total of all nodes is known.
    max_per_node: Option<u32>,
}

// === impl NodeLimits ===

impl NodeLimits {
    /// Returns what containers beside the engine leave of the nodes. A maximum of 0 is ignored: the device plugins of these nodes have
    /// not registered yet.
    fn new(nodes: &PoolCapacity, beside_engine: u32) -> Self {
        let left = |maximum: Option<u32>| {
            maximum.filter(|maximum| *maximum > 0).map(|maximum| maximum.saturating_sub(beside_engine))
        };
        Self { largest_node: left(nodes.largest_node()), max_per_node: left(nodes.max_per_node()) }
    }
}

/// Accelerator counts per node to try, in order.
const PER_NODE_COUNTS: [u32; 4] = [1, 2, 4, 8];
/// Node counts per replica to try, in order.
const NODES: [u32; 4] = [1, 2, 4, 8];

/// Returns the requested shape, or a larger one if the model requires it and the request permits it; if none is requested,
/// the smallest one that the model fits into. `limiting` contains the nodes that limit the accelerators of one Pod. They do
/// not limit the current shape: its Pods run, although a node has lost an accelerator since they were scheduled.
///
/// # Errors
/// `TooManyPerNode` if no node has the requested number; `ModelDoesNotFit` with the values of the largest shape.
pub(crate) fn fit(
    context: &MatchContext<'_>,
    class: &Class,
    limiting: Option<&PoolCapacity>,
) -> Result<AcceleratorFit, ClassRejection> {
    let request = requested_accelerators(context, Some(class));
    let beside_engine = context.accelerators_beside_engine(class);
    let limits = limiting.map(|nodes| NodeLimits::new(nodes, beside_engine)).unwrap_or_default();
    let fit = fit_on_nodes(context, &request, class, limits);
    let shape = fit.or_else(|rejection| current_fit(context, &request, class).ok_or(rejection))?;
    Ok(AcceleratorFit { shape, request, beside_engine, compute: context.compute_request(class) })
}

/// Returns the current shape on `class` if nodes of any size would permit it.
fn current_fit(context: &MatchContext<'_>, request: &AcceleratorRequest, class: &Class) -> Option<ReplicaShape> {
    let shape = context.current?.shape_on(&class.name)?;
    let permitted = fit_on_nodes(context, request, class, NodeLimits::default()).ok()?;
    let is_permitted = match request.is_fixed() {
        true => shape == permitted,
        false => shape.accelerators() >= permitted.accelerators(),
    };
    is_permitted.then_some(shape)
}

fn fit_on_nodes(
    context: &MatchContext<'_>,
    request: &AcceleratorRequest,
    class: &Class,
    limits: NodeLimits,
) -> Result<ReplicaShape, ClassRejection> {
    let (shapes, limit) = candidate_shapes(context, request, class, limits);
    let (shapes, largest) = placeable_shapes(shapes, request, class, limits)?;
    let (Some(model), Some(memory)) = (context.model_memory, class.memory) else {
        return Ok(shapes.first().copied().unwrap_or(largest));
    };
    let settings = context.engine_settings(class);
    let engine = EngineOnClass { settings: &settings, memory, family: class.family.as_deref() };
    let budget = |shape: ReplicaShape| model.budget(&engine, parallel_sizes(request, shape));
    match shapes.iter().copied().find(|shape| budget(*shape).fits()) {
        None if request.strength == RequestStrength::Hint => Ok(largest),
        shape => shape.ok_or_else(|| ClassRejection::ModelDoesNotFit {
            budget: budget(largest),
            fitting_tokens: model.fitting_tokens(&engine, parallel_sizes(request, largest)),
            accelerators: largest.accelerators(),
            limit,
        }),
    }
}

/// Returns the memory budget of one accelerator of a replica; `None` if the memory of the model or the class is unknown.
pub(crate) fn memory_budget(
    context: &MatchContext<'_>,
    class: &Class,
    AcceleratorFit { shape, request, .. }: &AcceleratorFit,
) -> Option<MemoryBudget> {
    let settings = context.engine_settings(class);
    let engine = EngineOnClass { settings: &settings, memory: class.memory?, family: class.family.as_deref() };
    Some(context.model_memory?.budget(&engine, parallel_sizes(request, *shape)))
}

/// Returns the accelerators over which one copy of the model is distributed: stated pipeline stages, and the other
/// accelerators of the copy for tensor parallelism.
fn parallel_sizes(request: &AcceleratorRequest, shape: ReplicaShape) -> ParallelSizes {
    let groups = u64::from(request.parallelism.tensor_groups().max(1));
    let pipeline = (groups / u64::from(request.parallelism.copies().max(1))).max(1);
    ParallelSizes { tensor: (u64::from(shape.accelerators()) / groups).max(1), pipeline }
}

/// Returns the shapes that an empty node could run, and the largest of them.
fn placeable_shapes(
    mut shapes: Vec<ReplicaShape>,
    request: &AcceleratorRequest,
    class: &Class,
    limits: NodeLimits,
) -> Result<(Vec<ReplicaShape>, ReplicaShape), ClassRejection> {
    let requested = shapes.iter().map(|shape| shape.per_node).min().unwrap_or(1);
    // A copy of the model uses one partition of a device, because partitions cannot be combined.
    let of_copies = class.is_fraction().then(|| request.parallelism.copies().max(1));
    for (maximum, is_fraction) in [(of_copies, true), (limits.max_per_node, false)] {
        let Some(largest) = maximum else { continue };
        if request.strength == RequestStrength::Hint {
            shapes.iter_mut().for_each(|shape| shape.per_node = shape.per_node.min(largest));
        }
        shapes.retain(|shape| shape.per_node <= largest);
        if shapes.is_empty() {
            let stated = request.stated.clone();
            return Err(ClassRejection::TooManyPerNode { requested, largest, is_fraction, stated });
        }
    }
    let largest = shapes.last().copied().unwrap_or(ReplicaShape { per_node: 1, nodes: 1 });
    Ok((shapes, largest))
}

/// Returns the shapes to try, in order: the requested ones, then larger ones if the request permits them; without a request,
/// the smallest first.
fn candidate_shapes(
    context: &MatchContext<'_>,
    request: &AcceleratorRequest,
    class: &Class,
    limits: NodeLimits,
) -> (Vec<ReplicaShape>, CountLimit) {
    let nodes = context.demand.nodes.or(context.runtime.nodes);
    let is_multi_node = nodes.is_none() && (context.demand.multi_node || context.runtime.multi_node);
    let nodes_to_try = if is_multi_node { &NODES[..] } else { &[1] };
    let layout = NodeLayout { nodes, nodes_to_try, largest_node: limits.largest_node };
    let mut shapes = layout.requested_shapes(request);
    if !shapes.is_empty() && request.strength != RequestStrength::Minimum {
        let limit = request.stated.clone().map_or(CountLimit::Maximum, CountLimit::Stated);
        return (shapes, limit);
    }
    let (free, limit) = layout.free_shapes(request.parallelism.divisor(), class);
    let largest_requested = shapes.iter().map(|shape| shape.accelerators()).max().unwrap_or(0);
    shapes.extend(free.into_iter().filter(|shape| shape.accelerators() > largest_requested));
    (shapes, limit)
}

/// Nodes over which a replica may be distributed.
struct NodeLayout<'a> {
    /// Nodes of a replica, if the manifests state them.
    nodes: Option<u32>,
    /// Numbers of nodes to try otherwise.
    nodes_to_try: &'a [u32],
    /// Accelerators of the largest node, if known.
    largest_node: Option<u32>,
}

// === impl NodeLayout ===

impl NodeLayout<'_> {
    /// Returns the shapes with the requested number of accelerators. Empty without a request.
    fn requested_shapes(&self, request: &AcceleratorRequest) -> Vec<ReplicaShape> {
        match (request.parallelism.accelerators(), request.per_node) {
            (Some(accelerators), _) => vec![self.split(accelerators)],
            (None, Some(per_node)) => {
                let nodes = self.nodes.as_ref().map_or(self.nodes_to_try, std::slice::from_ref);
                let groups = request.parallelism.tensor_groups();
                let per_node = |nodes: u32| per_node.max(groups.div_ceil(nodes.max(1)));
                nodes.iter().map(|nodes| ReplicaShape { per_node: per_node(*nodes), nodes: *nodes }).collect()
            }
            (None, None) => Vec::new(),
        }
    }

    /// Returns the shapes with any number of accelerators that is divisible by `groups`, smallest first, and why there are no larger
    /// ones.
    fn free_shapes(&self, groups: u32, class: &Class) -> (Vec<ReplicaShape>, CountLimit) {
        if class.is_fraction() {
            let nodes = self.nodes.unwrap_or(1).max(1);
            return (vec![ReplicaShape { per_node: groups.max(1).div_ceil(nodes), nodes }], CountLimit::Fraction);
        }
        let is_available = |count: &u32| self.largest_node.is_none_or(|largest| *count <= largest);
        let per_node: Vec<u32> = PER_NODE_COUNTS.into_iter().filter(is_available).collect();
        let max_per_node = per_node.last().copied().unwrap_or(1);
        let limit = if max_per_node < 8 { CountLimit::LargestNode } else { CountLimit::Maximum };
        if groups > 1 {
            let max_nodes = self.nodes.or(self.nodes_to_try.last().copied()).unwrap_or(1);
            let max_per_node = self.largest_node.unwrap_or(max_per_node);
            let max_accelerators = max_per_node.saturating_mul(max_nodes).max(groups);
            let sizes = std::iter::successors(Some(groups), |count| count.checked_mul(2));
            return (
                sizes.take_while(|count| *count <= max_accelerators).map(|count| self.split(count)).collect(),
                limit,
            );
        }
        let single_node =
            per_node.iter().map(|count| ReplicaShape { per_node: *count, nodes: self.nodes.unwrap_or(1) });
        let multi_node =
            self.nodes_to_try.iter().skip(1).map(|nodes| ReplicaShape { per_node: max_per_node, nodes: *nodes });
        (single_node.chain(multi_node).collect(), limit)
    }

    /// Distributes accelerators over the stated number of nodes, otherwise over as few as possible.
    fn split(&self, accelerators: u32) -> ReplicaShape {
        let max_per_node = self.largest_node.unwrap_or(8);
        let is_sufficient = |nodes: &&u32| accelerators.div_ceil(**nodes) <= max_per_node;
        let fewest_nodes = self.nodes_to_try.iter().find(is_sufficient).or(self.nodes_to_try.last()).copied();
        let nodes = self.nodes.or(fewest_nodes).unwrap_or(1).max(1);
        ReplicaShape { per_node: accelerators.div_ceil(nodes), nodes }
    }
}

/// Returns the number of accelerators that the manifests request on `class`, or without a class. Parallelism of the service
/// takes precedence over the runtime's, and a configuration for the class over the runtime's own arguments.
pub(crate) fn requested_accelerators(context: &MatchContext<'_>, class: Option<&Class>) -> AcceleratorRequest {
    let mut parallelism = stated_parallelism(context, class);
    let requests_resources = service_requests_resources(context, class);
    let is_in_service_script = |size: &StatedSize| size.in_script && size.origin == Origin::Service;
    let script_accelerators = parallelism
        .stated()
        .any(is_in_service_script)
        .then(|| parallelism.accelerators().unwrap_or_else(|| parallelism.tensor_groups()));
    if requests_resources {
        // A script may compute other numbers than its flags show; the resources are those of its author. Resources of the
        // service also take precedence over tensor parallelism of weaker layers (seed 000, Story 5), except in a script, which is
        // not changed.
        parallelism.retain(|size| !is_in_service_script(size));
        parallelism.tensor = parallelism.tensor.filter(|size| size.origin == Origin::Service || size.in_script);
    }
    let strength = match &parallelism.tensor {
        _ if script_accelerators.is_some() && !requests_resources => RequestStrength::Hint,
        Some(size) if size.in_script || size.origin == Origin::Service => RequestStrength::Exact,
        _ if requests_resources => RequestStrength::Exact,
        _ => RequestStrength::Minimum,
    };
    let per_node = requested_per_node(context, class);
    let stated = match &per_node {
        Some(per_node) if parallelism.tensor.is_none() => StatedCount::new([per_node.clone()]),
        _ => StatedCount::new(parallelism.stated().cloned()),
    };
    let per_node = per_node.map(|stated| stated.size);
    AcceleratorRequest { parallelism, per_node, strength, stated, script_accelerators }
}

/// Returns the parallelism that all layers together state on `class`.
fn stated_parallelism(context: &MatchContext<'_>, class: Option<&Class>) -> Parallelism {
    let [runtime @ .., service] = &context.configurations;
    let configured = |layer: &[ClassConfiguration]| -> Vec<ParallelismSettings> {
        let for_class = layer.iter().rev().filter(|configuration| is_for_class(configuration, class));
        for_class.map(ClassConfiguration::parallelism).collect()
    };
    let of_service = configured(service);
    let of_runtime: Vec<ParallelismSettings> = runtime.iter().rev().flat_map(|layer| configured(layer)).collect();
    let mut sources = vec![(Origin::Service, &context.demand.parallelism)];
    sources.extend(of_service.iter().map(|settings| (Origin::Service, settings)));
    sources.extend(of_runtime.iter().map(|settings| (Origin::Configuration, settings)));
    sources.push((Origin::Runtime, &context.runtime.parallelism));
    merge_parallelism(&sources)
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

/// Returns the number of accelerators per node that resources request: that of the service, or that of the runtime if the service
/// requests none, raised to that of a configuration for the class (seed 000, Merging Rules).
fn requested_per_node(context: &MatchContext<'_>, class: Option<&Class>) -> Option<StatedSize> {
    let resource_names = context.accelerator_resources;
    // The resource names of all vendors count as accelerators; only the class's own resource may have several units per
    // accelerator.
    let units_per_accelerator = class.and_then(Class::resource).map_or(1, |resource| resource.quantity.max(1));
    let class_resource = class.and_then(Class::resource_name);
    let requested = |origin: Origin, resources: &BTreeMap<String, u32>| {
        let accelerators = resources.iter().filter(|(name, count)| resource_names.contains(*name) && **count > 0);
        let counts = accelerators.map(|(name, count)| {
            let is_class_resource = Some(name.as_str()) == class_resource;
            let count = if is_class_resource { count.div_ceil(units_per_accelerator) } else { *count };
            (count, name.clone(), origin)
        });
        counts.max_by_key(|(count, ..)| *count)
    };
    let stated = requested(Origin::Service, &context.demand.resources)
        .or_else(|| requested(Origin::Runtime, &context.runtime.resources));
    let [runtime @ .., service] = &context.configurations;
    let runtime = runtime.iter().flat_map(|layer| layer.iter()).map(|entry| (Origin::Configuration, entry));
    let configurations = runtime.chain(service.iter().map(|entry| (Origin::Service, entry)));
    let configured = configurations
        .filter(|(_, configuration)| is_for_class(configuration, class))
        .flat_map(|(origin, entry)| {
            [Some(&entry.resources), entry.runner.get("resources")].map(|resources| (origin, resources))
        })
        .filter_map(|(origin, resources)| {
            let count = merge::resources::accelerator_count(resources?, resource_names)?;
            let resource = class_resource.unwrap_or("accelerators").to_owned();
            Some((count.div_ceil(units_per_accelerator), resource, origin))
        });
    let (size, resource, origin) =
        stated.into_iter().chain(configured).max_by_key(|(count, _, origin)| (*count, *origin))?;
    let field = Arc::new(SettingField::Limit(resource));
    Some(StatedSize { size, field, origin, in_script: false })
}

/// Returns the estimated accelerator memory of `model` in bytes: its weights and 20 % for KV cache and activations. `None`
/// if neither the size of its files nor the number of parameters is known.
#[must_use]
pub fn estimated_memory(model: &Model) -> Option<u64> {
    ModelMemory::of(model).map(|memory| memory.estimate())
}
