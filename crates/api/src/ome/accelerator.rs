//! Accelerator fields of services and runtimes: the specified fields and those of upstream OME.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AcceleratorCapabilities;
use crate::openapi;

/// Accelerators that a service or one of its components may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorSelector {
    /// Accelerator classes in order of preference; only these are considered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub preferred_classes: Vec<String>,
    /// Whether to wait for the first preferred class if another one has free accelerators; false if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_preferred: Option<bool>,
    /// Accelerator classes that must not be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub excluded_classes: Vec<String>,
    /// Capabilities that the selected accelerator must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_capabilities: Option<AcceleratorCapabilities>,
    /// Optimization goal; `balanced` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<SelectionStrategy>,
    /// Labels that nodes must have; classes without such nodes are not eligible.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Upstream OME field: name of one class, equivalent to a single preferred class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator_class: Option<String>,
    /// Upstream OME field: limits on eligible classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<AcceleratorConstraints>,
    /// Upstream OME field: selection policy, which overrides the default strategy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SelectionPolicy>,
}

/// Optimization goal of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SelectionStrategy {
    /// Prefer the class with the highest performance.
    Performance,
    /// Prefer the class with the lowest cost.
    Cost,
    /// Balance performance and cost.
    #[default]
    Balanced,
}

/// Selection policy of upstream OME.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SelectionPolicy {
    /// Select the class that fits the model best.
    BestFit,
    /// Select the class with the lowest cost.
    Cheapest,
    /// Select the class with the highest performance.
    MostCapable,
    /// Select the first class with free accelerators.
    FirstAvailable,
}

/// Limits on eligible classes, as in upstream OME. Memory is in GiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorConstraints {
    /// Minimum memory, in GiB.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_memory: Option<i64>,
    /// Maximum memory, in GiB.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<i64>,
    /// Minimum half-precision throughput, in TFLOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "minComputePerformanceTFLOPS", skip_serializing_if = "Option::is_none")]
    pub min_compute_performance_tflops: Option<i64>,
    /// Minimum compute capability, such as `8.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::compute_capability")]
    pub min_architecture_version: Option<String>,
    /// Features that the accelerator must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_features: Vec<String>,
    /// Accelerator classes that must not be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub excluded_classes: Vec<String>,
    /// Accepted families, such as `hopper`; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub architecture_families: Vec<String>,
    /// Preferred number formats, such as `fp8`: classes that compute an earlier one rank higher.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_precisions: Vec<String>,
}

/// Accelerator requirements of a runtime, and the classes that it prefers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorRequirements {
    /// Accelerator classes that the runtime supports; any if empty. Upstream OME name: `acceleratorClasses`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub supported_classes: Vec<String>,
    /// Capabilities that every accelerator must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_capabilities: Option<AcceleratorCapabilities>,
    /// Classes that the runtime prefers, with optional conditions.
    #[schemars(length(max = 128))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preference_order: Vec<AcceleratorPreference>,
    /// Upstream OME name of `supportedClasses`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub accelerator_classes: Vec<String>,
    /// Upstream OME field: minimum memory, in GiB.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_memory: Option<i64>,
    /// Upstream OME field: minimum half-precision throughput, in TFLOPS.
    #[schemars(range(min = 0))]
    #[serde(rename = "minComputePerformanceTFLOPS", skip_serializing_if = "Option::is_none")]
    pub min_compute_performance_tflops: Option<i64>,
    /// Upstream OME field: minimum compute capability, such as `8.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "openapi::compute_capability")]
    pub min_architecture_version: Option<String>,
    /// Upstream OME field: features that the accelerator must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_features: Vec<String>,
    /// Upstream OME field: preferred number formats, such as `fp8`: classes that compute an earlier one rank higher.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_precisions: Vec<String>,
}

/// Preference of a runtime for one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorPreference {
    /// Name of an AcceleratorClass.
    #[schemars(length(min = 1, max = 253))]
    pub class: String,
    /// Score from 0 to 100; higher scores are preferred.
    #[schemars(range(min = 0, max = 100))]
    pub score: i32,
    /// Conditions of the preference, such as `modelSize: "<30B"` or `requestSize: "<2048"` (prompt tokens). Items are ORed,
    /// keys within an item are ANDed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::preference_conditions")]
    pub conditions: Vec<BTreeMap<String, String>>,
}

/// Configuration that applies if the given class is selected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorConfiguration {
    /// The class that the configuration applies to.
    pub selector: AcceleratorConfigSelector,
    /// Kubernetes EnvVars of the runner container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "openapi::env_vars")]
    pub env: Vec<Value>,
    /// Kubernetes ResourceRequirements of the runner container.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::resources")]
    pub resources: Option<Value>,
    /// Overrides of the runner container: image, args, env, resources, mounts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::object")]
    #[schemars(schema_with = "openapi::container")]
    pub runner: Option<Value>,
}

/// The class that an [`AcceleratorConfiguration`] applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorConfigSelector {
    /// Name of an AcceleratorClass.
    #[schemars(length(min = 1, max = 253))]
    pub accelerator_class: String,
}

/// Configuration of one model format for one class, as in upstream OME (`supportedModelFormats[].acceleratorConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorModelConfig {
    /// Minimum memory in GiB per billion parameters; accepted without effect.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_memory_per_billion_params: Option<i64>,
    /// Parallelism on this class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor_parallelism_override: Option<ParallelismOverride>,
    /// Additional engine arguments on this class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtime_args_override: Vec<String>,
    /// Environment variables of the engine on this class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment_override: BTreeMap<String, String>,
}

/// Degrees of parallelism.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParallelismOverride {
    /// Degree of tensor parallelism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor_parallel_size: Option<i64>,
    /// Degree of pipeline parallelism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline_parallel_size: Option<i64>,
    /// Degree of data parallelism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_parallel_size: Option<i64>,
}

// === impl AcceleratorSelector ===

impl AcceleratorSelector {
    /// Returns the preferred classes in order: `preferredClasses`, otherwise the upstream `acceleratorClass`.
    pub fn class_preferences(&self) -> Vec<&str> {
        if self.preferred_classes.is_empty() {
            self.accelerator_class.as_deref().into_iter().collect()
        } else {
            self.preferred_classes.iter().map(String::as_str).collect()
        }
    }

    /// Returns the excluded classes of both `excludedClasses` and `constraints`.
    pub fn all_excluded_classes(&self) -> impl Iterator<Item = &str> {
        let constraints = self.constraints.iter().flat_map(|c| &c.excluded_classes);
        self.excluded_classes.iter().chain(constraints).map(String::as_str)
    }
}

// === impl AcceleratorRequirements ===

impl AcceleratorRequirements {
    /// Returns the classes of both `supportedClasses` and `acceleratorClasses`, in order.
    pub fn all_supported_classes(&self) -> impl Iterator<Item = &str> {
        self.supported_classes.iter().chain(&self.accelerator_classes).map(String::as_str)
    }
}
