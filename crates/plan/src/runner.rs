//! A component's container and its placement: runtime < accelerator configuration < service (selection.md, Merging).

use std::collections::{BTreeMap, BTreeSet};

use api::ome::Component;
use decide::demand::ComponentDemand;
use decide::fit::Shape;
use decide::merge::args::{self, Line};
use decide::merge::origin::{Origin, Setting, Sources};
use decide::merge::{Configuration, env, placement, resources};
use decide::reason::Warning;
use decide::supply::{Class, RuntimeComponent};
use serde_json::{Map, Value, json};

use crate::code;
use crate::pod;
use crate::topology::Refusal;

/// The three sources of one component.
#[derive(Debug, Clone)]
pub struct Layers<'a> {
    pub runtime: &'a Component,
    pub service: &'a Component,
    /// Facts that `decide` read from the same two.
    pub offer: &'a RuntimeComponent,
    pub demand: &'a ComponentDemand,
    /// None where the runtime's own resources stand.
    pub accelerators: Option<&'a Accelerators>,
}

/// The accelerators that were decided for one component.
#[derive(Debug, Clone)]
pub struct Accelerators {
    pub class: Class,
    pub shape: Shape,
    /// Tuning for the class, all layers merged.
    pub configuration: Configuration,
    /// Resource names that stand for accelerators.
    pub names: BTreeSet<String>,
}

/// A merged container, and who stated what of it.
#[derive(Debug, Clone)]
pub struct Merged {
    pub container: Value,
    pub settings: Vec<Setting>,
}

/// Node selector and affinity as the fields of a PodSpec, and who stated what of them.
#[derive(Debug, Clone)]
pub struct Placed {
    pub fields: Map<String, Value>,
    pub settings: Vec<Setting>,
}

/// Fields of a container that merge by rules of their own.
const RULED: [&str; 4] = ["command", "args", "env", "resources"];

/// The merged container, before names, ports and probes are completed.
pub fn container(layers: &Layers<'_>, warnings: &mut Vec<Warning>) -> Merged {
    let (runtime, service) = (runner(layers.runtime), runner(layers.service));
    let nothing = Configuration::default();
    let tuning = layers.accelerators.map_or(&nothing, |accelerators| &accelerators.configuration);
    let (mut merged, mut settings) =
        unruled(&Sources { runtime: &runtime, configuration: &tuning.runner, service: &service });
    let lines = Sources { runtime: line(&runtime), configuration: tuned_line(tuning), service: line(&service) };
    let line = args::merge(&lines);
    // Seed 000, Story 8, scenario 1: whoever brings a command and selects accelerators is told, tuned or not.
    if let (Some(chosen), true, true) =
        (layers.accelerators, !lines.service.command.is_empty(), line.warnings.is_empty())
    {
        let message = format!(
            "the service states a command of its own; arguments of accelerator configurations for {} are not applied to it",
            chosen.class.name
        );
        warnings.push(Warning::new(decide::code::warning::ACCELERATOR_ARGS_NOT_APPLIED, message));
    }
    warnings.extend(line.warnings);
    settings.extend(line.settings);
    let (of_runtime, of_service) = (items(&runtime, "env"), items(&service, "env"));
    let variables =
        env::merge(&Sources { runtime: &of_runtime, configuration: tuning.env.as_slice(), service: &of_service });
    settings.extend(variables.settings);
    let stated = stated_resources(layers, &runtime, &service);
    warnings.extend(disagreement(layers, &line.line, &variables.variables));
    let grant = layers.accelerators.map(Accelerators::grant);
    let quantities = resources::merge(&stated, grant.as_ref());
    settings.extend(quantities.settings);
    let list = |words: Vec<String>| Value::Array(words.into_iter().map(Value::from).collect());
    let fields = [
        ("command", list(line.line.command)),
        ("args", list(line.line.args)),
        ("env", Value::Array(variables.variables)),
        ("resources", quantities.resources),
    ];
    let stated = |value: &Value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty());
    merged
        .extend(fields.into_iter().filter(|(_, value)| stated(value)).map(|(field, value)| (field.to_owned(), value)));
    Merged { container: Value::Object(merged), settings }
}

/// Where the component's pods may run.
///
/// # Errors
/// Affinities that cannot be written into a Pod.
pub fn placement(layers: &Layers<'_>, warnings: &mut Vec<Warning>) -> Result<Placed, Refusal> {
    // Without a class the same layers merge, with nothing at the bottom.
    let none = Class::default();
    let class = layers.accelerators.map_or(&none, |accelerators| &accelerators.class);
    let placement = placement::merge(class, layers.offer, layers.demand);
    warnings.extend(placement.warnings);
    let mut fields = Map::new();
    if !placement.node_selector.is_empty() {
        fields.insert("nodeSelector".to_owned(), json!(placement.node_selector));
    }
    let affinity = placement.affinity.written();
    let affinity = affinity.map_err(|error| {
        Refusal::new(code::refusal::AFFINITY_TOO_LARGE, format!("{error}; state fewer alternatives"))
    })?;
    fields.extend(affinity.map(|affinity| ("affinity".to_owned(), affinity)));
    Ok(Placed { fields, settings: placement.settings })
}

/// Accelerators × nodes; 1 for engines without accelerators, so that `--tp-size $(PARALLELISM_SIZE)` is a number.
pub fn parallelism(container: &Value, accelerators: Option<&Accelerators>, nodes: u32) -> u32 {
    match accelerators {
        Some(accelerators) => accelerators.shape.accelerators(),
        None => requested(&container["resources"]).map_or(1, |(_, count)| count.saturating_mul(nodes)),
    }
}

/// The accelerators that a `resources` object asks for under a name that device plugins use: name and whole units.
pub fn requested(resources: &Value) -> Option<(String, u32)> {
    let units: BTreeMap<String, u32> = decide::inventory::extended_resources(resources);
    let known = |name: &str| decide::supply::KNOWN_RESOURCES.contains(&name);
    units.into_iter().find(|(name, count)| known(name) && *count > 0)
}

impl Accelerators {
    fn grant(&self) -> resources::Grant<'_> {
        resources::Grant { class: &self.class, shape: self.shape, names: &self.names }
    }
}

/// What the engine is told against what its pods request. Where no number is given by resources the parallel sizes decide
/// it, so the two differ only where the service asks for accelerators by name.
fn disagreement(layers: &Layers<'_>, line: &Line, variables: &[Value]) -> Option<Warning> {
    let requested = layers.accelerators?.shape.accelerators();
    let words = line.command.iter().chain(&line.args).map(String::as_str);
    let told = args::parallelism(words).or_else(|| env::parallelism(variables))?;
    (told != requested).then(|| {
        let message = format!("the engine is told to use {told} accelerators, its pods request {requested}");
        Warning::new(decide::code::warning::PARALLELISM_MISMATCH, message)
    })
}

/// What each source asks for; the runner's own resources are nearer to it than the component's.
fn stated_resources(layers: &Layers<'_>, runtime: &Map<String, Value>, service: &Map<String, Value>) -> Sources<Value> {
    let stated = |component: &Component, runner: &Map<String, Value>| {
        let of_runner = runner.get("resources").cloned().unwrap_or(Value::Null);
        resources::overlay(&component.resources.clone().unwrap_or(Value::Null), &of_runner)
    };
    Sources {
        runtime: stated(layers.runtime, runtime),
        configuration: layers.accelerators.map(|chosen| chosen.configuration.resources.clone()).unwrap_or_default(),
        service: stated(layers.service, service),
    }
}

fn runner(component: &Component) -> Map<String, Value> {
    component.runner.as_ref().and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Every other field: image, ports, probes, mounts; and fields newer than ostler.
fn unruled(sources: &Sources<&Map<String, Value>>) -> (Map<String, Value>, Vec<Setting>) {
    let (mut merged, mut settings) = (Map::new(), Vec::<Setting>::new());
    for (origin, layer) in sources.in_order() {
        let kept = layer.iter().filter(|(field, _)| !RULED.contains(&field.as_str()));
        let kept: Map<String, Value> = kept.map(|(field, value)| (field.clone(), value.clone())).collect();
        pod::overlay_map(&mut merged, &kept);
        for field in kept.keys() {
            told(&mut settings, field, &merged[field], origin);
        }
    }
    (merged, settings)
}

fn told(settings: &mut Vec<Setting>, field: &str, value: &Value, origin: Origin) {
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match settings.iter_mut().find(|setting| setting.field == field) {
        Some(known) => known.override_with(value, origin),
        None => settings.push(Setting::new(field, value, origin)),
    }
}

fn line(runner: &Map<String, Value>) -> Line {
    let words = |field| items(runner, field).iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
    Line { command: words("command"), args: words("args") }
}

fn tuned_line(tuning: &Configuration) -> Line {
    Line { command: tuning.words("command"), args: tuning.args() }
}

fn items(runner: &Map<String, Value>, field: &str) -> Vec<Value> {
    runner.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}
