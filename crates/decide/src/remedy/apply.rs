//! Applies a proposed change to the input of a decision.

use std::sync::Arc;

use super::change::{CapabilityChange, ConstraintSource, ProposedChange, RuntimeField};
use crate::code;
use crate::compatibility::{self, DEFAULT_PROTOCOL};
use crate::demand::{Capabilities, ComponentDemand, Demand, Model, ModelReference};
use crate::is_visible;
use crate::merge::origin::Origin;
use crate::merge::parallelism::ParallelismSettings;
use crate::nodes::{Availability, ClassNode};
use crate::reason::{MissingField, ModelField};
use crate::supply::{Class, Runtime, RuntimeComponent, Supply, SupportedFormat, VersionOperator};
use crate::taint::Toleration;

/// Applies `change` to `demand` and `supply`.
pub(super) fn apply_change(demand: &mut Demand, supply: &mut Supply, change: &ProposedChange) {
    match change {
        ProposedChange::CorrectRuntimeName { to: name, .. } | ProposedChange::SetRuntimeName(name) => {
            demand.runtime = Some(name.clone());
        }
        ProposedChange::RemoveRuntimeName(_) => demand.runtime = None,
        ProposedChange::SetProtocol(protocol) => demand.protocol.clone_from(protocol),
        ProposedChange::CorrectClassName { .. }
        | ProposedChange::PreferClasses { .. }
        | ProposedChange::UseClass { .. }
        | ProposedChange::AllowClasses(_)
        | ProposedChange::AllowFamilies(_) => {
            demand.components.values_mut().for_each(|component| change_selector(component, change));
        }
        ProposedChange::RelaxCapability { source, capability } => {
            edit_capabilities(demand, supply, source, |required| change_capability(required, capability));
        }
        ProposedChange::RemoveNodeSelector { source, key, .. } => remove_node_selector(demand, supply, source, key),
        ProposedChange::AddToleration(taint) => {
            let toleration = Toleration::of_taint(taint);
            demand.components.values_mut().for_each(|component| component.tolerations.push(toleration.clone()));
        }
        ProposedChange::LowerRequest { resource, amount } => {
            demand.components.values_mut().for_each(|component| component.compute.set(resource, *amount));
        }
        ProposedChange::RemoveAffinity(source) => remove_affinity(demand, supply, source),
        ProposedChange::SetAcceleratorCount { source, per_node, nodes, .. } => {
            remove_accelerator_count(demand, supply, source);
            set_accelerator_count(demand, supply, source, *per_node, *nodes);
        }
        ProposedChange::SetNodes { source, nodes } => set_nodes(demand, supply, source, *nodes),
        ProposedChange::EnableRuntime(name) => edit_runtime(demand, supply, name, |runtime| runtime.disabled = false),
        ProposedChange::SupportClasses { runtime, classes } => edit_runtime(demand, supply, runtime, |runtime| {
            runtime.requirements.supported_classes.get_or_insert_default().extend(classes.iter().cloned());
        }),
        ProposedChange::AdaptRuntime { runtime, field, .. } => adapt_runtime_to_model(demand, supply, runtime, field),
        ProposedChange::AddLeaderAndWorker { runtime, .. } => {
            edit_runtime(demand, supply, runtime, enable_multi_node);
        }
        ProposedChange::EnableModel(_) => enable_model(&mut demand.model),
        ProposedChange::SetModelFields { fields, .. } => set_model_fields(&mut demand.model, fields),
        ProposedChange::Quantize(kind) => quantize(demand, supply, kind),
        ProposedChange::Uncordon { nodes } => edit_nodes(supply, nodes, |node| node.cordoned = false),
        ProposedChange::RepairNodes { nodes } => edit_nodes(supply, nodes, |node| node.not_ready = false),
        ProposedChange::AddNodes { class, nodes, per_node } => add_nodes(supply, class, *nodes, *per_node),
        ProposedChange::FreeAccelerators { class, count } => {
            edit_availability(supply, class, |availability| free_accelerators(availability, *count));
        }
        // The properties of the other model are unknown here; the caller repeats the decision with that model.
        ProposedChange::CorrectModelName { .. } | ProposedChange::SmallerModel { .. } => {}
    }
}

fn adapt_runtime_to_model(demand: &Demand, supply: &mut Supply, runtime: &str, field: &RuntimeField) {
    let Some(model) = demand.model.resolved() else { return };
    edit_runtime(demand, supply, runtime, |runtime| adapt_runtime(runtime, model, field));
}

fn enable_model(model: &mut ModelReference) {
    if let ModelReference::Disabled(disabled) = model {
        *model = ModelReference::Resolved(std::mem::take(disabled));
    }
}

fn set_model_fields(model: &mut ModelReference, fields: &[MissingField]) {
    let ModelReference::Resolved(model) = model else { return };
    fields.iter().for_each(|field| set_model_field(model, field));
}

fn change_selector(component: &mut ComponentDemand, change: &ProposedChange) {
    let selector = &mut component.selector;
    match change {
        ProposedChange::CorrectClassName { from, to, .. } => {
            selector.preferred.iter_mut().filter(|name| *name == from).for_each(|name| name.clone_from(to));
        }
        ProposedChange::PreferClasses { classes, .. } if !selector.preferred.is_empty() => {
            selector.preferred.extend(classes.iter().cloned());
        }
        ProposedChange::UseClass { class } => selector.preferred = vec![class.clone()],
        ProposedChange::AllowClasses(classes) => selector.excluded.retain(|name| !classes.contains(name)),
        ProposedChange::AllowFamilies(families) if !selector.families.is_empty() => {
            selector.families.extend(families.iter().cloned());
        }
        _ => {}
    }
}

/// Edits the required capabilities that `source` sets.
pub(super) fn edit_capabilities(
    demand: &mut Demand,
    supply: &mut Supply,
    source: &ConstraintSource,
    edit: impl Fn(&mut Capabilities),
) {
    match source {
        ConstraintSource::Runtime(name) => {
            edit_runtime(demand, supply, name, |runtime| edit(&mut runtime.requirements.required));
        }
        ConstraintSource::Selector | ConstraintSource::Service => {
            demand.components.values_mut().for_each(|component| edit(&mut component.selector.required));
        }
    }
}

/// Changes one required capability.
pub(super) fn change_capability(required: &mut Capabilities, change: &CapabilityChange) {
    match change {
        CapabilityChange::Memory(bytes) => required.memory = *bytes,
        CapabilityChange::MaxMemory(bytes) => required.max_memory = *bytes,
        CapabilityChange::ComputeCapability(version) => {
            required.compute_capability = version.as_ref().and_then(|version| version.parse().ok());
        }
        CapabilityChange::Features(names) => required.features.retain(|name| !names.contains(name)),
        CapabilityChange::Bandwidth(speed) => required.bandwidth = *speed,
        CapabilityChange::Performance { precision, tflops } => {
            let performance = &mut required.performance;
            let throughput = match *precision {
                "fp8" => &mut performance.fp8,
                "fp16" => &mut performance.fp16,
                "fp32" => &mut performance.fp32,
                "int8" => &mut performance.int8,
                _ => &mut performance.int4,
            };
            *throughput = *tflops;
        }
    }
}

fn remove_node_selector(demand: &mut Demand, supply: &mut Supply, source: &ConstraintSource, key: &str) {
    match source {
        ConstraintSource::Selector => demand.components.values_mut().for_each(|component| {
            component.selector.node_selector.remove(key);
        }),
        ConstraintSource::Service => demand.components.values_mut().for_each(|component| {
            component.node_selector.remove(key);
        }),
        ConstraintSource::Runtime(name) => edit_runtime_components(demand, supply, name, |component| {
            component.node_selector.remove(key);
        }),
    }
}

fn remove_affinity(demand: &mut Demand, supply: &mut Supply, source: &ConstraintSource) {
    match source {
        ConstraintSource::Selector | ConstraintSource::Service => {
            demand.components.values_mut().for_each(|component| component.affinity = None);
        }
        ConstraintSource::Runtime(name) => {
            edit_runtime_components(demand, supply, name, |component| component.affinities.clear());
        }
    }
}

/// Removes every field of `source` that sets the number of accelerators, except the numbers of pipeline stages and copies.
pub(super) fn remove_accelerator_count(demand: &mut Demand, supply: &mut Supply, source: &ConstraintSource) {
    match source {
        ConstraintSource::Selector | ConstraintSource::Service => {
            demand.components.values_mut().for_each(|component| {
                component.resources.clear();
                component.parallelism.remove_tensor();
                component.configurations.clear();
            });
        }
        ConstraintSource::Runtime(name) => edit_runtime(demand, supply, name, |runtime| {
            runtime.configurations.clear();
            runtime.formats.iter_mut().for_each(|format| format.configurations.clear());
            runtime.components.values_mut().for_each(|component| {
                component.resources.clear();
                component.parallelism.remove_tensor();
                component.configurations.clear();
            });
            // Classes must still be considered after the configurations are removed, even if only the configurations
            // required it.
            runtime.requirements.declared = true;
        }),
    }
}

fn set_accelerator_count(
    demand: &mut Demand,
    supply: &mut Supply,
    source: &ConstraintSource,
    per_node: u32,
    nodes: u32,
) {
    let (accelerators, nodes) = (per_node.saturating_mul(nodes), (nodes > 1).then_some(nodes));
    match source {
        ConstraintSource::Selector | ConstraintSource::Service => {
            demand.components.values_mut().for_each(|component| {
                set_tensor_parallelism(&mut component.parallelism, accelerators);
                component.nodes = nodes.or(component.nodes);
            });
        }
        ConstraintSource::Runtime(name) => edit_runtime_components(demand, supply, name, |component| {
            set_tensor_parallelism(&mut component.parallelism, accelerators);
            component.nodes = nodes.or(component.nodes);
        }),
    }
}

/// Divides `accelerators` by the stated pipeline stages and copies.
fn set_tensor_parallelism(parallelism: &mut ParallelismSettings, accelerators: u32) {
    let groups = parallelism.sizes(Origin::Service).tensor_groups();
    parallelism.set_tensor((accelerators / groups.max(1)).max(1));
}

fn set_nodes(demand: &mut Demand, supply: &mut Supply, source: &ConstraintSource, nodes: u32) {
    match source {
        ConstraintSource::Selector | ConstraintSource::Service => {
            let multi_node_components = demand.components.values_mut().filter(|component| component.nodes.is_some());
            multi_node_components.for_each(|component| component.nodes = Some(nodes));
        }
        ConstraintSource::Runtime(name) => edit_runtime_components(demand, supply, name, |component| {
            component.nodes = component.nodes.map(|_| nodes);
        }),
    }
}

/// Gives every component of the runtime a leader and workers.
pub(super) fn enable_multi_node(runtime: &mut Runtime) {
    for component in runtime.components.values_mut() {
        component.multi_node = true;
        component.nodes = None;
    }
}

/// Sets `field` of the runtime, in the format entries that do not match because of it.
pub(super) fn adapt_runtime(runtime: &mut Runtime, model: &Model, field: &RuntimeField) {
    match field {
        RuntimeField::Size { range, multi_node, .. } => {
            runtime.size = *range;
            if *multi_node {
                enable_multi_node(runtime);
            }
        }
        RuntimeField::Protocol(protocol) => {
            if runtime.protocols.is_empty() {
                runtime.protocols.push(DEFAULT_PROTOCOL.to_owned());
            }
            runtime.protocols.push(protocol.clone());
        }
        format_field => {
            let code = rejection_code(format_field);
            let is_rejected = |format: &&mut SupportedFormat| {
                compatibility::format_mismatch(model, format).is_some_and(|rejection| rejection.code() == code)
            };
            let rejected = runtime.formats.iter_mut().filter(is_rejected);
            rejected.for_each(|format| adapt_format(format, model, format_field));
        }
    }
}

fn adapt_format(format: &mut SupportedFormat, model: &Model, field: &RuntimeField) {
    match field {
        RuntimeField::Format(_) => format.format.clone_from(&model.format),
        RuntimeField::FormatVersion(_) => {
            if let (Some(offered), Some(required)) = (&mut format.format, &model.format) {
                offered.version.clone_from(&required.version);
                format.format_operator = VersionOperator::Equal;
            }
        }
        RuntimeField::Framework(_) => format.framework.clone_from(&model.framework),
        RuntimeField::FrameworkVersion(_) => {
            if let (Some(offered), Some(required)) = (&mut format.framework, &model.framework) {
                offered.version.clone_from(&required.version);
                format.framework_operator = VersionOperator::Equal;
            }
        }
        RuntimeField::Architecture(_) => format.architecture.clone_from(&model.architecture),
        RuntimeField::Quantization(_) => format.quantization.clone_from(&model.quantization),
        RuntimeField::Pipeline => format.pipeline.clone_from(&model.pipeline),
        RuntimeField::Size { .. } | RuntimeField::Protocol(_) => {}
    }
}

/// Returns the code of the rejection that `field` resolves.
fn rejection_code(field: &RuntimeField) -> &'static str {
    let code = match field {
        RuntimeField::Format(_) => code::runtime::FORMAT_MISMATCH,
        RuntimeField::FormatVersion(_) => code::runtime::FORMAT_VERSION_MISMATCH,
        RuntimeField::Framework(_) => code::runtime::FRAMEWORK_MISMATCH,
        RuntimeField::FrameworkVersion(_) => code::runtime::FRAMEWORK_VERSION_MISMATCH,
        RuntimeField::Architecture(_) => code::runtime::ARCHITECTURE_MISMATCH,
        RuntimeField::Quantization(_) => code::runtime::QUANTIZATION_MISMATCH,
        RuntimeField::Pipeline => code::runtime::PIPELINE_MISMATCH,
        RuntimeField::Size { .. } => code::runtime::SIZE_OUT_OF_RANGE,
        RuntimeField::Protocol(_) => code::runtime::PROTOCOL_UNSUPPORTED,
    };
    code.as_str()
}

fn set_model_field(model: &mut Model, missing: &MissingField) {
    let text = &missing.required;
    match missing.field {
        ModelField::Format => model.format.get_or_insert_default().name.clone_from(text),
        ModelField::FormatVersion => model.format.get_or_insert_default().version = text.parse().ok(),
        ModelField::Framework => model.framework.get_or_insert_default().name.clone_from(text),
        ModelField::FrameworkVersion => model.framework.get_or_insert_default().version = text.parse().ok(),
        ModelField::Architecture => model.architecture = Some(text.clone()),
    }
}

/// Quantizes the model, and the format entries without quantization, so that only the size of the weights changes.
fn quantize(demand: &mut Demand, supply: &mut Supply, kind: &str) {
    if let ModelReference::Resolved(model) = &mut demand.model {
        model.quantization = Some(kind.to_owned());
    }
    let is_unquantized = |format: &SupportedFormat| format.quantization.is_none();
    for runtime in supply.runtimes.iter_mut().filter(|runtime| runtime.formats.iter().any(is_unquantized)) {
        let formats = Arc::make_mut(runtime).formats.iter_mut();
        formats.filter(|format| is_unquantized(format)).for_each(|format| format.quantization = Some(kind.to_owned()));
    }
}

fn add_nodes(supply: &mut Supply, class: &str, nodes: u32, per_node: u32) {
    edit_availability(supply, class, |availability| {
        // The new nodes have no known labels, so they match any selector.
        let new_node = |index: u32| ClassNode {
            name: format!("new-{index}"),
            labels: None,
            total: per_node,
            free: per_node,
            ..ClassNode::default()
        };
        availability.nodes.extend((0..nodes.min(MAX_ADDED_NODES)).map(new_node));
    });
}

/// Maximum number of nodes that a remedy adds.
const MAX_ADDED_NODES: u32 = 64;

/// Frees `count` accelerators on schedulable nodes, starting with those that have the most free accelerators.
fn free_accelerators(availability: &mut Availability, count: u32) {
    let mut remaining = count;
    let mut nodes: Vec<&mut ClassNode> = availability.nodes.iter_mut().filter(|node| node.is_schedulable()).collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.free));
    for node in nodes {
        let freed = remaining.min(node.total.saturating_sub(node.free));
        node.free += freed;
        remaining -= freed;
    }
}

/// Edits the nodes with these names, in every class.
fn edit_nodes(supply: &mut Supply, names: &[String], edit: impl Fn(&mut ClassNode)) {
    let has_node = |class: &Arc<Class>| {
        class.availability.iter().flat_map(|known| &known.nodes).any(|node| names.contains(&node.name))
    };
    for class in supply.classes.iter_mut().filter(|class| has_node(class)) {
        let nodes = Arc::make_mut(class).availability.iter_mut().flat_map(|known| &mut known.nodes);
        nodes.filter(|node| names.contains(&node.name)).for_each(&edit);
    }
}

fn edit_availability(supply: &mut Supply, class: &str, edit: impl Fn(&mut Availability)) {
    for class in supply.classes.iter_mut().filter(|known| known.name == class) {
        edit(Arc::make_mut(class).availability.get_or_insert_default());
    }
}

/// Edits the runtimes named `name` that are visible to the service.
pub(super) fn edit_runtime(demand: &Demand, supply: &mut Supply, name: &str, mut edit: impl FnMut(&mut Runtime)) {
    for runtime in supply.runtimes.iter_mut().filter(|runtime| runtime.name == name && is_visible(demand, runtime)) {
        edit(Arc::make_mut(runtime));
    }
}

fn edit_runtime_components(demand: &Demand, supply: &mut Supply, name: &str, edit: impl Fn(&mut RuntimeComponent)) {
    edit_runtime(demand, supply, name, |runtime| runtime.components.values_mut().for_each(&edit));
}
