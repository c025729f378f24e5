//! Requirements of one service: the model, the runtime if the service names one, and the accelerators of each component.

use std::collections::{BTreeMap, BTreeSet};

use api::{ComputeCapability, Version};
use serde_json::Value;

use crate::component::Component;
use crate::compute_request::ReplicaRequests;
use crate::configuration::ClassConfiguration;
use crate::engine::EngineSettings;
use crate::merge::parallelism::ParallelismSettings;
use crate::model_architecture::ModelArchitecture;
use crate::reason::Warning;
use crate::role_placement::RolePlacements;
use crate::taint::Toleration;
use crate::task::ModelTask;

/// Requirements of one service.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub name: String,
    /// The model that the service names.
    pub model: ModelReference,
    /// `spec.runtime.name`; `None` selects a runtime automatically.
    pub runtime: Option<String>,
    /// Protocol of the clients, `openAI` by default.
    pub protocol: String,
    /// Whether the service has LoRA adapters: `spec.model.fineTunedWeights`.
    pub has_adapters: bool,
    /// Whether the engines run in dual pods, and must be able to sleep.
    pub uses_dual_pods: bool,
    /// Requirements of the components that use accelerators; the router is not one of them.
    pub components: BTreeMap<Component, ComponentDemand>,
    /// Whether the service sets `spec.router`.
    pub wants_router: bool,
    /// Whether the service sets an accelerator field, so that classes are considered for every runtime.
    pub uses_accelerators: bool,
    /// Warnings from reading the service, added to the decision's warnings.
    pub warnings: Vec<Warning>,
}

/// The model that a service names.
#[derive(Clone, Debug, Default)]
#[allow(clippy::large_enum_variant)] // one value per service, almost always `Resolved`
pub enum ModelReference {
    /// The service names no model: format, size and memory are not checked.
    #[default]
    Unspecified,
    /// No model has this name.
    NotFound {
        /// The name.
        name: String,
        /// An existing name that is similar.
        suggestion: Option<String>,
    },
    /// The model exists and is disabled.
    Disabled(Model),
    /// The model exists.
    Resolved(Model),
}

/// Properties of a model that runtimes and classes are matched against.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Name of the model.
    pub name: String,
    /// Storage format of the weights, such as `safetensors`.
    pub format: Option<NamedVersion>,
    /// Framework, such as `transformers`.
    pub framework: Option<NamedVersion>,
    /// Architecture, such as `LlamaForCausalLM`.
    pub architecture: Option<String>,
    /// Quantization, such as `fp8`.
    pub quantization: Option<String>,
    /// Number of parameters.
    pub parameters: Option<u64>,
    /// Whether the number of parameters is the one in the name, because the model does not set it.
    pub is_size_inferred: bool,
    /// `spec.diffusionPipeline`.
    pub pipeline: Option<Value>,
    /// Task in `spec.modelCapabilities`.
    pub task: Option<ModelTask>,
    /// Facts that determine the memory of the model.
    pub memory: ModelFacts,
}

/// Facts of a model that determine its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    /// Bytes of the files with the weights: `total_size` in `spec.additionalMetadata`.
    pub stored_bytes: Option<u64>,
    /// Dimensions of the model, from `spec.modelConfiguration`.
    pub architecture: Option<ModelArchitecture>,
    /// Quantization method in `spec.modelConfiguration`, with the bits of a weight if it states them.
    pub quantization: Option<String>,
    /// Weights that share a scale.
    pub group_size: Option<u32>,
    /// Attention layers that the quantization leaves in 16 bits.
    pub unquantized_attention: u64,
    /// Whether the checkpoint has scales for a KV cache in FP8, which engines use by default.
    pub has_fp8_kv_cache: bool,
    /// `spec.maxTokens`.
    pub max_tokens: Option<u64>,
}

/// Name of a format or framework with an optional version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedVersion {
    /// The name.
    pub name: String,
    /// The version, if set.
    pub version: Option<Version>,
}

/// Requirements of one component of a service.
#[derive(Clone, Debug, Default)]
pub struct ComponentDemand {
    /// Whether the service defines this component; otherwise the requirements apply if its runtime defines it.
    pub declared: bool,
    /// Constraints and policy for selecting the class.
    pub selector: ClassSelector,
    /// Quantity by extended resource name: the greater of request and limit.
    pub resources: BTreeMap<String, u32>,
    /// Parallelism that flags or environment variables state.
    pub parallelism: ParallelismSettings,
    /// Settings that determine the memory of the engine.
    pub engine: EngineSettings,
    /// CPU and memory of the containers.
    pub compute: ReplicaRequests,
    /// Tolerations of the Pods.
    pub tolerations: Vec<Toleration>,
    /// The vendor that the image of the component names.
    pub image_vendor: Option<&'static str>,
    /// `worker.size + 1` if the service sets leader and worker.
    pub nodes: Option<u32>,
    /// Whether the service sets leader and worker.
    pub multi_node: bool,
    /// `minReplicas`.
    pub min_replicas: Option<u32>,
    /// `maxReplicas`.
    pub max_replicas: Option<u32>,
    /// Node selector of the component, which has the highest precedence of all layers.
    pub node_selector: BTreeMap<String, String>,
    /// Affinity of the component.
    pub affinity: Option<Value>,
    /// How much of the engine container the service defines.
    pub custom_container: CustomContainer,
    /// `acceleratorConfigurations` of the component.
    pub configurations: Vec<ClassConfiguration>,
    /// Placement that applies only to the leader or only to the workers.
    pub roles: RolePlacements,
}

/// How much of an engine container the service defines itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CustomContainer {
    /// No image: a runtime is required.
    #[default]
    None,
    /// An image without command and arguments.
    ImageOnly,
    /// An image with a command or arguments.
    Complete,
}

/// How the class of a component is selected, merged from service, component and annotations.
#[derive(Clone, Debug, Default)]
pub struct ClassSelector {
    /// Allowed classes in order of preference; empty allows any class.
    pub preferred: Vec<String>,
    /// The field or annotation that lists the preferred classes.
    pub preference_source: PreferenceSource,
    /// Whether the first preferred class is selected even if another one has free capacity.
    pub wait_for_preferred: bool,
    /// Excluded classes.
    pub excluded: BTreeSet<String>,
    /// Allowed families (`hopper` or `nvidia-hopper`); empty allows any family.
    pub families: BTreeSet<String>,
    /// Required capabilities.
    pub required: Capabilities,
    /// `constraints.preferredPrecisions`: classes that compute an earlier one rank higher.
    pub precisions: Vec<String>,
    /// Policy that ranks eligible classes.
    pub ranking: RankingPolicy,
    /// `acceleratorSelector.nodeSelector`: filters classes, and is a placement layer between runtime and component.
    pub node_selector: BTreeMap<String, String>,
    /// Cost threshold in US dollars per replica and hour (`ome.io/cost-threshold`). More expensive classes rank lower;
    /// none is rejected.
    pub cost_threshold: Option<f64>,
}

/// The field or annotation that lists the preferred classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreferenceSource {
    /// `spec.acceleratorSelector` of the service.
    #[default]
    Selector,
    /// `acceleratorOverride` of the component.
    Override,
    /// The annotation `ome.io/accelerator-class`.
    Annotation,
}

/// Policy that ranks classes after preference and free capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankingPolicy {
    /// Cost and performance.
    #[default]
    Balanced,
    /// Performance.
    Performance,
    /// Cost.
    Cost,
    /// Upstream policy `BestFit`: the least memory that suffices.
    BestFit,
    /// Upstream policy `FirstAvailable`: the order of the runtime's list.
    FirstAvailable,
}

/// Required capabilities of a class; `None` requires nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capabilities {
    /// Minimum bytes per accelerator.
    pub memory: Option<u64>,
    /// Maximum bytes per accelerator (`maxMemory` of the deployed API).
    pub max_memory: Option<u64>,
    /// Minimum compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// Required features in lower case.
    pub features: BTreeSet<String>,
    /// Minimum memory bandwidth in GB/s.
    pub bandwidth: Option<f64>,
    /// Minimum throughput.
    pub performance: Performance,
}

/// Dense throughput: TFLOPS for floating point, TOPS for integers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Performance {
    /// FP8.
    pub fp8: Option<f64>,
    /// FP16.
    pub fp16: Option<f64>,
    /// FP32.
    pub fp32: Option<f64>,
    /// INT8.
    pub int8: Option<f64>,
    /// INT4.
    pub int4: Option<f64>,
}

// === impl ModelReference ===

impl ModelReference {
    /// Returns the model if it exists and is enabled.
    #[must_use]
    pub fn resolved(&self) -> Option<&Model> {
        match self {
            Self::Resolved(model) => Some(model),
            Self::Unspecified | Self::NotFound { .. } | Self::Disabled(_) => None,
        }
    }
}

// === impl PreferenceSource ===

impl PreferenceSource {
    /// Returns the field path or annotation key for messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Selector => "spec.acceleratorSelector.preferredClasses",
            Self::Override => "acceleratorOverride.preferredClasses",
            Self::Annotation => "annotation ome.io/accelerator-class",
        }
    }
}

// === impl RankingPolicy ===

impl RankingPolicy {
    /// Returns the name of the policy in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Performance => "performance",
            Self::Cost => "cost",
            Self::BestFit => "BestFit",
            Self::FirstAvailable => "FirstAvailable",
        }
    }
}

// === impl Capabilities ===

impl Capabilities {
    /// Returns capabilities that satisfy both: the stricter value of each, and the features of both (ACC-65).
    #[must_use]
    pub fn combine(&self, other: &Self) -> Self {
        let compute_capability =
            self.compute_capability.iter().chain(&other.compute_capability).reduce(|a, b| if a >= b { a } else { b });
        Self {
            memory: self.memory.max(other.memory),
            max_memory: self.max_memory.into_iter().chain(other.max_memory).min(),
            compute_capability: compute_capability.cloned(),
            features: self.features.union(&other.features).cloned().collect(),
            bandwidth: max_value(self.bandwidth, other.bandwidth),
            performance: self.performance.combine(&other.performance),
        }
    }
}

// === impl Performance ===

impl Performance {
    fn combine(&self, other: &Self) -> Self {
        Self {
            fp8: max_value(self.fp8, other.fp8),
            fp16: max_value(self.fp16, other.fp16),
            fp32: max_value(self.fp32, other.fp32),
            int8: max_value(self.int8, other.int8),
            int4: max_value(self.int4, other.int4),
        }
    }

    /// Returns the throughput of each precision by name, in a fixed order.
    #[must_use]
    pub fn by_precision(&self) -> [(&'static str, Option<f64>); 5] {
        [("fp8", self.fp8), ("fp16", self.fp16), ("fp32", self.fp32), ("int8", self.int8), ("int4", self.int4)]
    }
}

fn max_value(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}
