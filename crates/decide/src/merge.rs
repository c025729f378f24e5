//! Merging of what runtime, accelerator configuration and service say: later layers win, every value keeps the name of
//! who stated it, and warnings say where somebody lost.

pub mod affinity;
pub mod args;
pub mod env;
mod flags;
pub mod origin;
pub mod placement;
pub mod resources;

use serde_json::Value;

pub use crate::configuration::Configuration;

impl Configuration {
    /// Accelerators of one replica that its arguments or environment state.
    #[must_use]
    pub fn parallelism(&self) -> Option<u32> {
        let args = self.args();
        args::parallelism(args.iter().map(String::as_str)).or_else(|| env::parallelism(&self.env))
    }
}

/// The configuration for `class` out of `layers`, weakest first: runtime spec, matching format entry, component of the
/// runtime, component of the service. Entries for other classes do not count.
#[must_use]
pub fn configuration(class: &str, layers: &[&[Configuration]]) -> Configuration {
    let mut merged = Configuration { class: class.to_owned(), ..Configuration::default() };
    for layer in layers.iter().flat_map(|layer| layer.iter()).filter(|layer| layer.class == class) {
        let args = args::replace(&merged.args(), &layer.args());
        let runner_env = layer.runner.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
        merged.env = env::overlay(&env::overlay(&merged.env, &runner_env), &layer.env);
        merged.resources = resources::overlay(&merged.resources, layer.runner.get("resources").unwrap_or(&Value::Null));
        merged.resources = resources::overlay(&merged.resources, &layer.resources);
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
