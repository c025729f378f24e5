//! Changes that make a class eligible, or give the service free capacity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::apply;
use super::change::{CapabilityChange, ConstraintSource, ProposedChange};
use super::what_if::{WhatIf, selected_classes};
use crate::capacity::{PodShape, PoolCapacity};
use crate::component::Component;
use crate::compute_request::ComputeRequest;
use crate::decision::{AcceleratorCandidate, ClassEvaluation, ComponentDecision, RuntimeCandidate};
use crate::demand::{Capabilities, ClassSelector, Demand};
use crate::merge::affinity;
use crate::merge::origin::Origin;
use crate::nodes::{Availability, ClassNode, UnschedulableNodes};
use crate::reason::{ClassRejection, CountLimit};
use crate::suggestion::nearest_name;
use crate::supply::{Class, Runtime, Supply};

/// Returns nodes to uncordon, classes with free capacity, nodes to repair, accelerators to free and nodes to add, in ascending
/// order of effort.
pub(super) fn capacity_changes(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let Some(selected) = what_if.current.candidates.iter().find(|candidate| candidate.selected) else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    for (name, component) in &what_if.current.components {
        let classes = || selected.accelerators.iter().filter(|class| class.component == *name);
        let current = classes().find(|class| component.accelerator_class.as_ref() == Some(&class.class));
        if current.is_none_or(has_capacity) {
            continue;
        }
        let unschedulable = current.and_then(unschedulable_nodes);
        let cordoned = unschedulable.map(|nodes| nodes.cordoned.as_slice()).unwrap_or_default();
        changes.extend(recovery(what_if, component, cordoned, |nodes| ProposedChange::Uncordon { nodes }));
        match classes().find(|class| class.rank.is_some() && has_capacity(class)) {
            // No edit is needed to move a running service.
            Some(_) if what_if.selection.is_some() && what_if.has_capacity_when_decided_again() => {}
            Some(class) => changes.push(ProposedChange::UseClass { class: class.class.clone() }),
            None => changes.extend(use_class_outside_preferred(what_if)),
        }
        let not_ready = unschedulable.map(|nodes| nodes.not_ready.as_slice()).unwrap_or_default();
        changes.extend(recovery(what_if, component, not_ready, |nodes| ProposedChange::RepairNodes { nodes }));
        let compute = current.and_then(requested_compute).unwrap_or_default();
        let changes_of_supply = supply_changes(what_if.supply, component, compute);
        let requires_named_nodes = requires_named_nodes(what_if);
        let is_possible =
            |change: &ProposedChange| !matches!(change, ProposedChange::AddNodes { .. }) || !requires_named_nodes;
        changes.extend(changes_of_supply.into_iter().filter(is_possible));
    }
    changes
}

/// Returns the class that would be selected if the service preferred none.
fn use_class_outside_preferred(what_if: &WhatIf<'_>) -> Option<ProposedChange> {
    let outcome = what_if.try_edit(|demand, _| edit_selectors(demand, |selector| selector.preferred.clear()))?;
    let class = selected_classes(&outcome).into_iter().next()?;
    (!selected_classes(what_if.current).contains(&class)).then_some(ProposedChange::UseClass { class })
}

fn has_capacity(class: &AcceleratorCandidate) -> bool {
    matches!(&class.evaluation, ClassEvaluation::Eligible(eligibility) if eligibility.has_capacity)
}

fn requested_compute(class: &AcceleratorCandidate) -> Option<ComputeRequest> {
    match &class.evaluation {
        ClassEvaluation::Eligible(eligibility) => Some(eligibility.compute),
        ClassEvaluation::Rejected(_) => None,
    }
}

fn unschedulable_nodes(class: &AcceleratorCandidate) -> Option<&UnschedulableNodes> {
    match &class.evaluation {
        ClassEvaluation::Eligible(eligibility) => eligibility.unschedulable.as_ref(),
        ClassEvaluation::Rejected(_) => None,
    }
}

/// Returns the change that makes as few of the unschedulable nodes `names` schedulable as suffice, those with the most free
/// accelerators first, or all that have any if even they do not suffice. `None` if no Pod would fit on them.
fn recovery(
    what_if: &WhatIf<'_>,
    component: &ComponentDecision,
    names: &[String],
    change: impl Fn(Vec<String>) -> ProposedChange,
) -> Option<ProposedChange> {
    let class = what_if.supply.class(component.accelerator_class.as_deref()?)?;
    let slots = |node: &ClassNode| node.free / component.accelerators_per_node.max(1);
    let mut nodes: Vec<&ClassNode> = class.availability.iter().flat_map(|known| &known.nodes).collect();
    nodes.retain(|node| names.contains(&node.name) && slots(node) > 0);
    nodes.sort_by_key(|node| std::cmp::Reverse(slots(node)));
    let change_of = |count: usize| change(nodes.iter().take(count).map(|node| node.name.clone()).collect());
    let suffices =
        |count: usize| what_if.try_change(&change_of(count)).is_some_and(|outcome| what_if.is_improved_by(&outcome));
    let counts: Vec<usize> = (1..nodes.len()).collect();
    let is_listed = !nodes.is_empty();
    is_listed.then(|| change_of(counts.partition_point(|count| !suffices(*count)) + 1))
}

/// Label with the name of the node.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Whether the service or the selected runtime allows only nodes with certain names, which a new node does not have.
fn requires_named_nodes(what_if: &WhatIf<'_>) -> bool {
    let runtime = what_if.current.runtime.as_ref().and_then(|selected| {
        let is_selected = |runtime: &&Arc<Runtime>| runtime.name == selected.name && runtime.scope == selected.scope;
        what_if.supply.runtimes.iter().find(is_selected)
    });
    let components = || what_if.demand.components.values();
    let runtime_components = || runtime.iter().flat_map(|runtime| runtime.components.values());
    let selectors = components().flat_map(|component| [&component.node_selector, &component.selector.node_selector]);
    let mut selectors = selectors.chain(runtime_components().map(|component| &component.node_selector));
    let affinities = components().filter_map(|component| component.affinity.as_ref());
    let mut affinities = affinities.chain(runtime_components().flat_map(|component| &component.affinities));
    selectors.any(|selector| selector.contains_key(HOSTNAME_LABEL))
        || affinities
            .any(|affinity| affinity::required_terms(affinity).is_some_and(|terms| terms.iter().all(names_nodes)))
}

/// Whether a node selector term lists the names of nodes.
fn names_nodes(term: &Value) -> bool {
    let entries = |field: &str| term[field].as_array().into_iter().flatten();
    let lists_values = |expression: &Value| expression["operator"] == "In";
    entries("matchFields").any(lists_values)
        || entries("matchExpressions").any(|expression| expression["key"] == HOSTNAME_LABEL && lists_values(expression))
}

/// Returns the accelerators to free, and the nodes to add, either of which suffices for all replicas of the component. The
/// nodes to add are as large as the largest node of the class.
fn supply_changes(supply: &Supply, component: &ComponentDecision, compute: ComputeRequest) -> Vec<ProposedChange> {
    let class = component.accelerator_class.as_deref().and_then(|name| supply.class(name));
    let Some(class) = class else { return Vec::new() };
    let (per_node, pods) = (component.accelerators_per_node, component.nodes.saturating_mul(component.replicas.max(1)));
    let availability = class.availability.clone().unwrap_or_default();
    let free = PoolCapacity::all_nodes(&availability);
    let missing_accelerators = pods.saturating_sub(free.slots(&PodShape::accelerators(per_node)));
    let missing_slots = pods.saturating_sub(free.slots(&PodShape { accelerators: per_node, compute }));
    let class = class.name.clone();
    let to_free =
        accelerators_to_free(&availability, per_node.max(1), missing_accelerators).ok().filter(|count| *count > 0);
    let free = to_free.map(|count| ProposedChange::FreeAccelerators { class: class.clone(), count });
    let largest_node = availability.nodes.iter().map(|node| node.total).max().unwrap_or_default();
    let node_size = largest_node.max(per_node);
    let nodes = missing_slots.div_ceil((node_size / per_node.max(1)).max(1));
    free.into_iter().chain([ProposedChange::AddNodes { class, nodes, per_node: node_size }]).collect()
}

/// Returns the least number of accelerators to free on schedulable nodes for `missing` more slots of `per_node` accelerators. The first slot
/// on a node costs `per_node` minus the remaining free accelerators; each further slot costs `per_node`.
///
/// # Errors
/// The number of slots that the nodes cannot provide even if they were empty.
fn accelerators_to_free(availability: &Availability, per_node: u32, missing: u32) -> Result<u32, u32> {
    let further_slots = |node: &ClassNode| (node.total / per_node).saturating_sub(node.free / per_node);
    let nodes = || availability.nodes.iter().filter(|node| node.is_schedulable());
    let available_slots = nodes().map(further_slots).fold(0, u32::saturating_add);
    if available_slots < missing {
        return Err(missing - available_slots);
    }
    let usable_nodes = nodes().filter(|node| further_slots(node) > 0);
    let mut next_slot_costs: Vec<u32> = usable_nodes.map(|node| per_node - node.free % per_node).collect();
    next_slot_costs.sort_unstable();
    next_slot_costs.truncate(usize::try_from(missing).unwrap_or(usize::MAX));
    let full_slots = missing.saturating_sub(u32::try_from(next_slot_costs.len()).unwrap_or(u32::MAX));
    Ok(next_slot_costs.into_iter().fold(full_slots.saturating_mul(per_node), u32::saturating_add))
}

/// Returns changes that relax one constraint each, in ascending order of effort.
pub(super) fn eligibility_changes(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let mut changes = class_name_changes(what_if);
    changes.extend(selector_changes(what_if));
    changes.extend(capability_changes(what_if, &ConstraintSource::Selector));
    changes.extend(placement_changes(what_if));
    changes.extend(rejections(what_if).filter_map(node_change));
    changes.extend(count_changes(what_if, &ConstraintSource::Service));
    for runtime in compatible_runtimes(what_if) {
        changes.extend(runtime_changes(what_if, runtime));
    }
    if rejections(what_if).any(|rejection| matches!(rejection, ClassRejection::ModelDoesNotFit { .. })) {
        let is_unquantized = what_if.demand.model.resolved().is_some_and(|model| model.quantization.is_none());
        changes.extend(["fp8", "int4"].into_iter().filter(|_| is_unquantized).map(ProposedChange::Quantize));
    }
    changes.extend(nodes_to_add(what_if));
    changes
}

/// Returns the change that lets Pods run on nodes with a taint, or with less CPU or memory than requested.
fn node_change(rejection: &ClassRejection) -> Option<ProposedChange> {
    match rejection {
        ClassRejection::TaintNotTolerated { taint, .. } => Some(ProposedChange::AddToleration(taint.clone())),
        ClassRejection::InsufficientNodeResources { shortage, .. } if shortage.largest > 0 => {
            Some(ProposedChange::LowerRequest { resource: shortage.resource, amount: shortage.largest })
        }
        _ => None,
    }
}

/// Maximum number of runtimes whose constraints are relaxed.
const MAX_RUNTIMES: usize = 3;

/// Returns the compatible runtimes without an eligible class, the closest first.
fn compatible_runtimes<'a>(what_if: &'a WhatIf<'_>) -> impl Iterator<Item = &'a Runtime> {
    let is_compatible =
        |candidate: &&RuntimeCandidate| !candidate.accelerators.is_empty() && candidate.rejected.is_some();
    let compatible = what_if.current.candidates.iter().filter(is_compatible).take(MAX_RUNTIMES);
    compatible.filter_map(|candidate| find_runtime(what_if, candidate))
}

fn find_runtime<'a>(what_if: &'a WhatIf<'_>, candidate: &RuntimeCandidate) -> Option<&'a Runtime> {
    let matches = |runtime: &&Arc<Runtime>| runtime.name == candidate.runtime && runtime.scope == candidate.scope;
    what_if.supply.runtimes.iter().find(matches).map(Arc::as_ref)
}

fn rejections<'a>(what_if: &'a WhatIf<'_>) -> impl Iterator<Item = &'a ClassRejection> {
    let classes = what_if.current.candidates.iter().flat_map(|candidate| candidate.accelerators.iter());
    classes.filter_map(|class| match &class.evaluation {
        ClassEvaluation::Rejected(rejection) => Some(rejection),
        ClassEvaluation::Eligible(_) => None,
    })
}

/// Returns corrections of preferred classes that do not exist.
fn class_name_changes(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let mut changes = Vec::new();
    for component in what_if.demand.components.values() {
        let unknown = component.selector.preferred.iter().filter(|name| what_if.supply.class(name).is_none());
        for from in unknown {
            let nearest_class = nearest_name(from, what_if.supply.classes.iter().map(|class| class.name.as_str()));
            let source = component.selector.preference_source.as_str().to_owned();
            changes.extend(nearest_class.map(|to| ProposedChange::CorrectClassName {
                from: from.clone(),
                to: to.to_owned(),
                source,
            }));
        }
    }
    changes
}

/// Returns changes to unknown class names, excluded classes and placement, even if none is sufficient alone.
pub(super) fn exclusion_changes(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let mut changes = class_name_changes(what_if);
    let excluded = what_if.demand.components.values().flat_map(|component| &component.selector.excluded);
    let excluded: BTreeSet<&String> = excluded.filter(|name| what_if.supply.class(name).is_some()).collect();
    let allow_classes = || ProposedChange::AllowClasses(excluded.iter().map(|name| (*name).clone()).collect());
    changes.extend((!excluded.is_empty()).then(allow_classes));
    changes.extend(placement_changes(what_if));
    changes
}

/// Returns changes to preferred classes, excluded classes and architecture families.
fn selector_changes(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let mut changes = Vec::new();
    let selectors = || what_if.demand.components.values().map(|component| &component.selector);
    if let Some(selector) = selectors().find(|selector| !selector.preferred.is_empty()) {
        let outcome = what_if.try_edit(|demand, _| edit_selectors(demand, |selector| selector.preferred.clear()));
        let source = selector.preference_source.as_str().to_owned();
        let prefer = |outcome| ProposedChange::PreferClasses { classes: selected_classes(&outcome), source };
        changes.extend(outcome.map(prefer));
    }
    if selectors().any(|selector| !selector.excluded.is_empty()) {
        let outcome = what_if.try_edit(|demand, _| edit_selectors(demand, |selector| selector.excluded.clear()));
        let excluded: BTreeSet<&String> = selectors().flat_map(|selector| &selector.excluded).collect();
        let selected = outcome.map(|outcome| selected_classes(&outcome)).unwrap_or_default();
        let allowed: Vec<String> = selected.into_iter().filter(|class| excluded.contains(class)).collect();
        changes.extend((!allowed.is_empty()).then_some(ProposedChange::AllowClasses(allowed)));
    }
    if selectors().any(|selector| !selector.families.is_empty()) {
        let outcome = what_if.try_edit(|demand, _| edit_selectors(demand, |selector| selector.families.clear()));
        let selected = outcome.iter().flat_map(selected_classes);
        let families: BTreeSet<String> =
            selected.filter_map(|class| what_if.supply.class(&class)?.family.clone()).collect();
        let allow_families = || ProposedChange::AllowFamilies(families.iter().cloned().collect());
        changes.extend((!families.is_empty()).then(allow_families));
    }
    changes
}

fn edit_selectors(demand: &mut Demand, edit: impl Fn(&mut ClassSelector)) {
    demand.components.values_mut().for_each(|component| edit(&mut component.selector));
}

/// Returns each required capability of `source`, lowered to that of the class that would be selected without it.
fn capability_changes(what_if: &WhatIf<'_>, source: &ConstraintSource) -> Vec<ProposedChange> {
    let required = match source {
        ConstraintSource::Runtime(name) => {
            let runtime = what_if.supply.runtimes.iter().find(|runtime| runtime.name == *name);
            runtime.map(|runtime| runtime.requirements.required.clone()).unwrap_or_default()
        }
        ConstraintSource::Selector | ConstraintSource::Service => {
            let all = what_if.demand.components.values().map(|component| &component.selector.required);
            all.fold(Capabilities::default(), |combined, required| combined.combine(required))
        }
    };
    let lowered_capabilities = capability_removals(&required).into_iter().filter_map(|removal| {
        let outcome = what_if.try_edit(|demand, supply| {
            apply::edit_capabilities(demand, supply, source, |required| apply::change_capability(required, &removal));
        })?;
        let class = what_if.supply.class(selected_classes(&outcome).first()?)?;
        let capability = lowered_to_class(removal, class);
        Some(ProposedChange::RelaxCapability { source: source.clone(), capability })
    });
    lowered_capabilities.collect()
}

/// Returns the removal of each required capability.
fn capability_removals(required: &Capabilities) -> Vec<CapabilityChange> {
    let mut removals = Vec::new();
    removals.extend(required.memory.map(|_| CapabilityChange::Memory(None)));
    removals.extend(required.max_memory.map(|_| CapabilityChange::MaxMemory(None)));
    removals.extend(required.compute_capability.as_ref().map(|_| CapabilityChange::ComputeCapability(None)));
    // Removes single features first, then all of them.
    removals.extend(required.features.iter().map(|feature| CapabilityChange::Features(vec![feature.clone()])));
    let features: Vec<String> = required.features.iter().cloned().collect();
    removals.extend((features.len() > 1).then_some(CapabilityChange::Features(features)));
    removals.extend(required.bandwidth.map(|_| CapabilityChange::Bandwidth(None)));
    let throughput = required.performance.by_precision().into_iter().filter(|(_, tflops)| tflops.is_some());
    removals.extend(throughput.map(|(precision, _)| CapabilityChange::Performance { precision, tflops: None }));
    removals
}

/// Returns the change that lowers the capability to that of `class`.
fn lowered_to_class(removal: CapabilityChange, class: &Class) -> CapabilityChange {
    match removal {
        CapabilityChange::Memory(_) => CapabilityChange::Memory(class.memory),
        CapabilityChange::MaxMemory(_) => CapabilityChange::MaxMemory(class.memory),
        CapabilityChange::ComputeCapability(_) => {
            CapabilityChange::ComputeCapability(class.compute_capability.as_ref().map(ToString::to_string))
        }
        CapabilityChange::Features(removed) => {
            let missing = removed.into_iter().filter(|feature| !class.features.contains(feature));
            CapabilityChange::Features(missing.collect())
        }
        CapabilityChange::Bandwidth(_) => CapabilityChange::Bandwidth(class.bandwidth),
        CapabilityChange::Performance { precision, .. } => {
            let throughput = class.performance.by_precision().into_iter().find(|(name, _)| *name == precision);
            CapabilityChange::Performance { precision, tflops: throughput.and_then(|(_, tflops)| tflops) }
        }
    }
}

/// Returns the removal of each key of the service's node selectors, and of its affinity.
fn placement_changes(what_if: &WhatIf<'_>) -> Vec<ProposedChange> {
    let mut changes = Vec::new();
    for component in what_if.demand.components.values() {
        changes.extend(node_selector_changes(&ConstraintSource::Selector, &component.selector.node_selector));
        changes.extend(node_selector_changes(&ConstraintSource::Service, &component.node_selector));
        let affinity = component.affinity.as_ref();
        changes.extend(affinity.map(|_| ProposedChange::RemoveAffinity(ConstraintSource::Service)));
    }
    changes
}

fn node_selector_changes(source: &ConstraintSource, selector: &BTreeMap<String, String>) -> Vec<ProposedChange> {
    let removal = |(key, value): (&String, &String)| ProposedChange::RemoveNodeSelector {
        source: source.clone(),
        key: key.clone(),
        value: value.clone(),
    };
    selector.iter().map(removal).collect()
}

/// Returns changes to the number of accelerators or nodes that `source` sets.
fn count_changes(what_if: &WhatIf<'_>, source: &ConstraintSource) -> Vec<ProposedChange> {
    let groups = tensor_groups(what_if, source);
    let outcome = what_if.try_edit(|demand, supply| apply::remove_accelerator_count(demand, supply, source));
    let required = outcome.as_ref().and_then(|outcome| {
        let engine =
            outcome.components.get(Component::Engine.as_str()).filter(|engine| engine.accelerators_per_node > 0)?;
        let (per_node, nodes) = (engine.accelerators_per_node, engine.nodes);
        Some(ProposedChange::SetAcceleratorCount { source: source.clone(), per_node, nodes, groups })
    });
    // If no node has as many accelerators as requested, also propose the accelerator count of the largest node.
    let largest_nodes = rejections(what_if).filter_map(|rejection| match rejection {
        ClassRejection::TooManyPerNode { largest, .. } => Some(*largest),
        _ => None,
    });
    let largest = largest_nodes.max().filter(|_| outcome.is_some());
    let largest = largest.map(|largest| largest - largest % groups).filter(|per_node| *per_node > 0);
    let largest = largest.map(|per_node| ProposedChange::SetAcceleratorCount {
        source: source.clone(),
        per_node,
        nodes: 1,
        groups,
    });
    let nodes = [1, 2, 4, 8].map(|nodes| ProposedChange::SetNodes { source: source.clone(), nodes });
    let nodes = nodes.into_iter().filter(|_| fixes_nodes(what_if, source));
    largest.into_iter().chain(required).chain(nodes).collect()
}

/// Returns the groups of accelerators that the pipeline stages and the copies of the engine need, as `source` states them; at least 1.
fn tensor_groups(what_if: &WhatIf<'_>, source: &ConstraintSource) -> u32 {
    let engine = Component::Engine;
    let parallelism = match source {
        ConstraintSource::Runtime(name) => {
            let runtime = what_if.supply.runtimes.iter().find(|runtime| runtime.name == *name);
            runtime.and_then(|runtime| runtime.components.get(&engine)).map(|component| &component.parallelism)
        }
        ConstraintSource::Selector | ConstraintSource::Service => {
            what_if.demand.components.get(&engine).map(|component| &component.parallelism)
        }
    };
    parallelism.map_or(1, |parallelism| parallelism.sizes(Origin::Service).tensor_groups().max(1))
}

fn fixes_nodes(what_if: &WhatIf<'_>, source: &ConstraintSource) -> bool {
    match source {
        ConstraintSource::Runtime(name) => {
            let runtimes = what_if.supply.runtimes.iter().filter(|runtime| runtime.name == *name);
            runtimes.flat_map(|runtime| runtime.components.values()).any(|component| component.nodes.is_some())
        }
        ConstraintSource::Selector | ConstraintSource::Service => {
            what_if.demand.components.values().any(|component| component.nodes.is_some())
        }
    }
}

/// Returns changes to the constraints that `runtime` sets.
fn runtime_changes(what_if: &WhatIf<'_>, runtime: &Runtime) -> Vec<ProposedChange> {
    let source = ConstraintSource::Runtime(runtime.name.clone());
    let mut changes = capability_changes(what_if, &source);
    if runtime.requirements.supported_classes.is_some() {
        let outcome = what_if.try_edit(|demand, supply| {
            apply::edit_runtime(demand, supply, &runtime.name, |runtime| {
                runtime.requirements.supported_classes = None;
            });
        });
        changes.extend(outcome.map(|outcome| ProposedChange::SupportClasses {
            runtime: runtime.name.clone(),
            classes: selected_classes(&outcome),
        }));
    }
    for component in runtime.components.values() {
        changes.extend(node_selector_changes(&source, &component.node_selector));
        changes.extend(component.affinities.first().map(|_| ProposedChange::RemoveAffinity(source.clone())));
    }
    changes.extend(count_changes(what_if, &source));
    if runtime.components.values().all(|component| !component.multi_node) {
        let outcome = what_if.try_edit(|demand, supply| {
            apply::edit_runtime(demand, supply, &runtime.name, apply::enable_multi_node);
        });
        let nodes = outcome.and_then(|outcome| Some(outcome.components.get(Component::Engine.as_str())?.nodes));
        let add_leader_and_worker = |nodes| ProposedChange::AddLeaderAndWorker { runtime: runtime.name.clone(), nodes };
        changes.extend(nodes.filter(|nodes| *nodes > 1).map(add_leader_and_worker));
    }
    changes
}

/// Returns the nodes to add, of the class that would be selected if every class had any number of nodes.
fn nodes_to_add(what_if: &WhatIf<'_>) -> Option<ProposedChange> {
    let lacks_nodes = |rejection: &ClassRejection| {
        matches!(rejection, ClassRejection::NoMatchingNodes { .. } | ClassRejection::NodeSelectorConflict { .. })
    };
    // The existing nodes may all be too small.
    let lacks_large_nodes = |rejection: &ClassRejection| match rejection {
        ClassRejection::TooManyPerNode { .. } => true,
        ClassRejection::ModelDoesNotFit { limit, .. } => *limit == CountLimit::LargestNode,
        _ => false,
    };
    if !rejections(what_if).any(|rejection| lacks_nodes(rejection) || lacks_large_nodes(rejection)) {
        return None;
    }
    let outcome = what_if.try_edit(|_, supply| {
        supply.classes.iter_mut().for_each(|class| Arc::make_mut(class).availability = None);
    })?;
    let engine = outcome.components.get(Component::Engine.as_str())?;
    let class = engine.accelerator_class.clone()?;
    let nodes = engine.nodes.saturating_mul(engine.replicas.max(1));
    Some(ProposedChange::AddNodes { class, nodes, per_node: engine.accelerators_per_node })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::cheapest_node_first(&[(3, 8), (1, 8)], 4, 1, Ok(1))]
    #[case::next_cheapest_node(&[(3, 8), (1, 8)], 4, 2, Ok(1 + 3))]
    #[case::then_full_slots(&[(3, 8), (1, 8)], 4, 4, Ok(1 + 3 + 4 + 4))]
    #[case::more_than_nodes_can_provide(&[(3, 8), (1, 8)], 4, 7, Err(3))]
    #[case::node_too_small(&[(2, 2)], 4, 1, Err(1))]
    #[case::full_node(&[(0, 4)], 4, 1, Ok(4))]
    #[case::saturates(&[(0, u32::MAX), (0, u32::MAX)], 1, u32::MAX, Ok(u32::MAX))]
    fn counts_accelerators_to_free(
        #[case] nodes: &[(u32, u32)],
        #[case] per_node: u32,
        #[case] missing: u32,
        #[case] expected: Result<u32, u32>,
    ) {
        let node = |(free, total): &(u32, u32)| ClassNode { free: *free, total: *total, ..ClassNode::default() };
        let mut availability = Availability { nodes: nodes.iter().map(node).collect() };
        // To free accelerators on an unschedulable node does not help.
        let (cordoned, not_ready) = (node(&(0, 64)), node(&(0, 64)));
        availability.nodes.push(ClassNode { cordoned: true, ..cordoned });
        availability.nodes.push(ClassNode { not_ready: true, ..not_ready });
        assert_eq!(accelerators_to_free(&availability, per_node, missing), expected);
    }
}
