//! What is on offer: runtimes, and accelerator classes with the nodes that belong to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use api::ome::VersionOperator;
use api::{ComputeCapability, ome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::configuration::ClassConfiguration;
use crate::demand::{Component, ComponentDemand, NamedVersion, Performance};
use crate::nodes::{Availability, Discovery};
use crate::role_placement::RolePlacements;
pub use crate::size::SizeRange;

/// Everything that may serve, read once and shared by the decisions of many services.
#[derive(Clone, Debug, Default)]
pub struct Supply {
    /// Runtimes of any namespace; `decide` sees only those of the service's namespace and the cluster's.
    pub runtimes: Vec<Arc<Runtime>>,
    pub classes: Vec<Arc<Class>>,
    /// Feature gate `AcceleratorAwareScheduling`: off means that runtimes are chosen without classes.
    pub accelerator_aware: bool,
}

impl Supply {
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|class| class.name == name).map(Arc::as_ref)
    }

    /// Every resource name that stands for accelerators: what classes say, and the names that device plugins use.
    #[must_use]
    pub fn accelerator_resources(&self) -> BTreeSet<String> {
        let of_classes = self.classes.iter().flat_map(|class| class.resources.iter().map(|r| r.name.clone()));
        of_classes.chain(ACCELERATOR_RESOURCES.iter().map(|name| (*name).to_owned())).collect()
    }
}

/// Names that vendors' device plugins advertise whole accelerators under; classes may add any other.
pub const ACCELERATOR_RESOURCES: [&str; 9] = [
    "amd.com/gpu",
    "aws.amazon.com/neuron",
    "google.com/tpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "huawei.com/Ascend910",
    "intel.com/gpu",
    "nvidia.com/gpu",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    Namespace,
    Cluster,
}

/// A serving runtime of either scope.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub name: String,
    pub scope: Scope,
    /// Empty for cluster scope.
    pub namespace: String,
    /// `metadata.creationTimestamp` in RFC 3339 (UTC), so that text order is time order.
    pub created: Option<String>,
    pub disabled: bool,
    pub formats: Vec<SupportedFormat>,
    pub size: SizeRange,
    /// Empty means `openAI`.
    pub protocols: Vec<String>,
    pub requirements: ClassRequirements,
    /// `spec.acceleratorConfigurations`.
    pub configurations: Vec<ClassConfiguration>,
    pub components: BTreeMap<Component, RuntimeComponent>,
}

impl Runtime {
    /// Stands for a service that brings its own engine: accepts everything, states nothing.
    #[must_use]
    pub fn custom_engine() -> Self {
        Self {
            name: String::new(),
            scope: Scope::Namespace,
            namespace: String::new(),
            created: None,
            disabled: false,
            formats: Vec::new(),
            size: SizeRange::default(),
            protocols: Vec::new(),
            requirements: ClassRequirements::default(),
            configurations: Vec::new(),
            components: BTreeMap::new(),
        }
    }

    /// Whether this is [`Self::own`]; no object has an empty name.
    #[must_use]
    pub fn is_custom_engine(&self) -> bool {
        self.name.is_empty()
    }

    /// Every layer of tuning of one component, weakest first: runtime, format entry that serves the model, the runtime's
    /// component (`offer`), the service's (`need`).
    #[must_use]
    pub fn configuration_layers<'a>(
        &'a self,
        entry: Option<&'a SupportedFormat>,
        offer: &'a RuntimeComponent,
        need: &'a ComponentDemand,
    ) -> [&'a [ClassConfiguration]; 4] {
        let of_entry = entry.map(|entry| entry.configurations.as_slice()).unwrap_or_default();
        [&self.configurations, of_entry, &offer.configurations, &need.configurations]
    }
}

/// One entry of `supportedModelFormats`. It must match as a whole; what it leaves unstated accepts any.
#[derive(Clone, Debug, Default)]
pub struct SupportedFormat {
    pub format: Option<NamedVersion>,
    pub format_operator: VersionOperator,
    pub framework: Option<NamedVersion>,
    pub framework_operator: VersionOperator,
    pub architecture: Option<String>,
    pub quantization: Option<String>,
    pub pipeline: Option<Value>,
    pub auto_select: bool,
    pub priority: Option<i32>,
    /// The entry's own `acceleratorConfig`.
    pub configurations: Vec<ClassConfiguration>,
}

/// `acceleratorRequirements` of a runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassRequirements {
    /// The runtime says something about accelerators at all.
    pub declared: bool,
    /// `supportedClasses` or the deployed `acceleratorClasses`; `None` means any class.
    pub supported_classes: Option<Vec<String>>,
    pub required: crate::demand::Capabilities,
    pub preferences: Vec<crate::preference::ClassPreference>,
}

/// What a runtime states for one component.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeComponent {
    /// Whole units per extended resource name, the greater of request and limit.
    pub resources: BTreeMap<String, u32>,
    /// Tensor × pipeline parallelism stated by a flag or an environment variable.
    pub parallelism: Option<u32>,
    /// The component has leader and worker.
    pub multi_node: bool,
    /// `worker.size + 1` where the size is stated.
    pub nodes: Option<u32>,
    pub min_replicas: Option<u32>,
    pub max_replicas: Option<u32>,
    pub node_selector: BTreeMap<String, String>,
    /// The runtime's own and its component's; all of them hold.
    pub affinities: Vec<Value>,
    pub configurations: Vec<ClassConfiguration>,
    /// What it says for leader and workers alone.
    pub roles: RolePlacements,
}

/// An accelerator class: one kind of device and the nodes that carry it.
#[derive(Clone, Debug, Default)]
pub struct Class {
    pub name: String,
    pub vendor: Option<String>,
    pub family: Option<String>,
    pub discovery: Discovery,
    /// Bytes per accelerator.
    pub memory: Option<u64>,
    pub compute_capability: Option<ComputeCapability>,
    /// GB/s.
    pub bandwidth: Option<f64>,
    /// Lower case.
    pub features: BTreeSet<String>,
    pub performance: Performance,
    pub resources: Vec<ClassResource>,
    pub cost: Cost,
    /// Made from node labels and not edited: it gives way on nodes whose product another class names.
    pub is_discovered: bool,
    /// `None`: nothing is known about nodes (a plan without a cluster snapshot).
    pub availability: Option<Availability>,
}

impl Class {
    /// The resource that Pods request: the first that is not a fraction of a device.
    #[must_use]
    pub fn resource(&self) -> Option<&ClassResource> {
        self.resources.iter().find(|resource| !resource.divisible).or(self.resources.first())
    }

    /// Whether what Pods request is a slice of a device (MIG): an engine uses one, slices cannot be joined.
    #[must_use]
    pub fn is_fraction(&self) -> bool {
        self.resource().is_some_and(|resource| resource.divisible)
    }

    /// Resource name of the class, or the name that its vendor's device plugin uses; `None` if neither is known.
    #[must_use]
    pub fn resource_name(&self) -> Option<&str> {
        let stated = self.resource().map(|resource| resource.name.as_str());
        stated.or_else(|| ome::vendor_resource(self.vendor()))
    }

    /// The vendor that is stated, or that the labels of the class's nodes belong to; else the one that most have.
    fn vendor(&self) -> &str {
        let of_terms = self.discovery.terms.iter().filter_map(|term| term["matchExpressions"].as_array()).flatten();
        let keys = self.discovery.node_selector.keys().map(String::as_str);
        let mut keys = keys.chain(of_terms.filter_map(|expression| expression["key"].as_str()));
        self.vendor.as_deref().or_else(|| keys.find_map(ome::vendor_for_label)).unwrap_or(ome::DEFAULT_VENDOR)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassResource {
    pub name: String,
    /// Units per accelerator.
    pub quantity: u32,
    pub divisible: bool,
}

/// Dollars; nothing is invented for a class that states no price.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cost {
    pub per_hour: Option<f64>,
    pub spot_per_hour: Option<f64>,
    pub per_million_tokens: Option<f64>,
    pub tier: Option<CostTier>,
}

impl Cost {
    /// Hourly price of one accelerator. The spot price counts only where no other is stated.
    #[must_use]
    pub fn per_accelerator_hour(&self) -> Option<f64> {
        self.per_hour.or(self.spot_per_hour)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostTier {
    Low,
    Medium,
    High,
}
