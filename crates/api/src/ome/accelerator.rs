//! What services and runtimes may say about accelerators: the specified fields and the deployed ones.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AcceleratorCapabilities;
use crate::openapi;

/// Which accelerators a service or one of its components wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorSelector {
    /// Accelerator classes in order of preference; only these are considered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub preferred_classes: Vec<String>,
    /// Accelerator classes that must not be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub excluded_classes: Vec<String>,
    /// Capabilities every chosen accelerator must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_capabilities: Option<AcceleratorCapabilities>,
    /// What to optimise for; `balanced` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<SelectionStrategy>,
    /// Restricts nodes, and with them the classes that have such nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Deployed upstream field: one class by name, the same as one preferred class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator_class: Option<String>,
    /// Deployed upstream field: limits on eligible classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<AcceleratorConstraints>,
    /// Deployed upstream field: outranks the default strategy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SelectionPolicy>,
}

impl AcceleratorSelector {
    /// The classes asked for, in order: `preferredClasses`, else the upstream `acceleratorClass`.
    pub fn wanted_classes(&self) -> Vec<&str> {
        if self.preferred_classes.is_empty() {
            self.accelerator_class.as_deref().into_iter().collect()
        } else {
            self.preferred_classes.iter().map(String::as_str).collect()
        }
    }

    /// The classes refused, wherever they were written.
    pub fn refused_classes(&self) -> impl Iterator<Item = &str> {
        let constraints = self.constraints.iter().flat_map(|c| &c.excluded_classes);
        self.excluded_classes.iter().chain(constraints).map(String::as_str)
    }
}

/// What a service optimises for (seed 000).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SelectionStrategy {
    Performance,
    Cost,
    #[default]
    Balanced,
}

/// Deployed upstream's way to say what to optimise for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SelectionPolicy {
    BestFit,
    Cheapest,
    MostCapable,
    FirstAvailable,
}

/// Deployed upstream's limits on eligible classes. Memory is in GiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorConstraints {
    /// Least memory, GiB.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_memory: Option<i64>,
    /// Most memory, GiB.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<i64>,
    /// Least half-precision throughput, TFLOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "minComputePerformanceTFLOPS", skip_serializing_if = "Option::is_none")]
    pub min_compute_performance_tflops: Option<i64>,
    /// Least compute capability, such as `8.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::capability")]
    pub min_architecture_version: Option<String>,
    /// Features that the accelerator must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_features: Vec<String>,
    /// Classes that must not be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub excluded_classes: Vec<String>,
    /// Accepted families, such as `hopper`; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub architecture_families: Vec<String>,
    /// Kept, without effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_precisions: Vec<String>,
}

/// What a runtime needs of an accelerator and which classes it prefers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorRequirements {
    /// Accelerator classes this runtime works on; empty: any. Deployed upstream: `acceleratorClasses`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub supported_classes: Vec<String>,
    /// Capabilities that any accelerator must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_capabilities: Option<AcceleratorCapabilities>,
    /// Classes this runtime prefers, with the conditions under which it does.
    #[schemars(length(max = 128))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preference_order: Vec<AcceleratorPreference>,
    /// Deployed upstream name of `supportedClasses`; read through [`Self::classes`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub accelerator_classes: Vec<String>,
    /// Deployed upstream field, GiB.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_memory: Option<i64>,
    /// Deployed upstream field: least half-precision throughput, TFLOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "minComputePerformanceTFLOPS", skip_serializing_if = "Option::is_none")]
    pub min_compute_performance_tflops: Option<i64>,
    /// Deployed upstream field: least compute capability, such as `8.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::capability")]
    pub min_architecture_version: Option<String>,
    /// Deployed upstream field: features that the accelerator must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_features: Vec<String>,
    /// Deployed upstream field, without effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_precisions: Vec<String>,
}

impl AcceleratorRequirements {
    /// The supported classes in the order written, under either name.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.supported_classes.iter().chain(&self.accelerator_classes).map(String::as_str)
    }
}

/// How much a runtime likes one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorPreference {
    /// Name of an AcceleratorClass.
    #[schemars(length(min = 1, max = 253))]
    pub class: String,
    /// Higher is better, 0 to 100.
    #[schemars(range(min = 0, max = 100))]
    pub score: i32,
    /// Items are ORed, keys inside one item ANDed: `modelSize: "<30B"`, `requestSize: "<2048"` (prompt tokens).
    /// Kept as text, so that an unknown key is reported and not dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::preference_conditions")]
    pub conditions: Vec<BTreeMap<String, String>>,
}

/// Tuning that applies when the selected class matches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorConfiguration {
    /// Which class this tuning is for.
    pub selector: AcceleratorConfigSelector,
    /// Kubernetes EnvVars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::variables")]
    pub env: Vec<Value>,
    /// Kubernetes ResourceRequirements.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::resources")]
    pub resources: Option<Value>,
    /// Overrides of the runner container: image, args, env, resources, mounts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::container")]
    pub runner: Option<Value>,
}

/// Which class an [`AcceleratorConfiguration`] is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorConfigSelector {
    /// Name of an AcceleratorClass.
    #[schemars(length(min = 1, max = 253))]
    pub accelerator_class: String,
}

/// Deployed upstream's tuning of one model format for one class (`supportedModelFormats[].acceleratorConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorModelConfig {
    /// GiB per billion parameters; kept, without effect.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_memory_per_billion_params: Option<i64>,
    /// Sizes of the parallel dimensions on this class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor_parallelism_override: Option<ParallelismOverride>,
    /// Arguments for the engine on this class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtime_args_override: Vec<String>,
    /// Environment of the engine on this class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment_override: BTreeMap<String, String>,
}

/// Sizes of the parallel dimensions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParallelismOverride {
    /// Tensor parallelism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor_parallel_size: Option<i64>,
    /// Pipeline parallelism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline_parallel_size: Option<i64>,
    /// Data parallelism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_parallel_size: Option<i64>,
}
