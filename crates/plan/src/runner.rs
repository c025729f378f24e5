//! The engine container and its placement: runtime < accelerator configuration < service (selection.md, Merging).

use std::collections::{BTreeMap, BTreeSet};

use api::ome::Component;
use decide::demand::ComponentDemand;
use decide::fit::Shape;
use decide::merge::args::{self, Line};
use decide::merge::{Configuration, env, placement, resources};
use decide::reason::Warning;
use decide::supply::{Class, RuntimeComponent};
use serde_json::{Map, Value, json};

use crate::pod;

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

/// Fields of a container that merge by rules of their own.
const RULED: [&str; 4] = ["command", "args", "env", "resources"];

/// The merged container, before names, ports and probes are completed.
pub fn container(layers: &Layers<'_>, warnings: &mut Vec<Warning>) -> Value {
    let (runtime, service) = (runner(layers.runtime), runner(layers.service));
    let nothing = Configuration::default();
    let tuning = layers.accelerators.map_or(&nothing, |accelerators| &accelerators.configuration);
    let mut merged = Map::new();
    for layer in [&runtime, &tuning.runner, &service] {
        pod::overlay_map(&mut merged, &unruled(layer));
    }
    let (line, told) = args::merge(&line(&runtime), &line(&service), &tuning.args());
    warnings.extend(told);
    let list = |words: Vec<String>| Value::Array(words.into_iter().map(Value::from).collect());
    let variables = env::merge(&items(&runtime, "env"), &tuning.env, &items(&service, "env"));
    let fields = [
        ("command", list(line.command)),
        ("args", list(line.args)),
        ("env", Value::Array(variables)),
        ("resources", resources_of(layers, &runtime, &service)),
    ];
    let stated = |value: &Value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty());
    merged
        .extend(fields.into_iter().filter(|(_, value)| stated(value)).map(|(field, value)| (field.to_owned(), value)));
    Value::Object(merged)
}

/// Node selector and affinity of the component's pods, as the fields of a PodSpec.
pub fn placement(layers: &Layers<'_>, warnings: &mut Vec<Warning>) -> Map<String, Value> {
    // Without a class the same layers merge, with nothing at the bottom.
    let none = Class::default();
    let class = layers.accelerators.map_or(&none, |accelerators| &accelerators.class);
    let placement = placement::merge(class, layers.offer, layers.demand);
    warnings.extend(placement.warnings);
    let mut fields = Map::new();
    if !placement.node_selector.is_empty() {
        fields.insert("nodeSelector".to_owned(), json!(placement.node_selector));
    }
    fields.extend(placement.affinity.map(|affinity| ("affinity".to_owned(), affinity)));
    fields
}

/// Accelerators × nodes; 1 for engines without accelerators, so that `--tp-size $(PARALLELISM_SIZE)` is a number.
pub fn parallelism(container: &Value, accelerators: Option<&Accelerators>) -> u32 {
    match accelerators {
        Some(accelerators) => accelerators.shape.per_node.saturating_mul(accelerators.shape.nodes),
        None => requested(&container["resources"]).map_or(1, |(_, count)| count),
    }
}

/// The accelerators that a `resources` object asks for under a name that device plugins use: name and whole units.
pub fn requested(resources: &Value) -> Option<(String, u32)> {
    let units: BTreeMap<String, u32> = decide::inventory::extended_resources(resources);
    let known = |name: &str| decide::supply::KNOWN_RESOURCES.contains(&name);
    units.into_iter().find(|(name, count)| known(name) && *count > 0)
}

/// What both state, per name the service's; then the greater of that and the tuning, and the class's own resource.
fn resources_of(layers: &Layers<'_>, runtime: &Map<String, Value>, service: &Map<String, Value>) -> Value {
    let stated = |runner: &Map<String, Value>| runner.get("resources").cloned().unwrap_or(Value::Null);
    let component = |layer: &Component| layer.resources.clone().unwrap_or(Value::Null);
    let sources = [component(layers.runtime), stated(runtime), component(layers.service), stated(service)];
    let base = sources.iter().fold(Value::Null, |merged, upper| resources::overlay(&merged, upper));
    match layers.accelerators {
        Some(chosen) => {
            resources::merge(&base, &chosen.configuration.resources, &chosen.class, chosen.shape, &chosen.names)
        }
        None => base,
    }
}

fn runner(component: &Component) -> Map<String, Value> {
    component.runner.as_ref().and_then(Value::as_object).cloned().unwrap_or_default()
}

fn unruled(runner: &Map<String, Value>) -> Map<String, Value> {
    let kept = runner.iter().filter(|(field, _)| !RULED.contains(&field.as_str()));
    kept.map(|(field, value)| (field.clone(), value.clone())).collect()
}

fn line(runner: &Map<String, Value>) -> Line {
    let words = |field| items(runner, field).iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
    Line { command: words("command"), args: words("args") }
}

fn items(runner: &Map<String, Value>, field: &str) -> Vec<Value> {
    runner.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}
