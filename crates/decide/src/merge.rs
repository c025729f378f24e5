//! Merges runtime, accelerator configuration and service. Stronger layers take precedence; every value records its origin and
//! the values that it overrides.

pub(crate) mod affinity;
pub(crate) mod args;
pub(crate) mod env;
mod flags;
pub(crate) mod origin;
pub(crate) mod parallelism;
pub(crate) mod placement;
pub(crate) mod resources;
mod segment;

use serde_json::Value;

use crate::configuration::ClassConfiguration;

/// Merges the configurations for `class` of all `layers`, weakest first: runtime, matching format entry, the runtime's
/// component, the service's component. Ignores configurations for other classes.
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
            *merged = if field == "volumeMounts" { merge_volume_mounts(merged, value) } else { value.clone() };
        }
        if !args.is_empty() {
            merged.runner.insert("args".to_owned(), args.into());
        }
    }
    merged.runner.remove("env");
    merged.runner.remove("resources");
    merged
}

/// Adds the volume mounts of `upper`, which replace mounts of `lower` at the same path.
fn merge_volume_mounts(lower: &Value, upper: &Value) -> Value {
    let mounts = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let upper = mounts(upper);
    let mut merged = mounts(lower);
    merged.retain(|mount| upper.iter().all(|replacement| replacement["mountPath"] != mount["mountPath"]));
    merged.extend(upper);
    Value::Array(merged)
}
