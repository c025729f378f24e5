//! Merging of what runtime, accelerator configuration and service say: later layers win, every value keeps the name of
//! who stated it, and warnings say where somebody lost.

pub(crate) mod affinity;
pub(crate) mod args;
pub(crate) mod env;
mod flags;
pub(crate) mod origin;
pub(crate) mod placement;
pub(crate) mod resources;

use serde_json::Value;

pub use crate::configuration::ClassConfiguration;

impl ClassConfiguration {
    /// Accelerators of one replica that its arguments or environment state.
    #[must_use]
    pub fn parallelism(&self) -> Option<u32> {
        let args = self.args();
        args::args_parallelism(args.iter().map(String::as_str)).or_else(|| env::env_parallelism(&self.env))
    }
}

/// The configuration for `class` out of `layers`, weakest first: runtime spec, matching format entry, component of the
/// runtime, component of the service. Entries for other classes do not count.
#[must_use]
pub fn merge_configurations(class: &str, layers: &[&[ClassConfiguration]]) -> ClassConfiguration {
    let mut merged = ClassConfiguration { class: class.to_owned(), ..ClassConfiguration::default() };
    for layer in layers.iter().flat_map(|layer| layer.iter()).filter(|layer| layer.class == class) {
        let args = args::override_args(&merged.args(), &layer.args());
        let runner_env = layer.runner.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
        merged.env = env::overlay_env(&env::overlay_env(&merged.env, &runner_env), &layer.env);
        merged.resources =
            resources::overlay_resources(&merged.resources, layer.runner.get("resources").unwrap_or(&Value::Null));
        merged.resources = resources::overlay_resources(&merged.resources, &layer.resources);
        for (field, value) in &layer.runner {
            let merged = merged.runner.entry(field.clone()).or_insert(Value::Null);
            *merged = if field == "volumeMounts" { mounts(merged, value) } else { value.clone() };
        }
        if !args.is_empty() {
            merged.runner.insert("args".to_owned(), args.into());
        }
    }
    merged.runner.remove("env");
    merged.runner.remove("resources");
    merged
}

/// Mounts at other paths stay.
fn mounts(lower: &Value, upper: &Value) -> Value {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let upper = items(upper);
    let mut merged = items(lower);
    merged.retain(|mount| upper.iter().all(|other| other["mountPath"] != mount["mountPath"]));
    merged.extend(upper);
    Value::Array(merged)
}
