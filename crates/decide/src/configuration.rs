//! Tuning of an engine for one accelerator class.

use serde_json::{Map, Value};

/// Tuning for one class (`acceleratorConfigurations[]`), from any of the places where it may stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassConfiguration {
    pub class: String,
    /// `EnvVar`s.
    pub env: Vec<Value>,
    /// `ResourceRequirements`; null if unstated.
    pub resources: Value,
    /// Part of a container: image, command, args, env, resources, volumeMounts.
    pub runner: Map<String, Value>,
}

impl ClassConfiguration {
    /// Arguments that the configuration adds to the engine's.
    #[must_use]
    pub fn args(&self) -> Vec<String> {
        self.words("args")
    }

    /// `command` or `args`.
    #[must_use]
    pub fn words(&self, field: &str) -> Vec<String> {
        let words = self.runner.get(field).and_then(Value::as_array).into_iter().flatten();
        words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
    }
}
