//! Merges the container and the placement of a component. Precedence: runtime < accelerator configuration < service
//! (selection.md, Merging).

use std::collections::BTreeSet;

use api::ome::Component;
use decide::{
    Class, ClassConfiguration, CommandLine, ComponentDemand, MergedCommandLine, MergedEnv, Origin, Parallelism,
    ParallelismSettings, ReplicaShape, RuntimeComponent, Setting, SettingField, Sources, StatedCount, StatedSize,
    Warning,
};
use serde_json::{Map, Value, json};

use crate::accelerator_request::requested_accelerators;
use crate::code;
use crate::plan_error::PlanError;
use crate::pod;
use crate::port_override::follow_port_flag;

/// Sources of one component, in order of increasing precedence.
#[derive(Debug, Clone)]
pub(crate) struct Layers<'a> {
    pub runtime: &'a Component,
    pub service: &'a Component,
    /// Component of the runtime, as parsed for the decision.
    pub runtime_component: &'a RuntimeComponent,
    pub demand: &'a ComponentDemand,
    /// Selected accelerators; `None` if the resources of the runtime apply.
    pub accelerators: Option<&'a Accelerators>,
}

/// Accelerators selected for one component.
#[derive(Debug, Clone)]
pub(crate) struct Accelerators {
    pub class: Class,
    pub shape: ReplicaShape,
    /// Merged accelerator configuration of the class.
    pub configuration: ClassConfiguration,
    /// Extended resource names of accelerators.
    pub resource_names: BTreeSet<String>,
}

/// A merged container and the origins of its settings.
#[derive(Debug, Clone)]
pub(crate) struct MergedContainer {
    pub container: Value,
    pub settings: Vec<Setting>,
}

/// Node selector and affinity as fields of a PodSpec, and the origins of their settings.
#[derive(Debug, Clone)]
pub(crate) struct MergedPlacement {
    pub fields: Map<String, Value>,
    pub settings: Vec<Setting>,
}

/// Container fields with their own merge rules.
const SEPARATELY_MERGED_FIELDS: [&str; 4] = ["command", "args", "env", "resources"];

/// Merges the container. The caller completes name, ports and probes.
pub(crate) fn merge_container(layers: &Layers<'_>, warnings: &mut Vec<Warning>) -> MergedContainer {
    let (mut runtime, service) = (runner(layers.runtime), runner(layers.service));
    let empty = ClassConfiguration::default();
    let class_configuration = layers.accelerators.map_or(&empty, |accelerators| &accelerators.configuration);
    let command_lines = Sources {
        runtime: command_line(&runtime),
        configuration: configuration_command_line(class_configuration),
        service: command_line(&service),
    };
    let mut merged_command = decide::merge_args(&command_lines);
    // Seed 000, Story 8, scenario 1: if accelerators are selected, warn about a command in the service, even without a
    // configuration for the class.
    if let (Some(accelerators), true, true) =
        (layers.accelerators, !command_lines.service.command.is_empty(), merged_command.warnings.is_empty())
    {
        let message = format!(
            "The service sets its own command; arguments of accelerator configurations for {} are not applied",
            accelerators.class.name
        );
        warnings.push(Warning::new(decide::code::warning::ACCELERATOR_ARGS_NOT_APPLIED, message));
    }
    warnings.append(&mut merged_command.warnings);
    let CommandLine { command, args } = &merged_command.command_line;
    follow_port_flag(&mut runtime, &json!({"command": command, "args": args}));
    let (mut merged, mut settings) = merge_other_fields(&Sources {
        runtime: &runtime,
        configuration: &class_configuration.runner,
        service: &service,
    });
    let (runtime_env, service_env) = (items(&runtime, "env"), items(&service, "env"));
    let mut variables = decide::merge_env(&Sources {
        runtime: &runtime_env,
        configuration: class_configuration.env.as_slice(),
        service: &service_env,
    });
    warnings.extend(replace_tensor_parallelism(layers, &mut merged_command, &mut variables));
    settings.extend(merged_command.settings);
    settings.extend(variables.settings);
    let resources = resource_sources(layers, &runtime, &service);
    warnings.extend(parallelism_mismatch(layers, &merged_command.command_line, &variables.variables));
    let allocation = layers.accelerators.map(Accelerators::accelerator_allocation);
    let quantities = decide::merge_resources(&resources, allocation.as_ref());
    settings.extend(quantities.settings);
    let list = |words: Vec<String>| Value::Array(words.into_iter().map(Value::from).collect());
    let fields = [
        ("command", list(merged_command.command_line.command)),
        ("args", list(merged_command.command_line.args)),
        ("env", Value::Array(variables.variables)),
        ("resources", quantities.resources),
    ];
    let is_set = |value: &Value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty());
    merged
        .extend(fields.into_iter().filter(|(_, value)| is_set(value)).map(|(field, value)| (field.to_owned(), value)));
    MergedContainer { container: Value::Object(merged), settings }
}

/// Merges node selectors and affinities of a component.
///
/// # Errors
/// Node affinities with too many combinations.
pub(crate) fn merge_placement(layers: &Layers<'_>, warnings: &mut Vec<Warning>) -> Result<MergedPlacement, PlanError> {
    // Without accelerators, merge with an empty class.
    let empty_class = Class::default();
    let class = layers.accelerators.map_or(&empty_class, |accelerators| &accelerators.class);
    let placement = decide::merge_placement(class, layers.runtime_component, layers.demand);
    warnings.extend(placement.warnings);
    let mut fields = Map::new();
    if !placement.node_selector.is_empty() {
        fields.insert("nodeSelector".to_owned(), json!(placement.node_selector));
    }
    let affinity = placement.affinity.to_pod_affinity();
    let affinity = affinity.map_err(|error| {
        PlanError::new(code::error::AFFINITY_TOO_LARGE, format!("{error}; reduce the number of node selector terms"))
    })?;
    fields.extend(affinity.map(|affinity| ("affinity".to_owned(), affinity)));
    Ok(MergedPlacement { fields, settings: placement.settings })
}

/// Returns the accelerators of a replica that are left to tensor parallelism: those of one pipeline stage of one copy of the
/// model. At least 1, so that `--tp-size $(PARALLELISM_SIZE)` is valid without accelerators.
pub(crate) fn tensor_parallelism(container: &Value, accelerators: Option<&Accelerators>, nodes: u32) -> u32 {
    let accelerators = match accelerators {
        Some(accelerators) => accelerators.shape.accelerators(),
        None => requested_accelerators(&container["resources"]).map_or(1, |(_, count)| count.saturating_mul(nodes)),
    };
    let parallelism = ParallelismSettings::of_container(container).sizes(Origin::Ostler);
    (accelerators / parallelism.tensor_groups().max(1)).max(1)
}

// === impl Layers ===

impl Layers<'_> {
    /// Whether the service, or its configuration for the class, requests accelerators by a resource.
    fn service_requests_accelerators(&self, names: &BTreeSet<String>) -> bool {
        let is_accelerator = |(name, count): (&String, &u32)| names.contains(name) && *count > 0;
        let mut configured = self.demand.configurations.iter().map(|configuration| &configuration.resources);
        self.demand.resources.iter().any(is_accelerator)
            || configured.any(|resources| decide::extended_resources(resources).iter().any(is_accelerator))
    }
}

// === impl Accelerators ===

impl Accelerators {
    fn accelerator_allocation(&self) -> decide::AcceleratorAllocation<'_> {
        decide::AcceleratorAllocation { class: &self.class, shape: self.shape, names: &self.resource_names }
    }
}

/// Replaces the size of tensor parallelism that the runtime or a configuration states if the model requires more accelerators,
/// or if the service states another number. Returns a warning if the service does; the decision warns about the model.
fn replace_tensor_parallelism(
    layers: &Layers<'_>,
    line: &mut MergedCommandLine,
    variables: &mut MergedEnv,
) -> Option<Warning> {
    let accelerators = layers.accelerators?;
    let is_requested = layers.service_requests_accelerators(&accelerators.resource_names);
    let configured = configured_parallelism(&line.command_line, &variables.variables);
    let requested = accelerators.shape.accelerators();
    let size = (requested / configured.tensor_groups().max(1)).max(1);
    let tensor = configured.tensor.filter(|tensor| size != tensor.size && !tensor.in_script)?;
    let settings = line.settings.iter_mut().chain(&mut variables.settings);
    let is_weak = |setting: &&mut Setting| setting.field == *tensor.field && setting.origin < Origin::Service;
    let setting = settings.into_iter().find(is_weak)?;
    setting.override_with(size.to_string(), Origin::Ostler);
    match &*tensor.field {
        SettingField::Env(name) => decide::replace_variable(&mut variables.variables, name, &size.to_string()),
        _ => {
            let CommandLine { command, args } = &mut line.command_line;
            decide::replace_tensor_parallel_size(command, size);
            decide::replace_tensor_parallel_size(args, size);
        }
    }
    let (adds, origin) = (size > tensor.size, setting.overridden.first().map_or(Origin::Runtime, |value| value.origin));
    let stated = StatedCount::new([StatedSize { origin, ..tensor }])?;
    let noun = if requested == 1 { "accelerator" } else { "accelerators" };
    let message = format!(
        "The service requests {requested} {noun} per replica, although {stated}; the engine is started with {size}"
    );
    let code =
        if adds { decide::code::warning::ACCELERATORS_ADDED } else { decide::code::warning::PARALLELISM_MISMATCH };
    (is_requested || !adds).then(|| Warning::new(code, message))
}

/// Returns the parallelism that the merged container states.
fn configured_parallelism(line: &CommandLine, variables: &[Value]) -> Parallelism {
    ParallelismSettings::new(&line.command, &line.args, variables).sizes(Origin::Ostler)
}

/// Warns if the engine's parallelism differs from the accelerators that the Pods request. This happens only if the service
/// requests accelerators by resource name; otherwise the parallelism determines the request.
fn parallelism_mismatch(layers: &Layers<'_>, line: &CommandLine, variables: &[Value]) -> Option<Warning> {
    let requested = layers.accelerators?.shape.accelerators();
    let configured = configured_parallelism(line, variables);
    // The decision warns about a script.
    let is_script = configured.tensor.as_ref().is_some_and(|tensor| tensor.in_script);
    let configured = configured.accelerators().filter(|_| !is_script)?;
    (configured != requested).then(|| {
        let message = format!(
            "The engine is configured for {configured} accelerator{}, but its Pods request {requested}",
            if configured == 1 { "" } else { "s" }
        );
        Warning::new(decide::code::warning::PARALLELISM_MISMATCH, message)
    })
}

/// Returns the resources of each source. Resources of the runner take precedence over those of the component.
fn resource_sources(layers: &Layers<'_>, runtime: &Map<String, Value>, service: &Map<String, Value>) -> Sources<Value> {
    let resources = |component: &Component, runner: &Map<String, Value>| {
        let runner_resources = runner.get("resources").cloned().unwrap_or(Value::Null);
        decide::overlay_resources(&component.resources.clone().unwrap_or(Value::Null), &runner_resources)
    };
    Sources {
        runtime: resources(layers.runtime, runtime),
        configuration: layers
            .accelerators
            .map(|accelerators| accelerators.configuration.resources.clone())
            .unwrap_or_default(),
        service: resources(layers.service, service),
    }
}

fn runner(component: &Component) -> Map<String, Value> {
    component.runner.as_ref().and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Merges all other fields (image, ports, probes, volume mounts), including unknown ones.
fn merge_other_fields(sources: &Sources<&Map<String, Value>>) -> (Map<String, Value>, Vec<Setting>) {
    let (mut merged, mut settings) = (Map::new(), Vec::<Setting>::new());
    for (origin, layer) in sources.in_order() {
        let entries = layer.iter().filter(|(field, _)| !SEPARATELY_MERGED_FIELDS.contains(&field.as_str()));
        let fields: Map<String, Value> = entries.map(|(field, value)| (field.clone(), value.clone())).collect();
        pod::overlay_map(&mut merged, &fields);
        for field in fields.keys() {
            record_setting(&mut settings, field, &merged[field], origin);
        }
    }
    (merged, settings)
}

/// Records the value of a field and its origin; a value of a previous layer becomes overridden.
fn record_setting(settings: &mut Vec<Setting>, field: &str, value: &Value, origin: Origin) {
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let field = SettingField::named(field);
    match settings.iter_mut().find(|setting| setting.field == field) {
        Some(setting) => setting.override_with(value, origin),
        None => settings.push(Setting::new(field, value, origin)),
    }
}

fn command_line(runner: &Map<String, Value>) -> CommandLine {
    let words = |field| items(runner, field).iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
    CommandLine { command: words("command"), args: words("args") }
}

fn configuration_command_line(configuration: &ClassConfiguration) -> CommandLine {
    CommandLine { command: configuration.string_list("command"), args: configuration.args() }
}

fn items(runner: &Map<String, Value>, field: &str) -> Vec<Value> {
    runner.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}
