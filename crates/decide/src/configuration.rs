//! Engine configuration for one accelerator class.

use serde_json::{Map, Value};

use crate::merge::parallelism::ParallelismSettings;

/// Engine configuration for one class: an entry of `acceleratorConfigurations`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassConfiguration {
    /// Name of the class.
    pub class: String,
    /// Environment variables (`EnvVar`).
    pub env: Vec<Value>,
    /// `ResourceRequirements`; null if unset.
    pub resources: Value,
    /// Container fields: image, command, args, env, resources, volumeMounts.
    pub runner: Map<String, Value>,
}

impl ClassConfiguration {
    /// Returns the arguments of the configuration.
    #[must_use]
    pub fn args(&self) -> Vec<String> {
        self.string_list("args")
    }

    /// Returns the string list `field`, such as `command` or `args`.
    #[must_use]
    pub fn string_list(&self, field: &str) -> Vec<String> {
        let items = self.runner.get(field).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    }

    /// Returns what the configuration states about parallelism.
    pub(crate) fn parallelism(&self) -> ParallelismSettings {
        let runner_env = self.runner.get("env").and_then(Value::as_array).into_iter().flatten();
        let env: Vec<Value> = runner_env.chain(&self.env).cloned().collect();
        ParallelismSettings::new(&self.string_list("command"), &self.args(), &env)
    }
}
