//! Applies one change to what is decided with.

use std::sync::Arc;

use super::change::{Change, Field, Layer, Requirement};
use crate::demand::{Capabilities, ComponentDemand, Demand, Model, ModelDemand};
use crate::inventory::{Availability, ClassNode};
use crate::reason::{ModelField, Unstated};
use crate::supply::{Format, Runtime, Supply};
use crate::{compatibility, visible};

pub(super) fn apply(demand: &mut Demand, supply: &mut Supply, change: &Change) {
    match change {
        Change::RuntimeName { to: name, .. } | Change::NameRuntime(name) => demand.runtime = Some(name.clone()),
        Change::DropRuntimeName(_) => demand.runtime = None,
        Change::SpeakProtocol(protocol) => demand.protocol.clone_from(protocol),
        Change::ClassName { .. }
        | Change::PreferClasses { .. }
        | Change::UseClass { .. }
        | Change::AllowClasses(_)
        | Change::AllowFamilies(_) => demand.components.values_mut().for_each(|component| prefer(component, change)),
        Change::Require { layer, requirement } => {
            each_requirement(demand, supply, layer, |required| require(required, requirement));
        }
        Change::DropNodeSelector { layer, key, .. } => drop_node_selector(demand, supply, layer, key),
        Change::DropAffinity(layer) => drop_affinity(demand, supply, layer),
        Change::SetCount { layer, per_node, nodes } => {
            free_count(demand, supply, layer);
            fix_count(demand, supply, layer, *per_node, *nodes);
        }
        Change::SetNodes { layer, nodes } => set_nodes(demand, supply, layer, *nodes),
        Change::EnableRuntime(name) => each_runtime(demand, supply, name, |runtime| runtime.disabled = false),
        Change::SupportClasses { runtime, classes } => each_runtime(demand, supply, runtime, |runtime| {
            runtime.requirements.classes.get_or_insert_default().extend(classes.iter().cloned());
        }),
        Change::Adapt { runtime, field, .. } => adapt_to_model(demand, supply, runtime, field),
        Change::AddLeaderAndWorker { runtime, .. } => each_runtime(demand, supply, runtime, several_nodes),
        Change::EnableModel(_) => enable(&mut demand.model),
        Change::StateInModel { fields, .. } => state_all(&mut demand.model, fields),
        Change::Quantize(kind) => quantize(demand, supply, kind),
        Change::AddNodes { class, nodes, per_node } => add_nodes(supply, class, *nodes, *per_node),
        Change::FreeAccelerators { class, count } => each_class(supply, class, |nodes| free(nodes, *count)),
        // Another model has other facts: whoever knows them decides again.
        Change::ModelName { .. } | Change::SmallerModel { .. } => {}
    }
}

fn adapt_to_model(demand: &Demand, supply: &mut Supply, runtime: &str, field: &Field) {
    let Some(model) = demand.model.known() else { return };
    each_runtime(demand, supply, runtime, |runtime| adapt(runtime, model, field));
}

fn enable(model: &mut ModelDemand) {
    if let ModelDemand::Disabled(known) = model {
        *model = ModelDemand::Known(std::mem::take(known));
    }
}

fn state_all(model: &mut ModelDemand, fields: &[Unstated]) {
    let ModelDemand::Known(model) = model else { return };
    fields.iter().for_each(|unstated| state(model, unstated));
}

fn prefer(component: &mut ComponentDemand, change: &Change) {
    let selector = &mut component.selector;
    match change {
        Change::ClassName { from, to, .. } => {
            selector.preferred.iter_mut().filter(|name| *name == from).for_each(|name| name.clone_from(to));
        }
        Change::PreferClasses { classes, .. } if !selector.preferred.is_empty() => {
            selector.preferred.extend(classes.iter().cloned());
        }
        Change::UseClass { class } => selector.preferred = vec![class.clone()],
        Change::AllowClasses(classes) => selector.excluded.retain(|name| !classes.contains(name)),
        Change::AllowFamilies(families) if !selector.families.is_empty() => {
            selector.families.extend(families.iter().cloned());
        }
        _ => {}
    }
}

pub(super) fn each_requirement(
    demand: &mut Demand,
    supply: &mut Supply,
    layer: &Layer,
    edit: impl Fn(&mut Capabilities),
) {
    match layer {
        Layer::Runtime(name) => each_runtime(demand, supply, name, |runtime| edit(&mut runtime.requirements.required)),
        Layer::Selector | Layer::Service => {
            demand.components.values_mut().for_each(|component| edit(&mut component.selector.required));
        }
    }
}

pub(super) fn require(required: &mut Capabilities, requirement: &Requirement) {
    match requirement {
        Requirement::Memory(bytes) => required.memory = *bytes,
        Requirement::MaxMemory(bytes) => required.max_memory = *bytes,
        Requirement::Compute(version) => {
            required.compute = version.as_ref().and_then(|version| version.parse().ok());
        }
        Requirement::Features(names) => required.features.retain(|name| !names.contains(name)),
        Requirement::Bandwidth(speed) => required.bandwidth = *speed,
        Requirement::Performance { precision, tflops } => {
            let performance = &mut required.performance;
            let of = match *precision {
                "fp8" => &mut performance.fp8,
                "fp16" => &mut performance.fp16,
                "fp32" => &mut performance.fp32,
                "int8" => &mut performance.int8,
                _ => &mut performance.int4,
            };
            *of = *tflops;
        }
    }
}

fn drop_node_selector(demand: &mut Demand, supply: &mut Supply, layer: &Layer, key: &str) {
    match layer {
        Layer::Selector => demand.components.values_mut().for_each(|one| {
            one.selector.node_selector.remove(key);
        }),
        Layer::Service => demand.components.values_mut().for_each(|one| {
            one.node_selector.remove(key);
        }),
        Layer::Runtime(name) => each_runtime(demand, supply, name, |runtime| {
            runtime.components.values_mut().for_each(|one| {
                one.node_selector.remove(key);
            });
        }),
    }
}

fn drop_affinity(demand: &mut Demand, supply: &mut Supply, layer: &Layer) {
    match layer {
        Layer::Selector | Layer::Service => demand.components.values_mut().for_each(|one| one.affinity = None),
        Layer::Runtime(name) => each_runtime(demand, supply, name, |runtime| {
            runtime.components.values_mut().for_each(|one| one.affinities.clear());
        }),
    }
}

/// Nothing of the layer fixes the number of accelerators any more.
pub(super) fn free_count(demand: &mut Demand, supply: &mut Supply, layer: &Layer) {
    match layer {
        Layer::Selector | Layer::Service => demand.components.values_mut().for_each(|one| {
            one.resources.clear();
            one.parallelism = None;
            one.configurations.clear();
        }),
        Layer::Runtime(name) => each_runtime(demand, supply, name, |runtime| {
            runtime.configurations.clear();
            runtime.formats.iter_mut().for_each(|entry| entry.configurations.clear());
            runtime.components.values_mut().for_each(|one| {
                one.resources.clear();
                one.parallelism = None;
                one.configurations.clear();
            });
            // Tuning is a use of an accelerator field: the step still runs.
            runtime.requirements.stated = true;
        }),
    }
}

/// The layer fixes this number of accelerators.
fn fix_count(demand: &mut Demand, supply: &mut Supply, layer: &Layer, per_node: u32, nodes: u32) {
    let (parallelism, nodes) = (Some(per_node.saturating_mul(nodes)), (nodes > 1).then_some(nodes));
    match layer {
        Layer::Selector | Layer::Service => demand.components.values_mut().for_each(|one| {
            one.parallelism = parallelism;
            one.nodes = nodes.or(one.nodes);
        }),
        Layer::Runtime(name) => each_runtime(demand, supply, name, |runtime| {
            runtime.components.values_mut().for_each(|one| {
                one.parallelism = parallelism;
                one.nodes = nodes.or(one.nodes);
            });
        }),
    }
}

fn set_nodes(demand: &mut Demand, supply: &mut Supply, layer: &Layer, nodes: u32) {
    match layer {
        Layer::Selector | Layer::Service => {
            demand.components.values_mut().filter(|one| one.nodes.is_some()).for_each(|one| one.nodes = Some(nodes));
        }
        Layer::Runtime(name) => each_runtime(demand, supply, name, |runtime| {
            runtime.components.values_mut().filter(|one| one.nodes.is_some()).for_each(|one| one.nodes = Some(nodes));
        }),
    }
}

pub(super) fn several_nodes(runtime: &mut Runtime) {
    for component in runtime.components.values_mut() {
        component.multi_node = true;
        component.nodes = None;
    }
}

/// Makes the runtime match where `field` kept it from matching, and only there.
pub(super) fn adapt(runtime: &mut Runtime, model: &Model, field: &Field) {
    match field {
        Field::Size { range, several_nodes: more, .. } => {
            runtime.size = *range;
            if *more {
                several_nodes(runtime);
            }
        }
        Field::Protocol(protocol) => {
            if runtime.protocols.is_empty() {
                runtime.protocols.push(compatibility::DEFAULT_PROTOCOL.to_owned());
            }
            runtime.protocols.push(protocol.clone());
        }
        of_entry => {
            let code = of_entry.code();
            let failing = |entry: &&mut Format| {
                compatibility::mismatch(model, entry).is_some_and(|rejection| rejection.code() == code)
            };
            runtime.formats.iter_mut().filter(failing).for_each(|entry| adapt_entry(entry, model, of_entry));
        }
    }
}

fn adapt_entry(entry: &mut Format, model: &Model, field: &Field) {
    match field {
        Field::Format(_) => entry.format.clone_from(&model.format),
        Field::FormatVersion(_) => {
            if let (Some(offered), Some(wanted)) = (&mut entry.format, &model.format) {
                offered.version.clone_from(&wanted.version);
                entry.format_operator = crate::supply::VersionOperator::Equal;
            }
        }
        Field::Framework(_) => entry.framework.clone_from(&model.framework),
        Field::FrameworkVersion(_) => {
            if let (Some(offered), Some(wanted)) = (&mut entry.framework, &model.framework) {
                offered.version.clone_from(&wanted.version);
                entry.framework_operator = crate::supply::VersionOperator::Equal;
            }
        }
        Field::Architecture(_) => entry.architecture.clone_from(&model.architecture),
        Field::Quantization(_) => entry.quantization.clone_from(&model.quantization),
        Field::Pipeline => entry.pipeline.clone_from(&model.pipeline),
        Field::Size { .. } | Field::Protocol(_) => {}
    }
}

impl Field {
    /// The rejection that the field lifts.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Format(_) => "FormatMismatch",
            Self::FormatVersion(_) => "FormatVersionMismatch",
            Self::Framework(_) => "FrameworkMismatch",
            Self::FrameworkVersion(_) => "FrameworkVersionMismatch",
            Self::Architecture(_) => "ArchitectureMismatch",
            Self::Quantization(_) => "QuantizationMismatch",
            Self::Pipeline => "PipelineMismatch",
            Self::Size { .. } => "SizeOutOfRange",
            Self::Protocol(_) => "ProtocolUnsupported",
        }
    }
}

/// The model says what it left unstated.
fn state(model: &mut Model, unstated: &Unstated) {
    let text = &unstated.wanted;
    match unstated.field {
        ModelField::Format => model.format.get_or_insert_default().name.clone_from(text),
        ModelField::FormatVersion => model.format.get_or_insert_default().version = text.parse().ok(),
        ModelField::Framework => model.framework.get_or_insert_default().name.clone_from(text),
        ModelField::FrameworkVersion => model.framework.get_or_insert_default().version = text.parse().ok(),
        ModelField::Architecture => model.architecture = Some(text.clone()),
    }
}

/// A quantized variant needs a runtime that says so; only what the weights change is asked here.
fn quantize(demand: &mut Demand, supply: &mut Supply, kind: &str) {
    if let ModelDemand::Known(model) = &mut demand.model {
        model.quantization = Some(kind.to_owned());
    }
    let plain = |runtime: &Runtime| runtime.formats.iter().any(|entry| entry.quantization.is_none());
    for runtime in supply.runtimes.iter_mut().filter(|runtime| plain(runtime)) {
        let entries = Arc::make_mut(runtime).formats.iter_mut();
        entries
            .filter(|entry| entry.quantization.is_none())
            .for_each(|entry| entry.quantization = Some(kind.to_owned()));
    }
}

fn add_nodes(supply: &mut Supply, class: &str, nodes: u32, per_node: u32) {
    each_class(supply, class, |known| {
        // Whatever a new node must be labelled with, it can be.
        let new = |index: u32| ClassNode {
            name: format!("new-{index}"),
            labels: None,
            schedulable: true,
            total: per_node,
            free: per_node,
        };
        known.nodes.extend((0..nodes.min(MOST_NODES)).map(new));
    });
}

/// Nodes that a remedy would add; more is no remedy.
const MOST_NODES: u32 = 64;

/// `count` more are free, on the nodes that are nearest to being free.
fn free(availability: &mut Availability, count: u32) {
    let mut left = count;
    let mut nodes: Vec<&mut ClassNode> = availability.nodes.iter_mut().collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.free));
    for node in nodes {
        let freed = left.min(node.total.saturating_sub(node.free));
        node.free += freed;
        left -= freed;
    }
}

fn each_class(supply: &mut Supply, name: &str, edit: impl Fn(&mut Availability)) {
    for class in supply.classes.iter_mut().filter(|class| class.name == name) {
        edit(Arc::make_mut(class).availability.get_or_insert_default());
    }
}

pub(super) fn each_runtime(demand: &Demand, supply: &mut Supply, name: &str, mut edit: impl FnMut(&mut Runtime)) {
    for runtime in supply.runtimes.iter_mut().filter(|runtime| runtime.name == name && visible(demand, runtime)) {
        edit(Arc::make_mut(runtime));
    }
}
