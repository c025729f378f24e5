//! What one service asks for: the model's facts, the runtime if it names one, and per component what its accelerators must be.

use std::collections::{BTreeMap, BTreeSet};

use api::{ComputeCapability, Version};
use serde_json::Value;

/// Everything that `decide` needs to know of one service.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    pub namespace: String,
    pub name: String,
    pub model: ModelReference,
    /// `spec.runtime.name`; absent means automatic selection.
    pub runtime: Option<String>,
    /// Protocol that clients will speak (`openAI` unless stated).
    pub protocol: String,
    /// The components that get accelerators, with what the whole service asks for; never the router.
    pub components: BTreeMap<Component, ComponentDemand>,
    /// The service itself uses an accelerator field, so classes are considered whatever the runtime says.
    pub uses_accelerators: bool,
    /// Remarks from reading the service that belong into the decision's warnings.
    pub warnings: Vec<crate::reason::Warning>,
}

/// The model as the service refers to it.
#[derive(Clone, Debug, Default)]
#[allow(clippy::large_enum_variant)] // one per service, and nearly always known
pub enum ModelReference {
    /// No model is named: format, size and fit are not checked.
    #[default]
    Unspecified,
    /// A model is named that nobody defines; `near` is one that may have been meant.
    NotFound {
        name: String,
        suggestion: Option<String>,
    },
    /// The model is switched off.
    Disabled(Model),
    Resolved(Model),
}

impl ModelReference {
    #[must_use]
    pub fn resolved(&self) -> Option<&Model> {
        match self {
            Self::Resolved(model) => Some(model),
            Self::Unspecified | Self::NotFound { .. } | Self::Disabled(_) => None,
        }
    }
}

/// Facts of a model that runtimes and accelerators are matched against.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub name: String,
    /// `None` if the model does not say how its weights are stored.
    pub format: Option<NamedVersion>,
    pub framework: Option<NamedVersion>,
    pub architecture: Option<String>,
    pub quantization: Option<String>,
    /// Number of parameters (a count, not bytes).
    pub parameters: Option<u64>,
    pub pipeline: Option<Value>,
}

/// A format or framework: a name and, if stated, a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedVersion {
    pub name: String,
    pub version: Option<Version>,
}

/// A part of a service that runs on accelerators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    Engine,
    Decoder,
}

impl Component {
    pub const ALL: [Self; 2] = [Self::Engine, Self::Decoder];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Decoder => "decoder",
        }
    }
}

/// What one component of the service states itself.
#[derive(Clone, Debug, Default)]
pub struct ComponentDemand {
    /// The service has this component; otherwise it asks for what follows where its runtime has it.
    pub declared: bool,
    pub selector: ClassSelector,
    /// Whole units per extended resource name, the greater of request and limit.
    pub resources: BTreeMap<String, u32>,
    /// Tensor × pipeline parallelism stated by a flag or an environment variable of the service.
    pub parallelism: Option<u32>,
    /// `worker.size + 1` if the service states leader and worker.
    pub nodes: Option<u32>,
    /// The service states leader and worker.
    pub multi_node: bool,
    pub min_replicas: Option<u32>,
    pub max_replicas: Option<u32>,
    /// The component's own placement, strongest of all layers.
    pub node_selector: BTreeMap<String, String>,
    pub affinity: Option<Value>,
    pub custom_container: CustomContainer,
    pub configurations: Vec<crate::configuration::ClassConfiguration>,
    /// What it says for leader and workers alone.
    pub roles: crate::role_placement::RolePlacements,
}

/// How much of a container the service states itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CustomContainer {
    /// No image: a runtime is needed.
    #[default]
    None,
    /// An image, started as it comes.
    ImageOnly,
    /// An image and how to start it.
    Complete,
}

/// How a component's class is to be chosen, all layers above the runtime already merged.
#[derive(Clone, Debug, Default)]
pub struct ClassSelector {
    /// Restricts and orders; empty means any class.
    pub preferred: Vec<String>,
    pub preference_source: PreferenceSource,
    pub excluded: BTreeSet<String>,
    /// Accepted families (`hopper` or `nvidia-hopper`); empty means any.
    pub families: BTreeSet<String>,
    pub required: Capabilities,
    pub ranking: RankingPolicy,
    /// `acceleratorSelector.nodeSelector`: a layer between runtime and component that also filters classes.
    pub node_selector: BTreeMap<String, String>,
    /// Dollars per hour and replica (`ome.io/cost-threshold`): a preference, never a rejection.
    pub cost_threshold: Option<f64>,
}

/// Where the preferred classes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreferenceSource {
    #[default]
    Selector,
    Override,
    Annotation,
}

impl PreferenceSource {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Selector => "spec.acceleratorSelector.preferredClasses",
            Self::Override => "acceleratorOverride.preferredClasses",
            Self::Annotation => "annotation ome.io/accelerator-class",
        }
    }
}

/// What classes are ranked by after preference and free capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankingPolicy {
    #[default]
    Balanced,
    Performance,
    Cost,
    /// Upstream policy `BestFit`: the tightest memory.
    BestFit,
    /// Upstream policy `FirstAvailable`: the runtime's own order.
    FirstAvailable,
}

impl RankingPolicy {
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

/// Minimum capabilities; `None` asks for nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capabilities {
    /// Bytes per accelerator.
    pub memory: Option<u64>,
    /// Bytes per accelerator, an upper bound (deployed API: `maxMemory`).
    pub max_memory: Option<u64>,
    pub compute_capability: Option<ComputeCapability>,
    /// Lower case.
    pub features: BTreeSet<String>,
    /// GB/s.
    pub bandwidth: Option<f64>,
    pub performance: Performance,
}

impl Capabilities {
    /// Both sets hold: the stricter number wins, features are united (ACC-65).
    #[must_use]
    pub fn combine(&self, other: &Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            max_memory: lesser(self.max_memory, other.max_memory),
            compute_capability: stricter(self.compute_capability.as_ref(), other.compute_capability.as_ref()),
            features: self.features.union(&other.features).cloned().collect(),
            bandwidth: greater(self.bandwidth, other.bandwidth),
            performance: self.performance.stricter(&other.performance),
        }
    }
}

/// Dense throughput: TFLOPS for floating point, TOPS for integers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Performance {
    pub fp8: Option<f64>,
    pub fp16: Option<f64>,
    pub fp32: Option<f64>,
    pub int8: Option<f64>,
    pub int4: Option<f64>,
}

impl Performance {
    fn stricter(&self, other: &Self) -> Self {
        Self {
            fp8: greater(self.fp8, other.fp8),
            fp16: greater(self.fp16, other.fp16),
            fp32: greater(self.fp32, other.fp32),
            int8: greater(self.int8, other.int8),
            int4: greater(self.int4, other.int4),
        }
    }

    /// Throughput by precision name, in a fixed order.
    #[must_use]
    pub fn by_precision(&self) -> [(&'static str, Option<f64>); 5] {
        [("fp8", self.fp8), ("fp16", self.fp16), ("fp32", self.fp32), ("int8", self.int8), ("int4", self.int4)]
    }
}

fn stricter(a: Option<&ComputeCapability>, b: Option<&ComputeCapability>) -> Option<ComputeCapability> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a >= b { a.clone() } else { b.clone() }),
        (one, other) => one.or(other).cloned(),
    }
}

fn lesser(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

fn greater(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (one, other) => one.or(other),
    }
}
