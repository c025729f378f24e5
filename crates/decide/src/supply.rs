//! Available runtimes, and accelerator classes with their nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use api::ome::VersionOperator;
use api::{ComputeCapability, ome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::component::Component;
use crate::compute_request::ReplicaRequests;
use crate::configuration::ClassConfiguration;
use crate::demand::{Capabilities, ComponentDemand, NamedVersion, Performance};
use crate::engine::EngineSettings;
use crate::merge::parallelism::ParallelismSettings;
use crate::nodes::{Availability, Discovery};
use crate::preference::ClassPreference;
use crate::role_placement::RolePlacements;
use crate::size::SizeRange;
use crate::taint::Toleration;
use crate::vendor;

/// Available runtimes and classes, shared by the decisions of many services.
#[derive(Clone, Debug, Default)]
pub struct Supply {
    /// Runtimes of all namespaces and the cluster; `decide` only uses those that are visible to the service.
    pub runtimes: Vec<Arc<Runtime>>,
    /// Accelerator classes.
    pub classes: Vec<Arc<Class>>,
    /// All nodes; `None` if no node is known, as in a plan without a cluster.
    pub nodes: Option<Arc<dyn NodeResources>>,
    /// Feature gate `AcceleratorAwareScheduling`: if off, runtimes are selected without classes.
    pub accelerator_aware: bool,
}

/// The resources of all nodes.
pub trait NodeResources: std::fmt::Debug + Send + Sync {
    /// Returns the allocatable units of `resource` on the node that has the most; 0 if no node has the resource.
    fn largest_node(&self, resource: &str) -> u32;
}

/// Scope of a runtime. Namespaced runtimes take precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// A ServingRuntime.
    Namespace,
    /// A ClusterServingRuntime.
    Cluster,
}

/// A serving runtime of either scope.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Name of the runtime.
    pub name: String,
    /// Scope of the runtime.
    pub scope: Scope,
    /// Namespace; empty for cluster scope.
    pub namespace: String,
    /// `metadata.creationTimestamp` in RFC 3339 (UTC), which sorts by time as text.
    pub created: Option<String>,
    /// `spec.disabled`.
    pub disabled: bool,
    /// `spec.supportedModelFormats`.
    pub formats: Vec<SupportedFormat>,
    /// `spec.modelSizeRange`.
    pub size: SizeRange,
    /// `spec.protocolVersions`; empty means `openAI`.
    pub protocols: Vec<String>,
    /// `spec.acceleratorRequirements`.
    pub requirements: ClassRequirements,
    /// `spec.acceleratorConfigurations`.
    pub configurations: Vec<ClassConfiguration>,
    /// Whether the runtime sets `spec.routerConfig`.
    pub has_router: bool,
    /// The components that the runtime defines.
    pub components: BTreeMap<Component, RuntimeComponent>,
}

/// An entry of `supportedModelFormats`. All fields that it sets must match; an unset field accepts any value.
#[derive(Clone, Debug, Default)]
pub struct SupportedFormat {
    /// `modelFormat`.
    pub format: Option<NamedVersion>,
    /// `modelFormat.operator`.
    pub format_operator: VersionOperator,
    /// `modelFramework`.
    pub framework: Option<NamedVersion>,
    /// `modelFramework.operator`.
    pub framework_operator: VersionOperator,
    /// `modelArchitecture`.
    pub architecture: Option<String>,
    /// `quantization`.
    pub quantization: Option<String>,
    /// `diffusionPipeline`.
    pub pipeline: Option<Value>,
    /// `autoSelect`.
    pub auto_select: bool,
    /// `priority`.
    pub priority: Option<i32>,
    /// `acceleratorConfig` of the entry.
    pub configurations: Vec<ClassConfiguration>,
}

/// `acceleratorRequirements` of a runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassRequirements {
    /// Whether the runtime sets `acceleratorRequirements`.
    pub declared: bool,
    /// `supportedClasses`, or `acceleratorClasses` of the deployed API; `None` supports any class.
    pub supported_classes: Option<Vec<String>>,
    /// Required capabilities.
    pub required: Capabilities,
    /// `preferenceOrder`.
    pub preferences: Vec<ClassPreference>,
    /// `preferredPrecisions`: classes that compute an earlier one rank higher.
    pub precisions: Vec<String>,
}

/// One component of a runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeComponent {
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
    /// Vendors whose accelerators the component requests, otherwise the one that its image names; empty if it states none.
    pub vendors: Vec<&'static str>,
    /// Whether the component has leader and worker.
    pub multi_node: bool,
    /// `worker.size + 1` if the size is set.
    pub nodes: Option<u32>,
    /// `minReplicas`.
    pub min_replicas: Option<u32>,
    /// `maxReplicas`.
    pub max_replicas: Option<u32>,
    /// Node selector of runtime and component.
    pub node_selector: BTreeMap<String, String>,
    /// Affinities of runtime and component, all of which apply.
    pub affinities: Vec<Value>,
    /// `acceleratorConfigurations` of the component.
    pub configurations: Vec<ClassConfiguration>,
    /// Placement of leader and workers alone.
    pub roles: RolePlacements,
}

/// An accelerator class: one kind of device and the nodes that have it.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// Name of the class.
    pub name: String,
    /// Vendor, such as `nvidia`.
    pub vendor: Option<String>,
    /// Architecture family, such as `hopper`.
    pub family: Option<String>,
    /// How nodes are matched.
    pub discovery: Discovery,
    /// Bytes per accelerator.
    pub memory: Option<u64>,
    /// Compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// Memory bandwidth in GB/s.
    pub bandwidth: Option<f64>,
    /// Features in lower case.
    pub features: BTreeSet<String>,
    /// Throughput.
    pub performance: Performance,
    /// Resources that Pods request.
    pub resources: Vec<ClassResource>,
    /// Prices.
    pub cost: Cost,
    /// Whether the class was discovered from node labels and is unmodified. Such a class excludes nodes whose product
    /// another class names, apart from classes that were created from a flavor.
    pub is_discovered: bool,
    /// Whether the class was created from a Kueue ResourceFlavor.
    pub is_created_from_flavor: bool,
    /// The nodes of the class; `None` if no node is known, as in a plan without a cluster.
    pub availability: Option<Availability>,
}

/// A resource that Pods request for accelerators of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassResource {
    /// Name of the resource.
    pub name: String,
    /// Units per accelerator.
    pub quantity: u32,
    /// Whether one unit is a partition of a device.
    pub divisible: bool,
}

/// Prices of one accelerator in dollars. Missing prices are never estimated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// On-demand price per hour.
    pub per_hour: Option<f64>,
    /// Spot price per hour.
    pub spot_per_hour: Option<f64>,
    /// Price per million tokens.
    pub per_million_tokens: Option<f64>,
    /// Relative price.
    pub tier: Option<CostTier>,
}

/// Relative price of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostTier {
    /// Cheapest.
    Low,
    /// Between low and high.
    Medium,
    /// Most expensive.
    High,
}

// === impl Supply ===

impl Supply {
    /// Returns the class of this name.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|class| class.name == name).map(Arc::as_ref)
    }

    /// Returns the names of all accelerator resources: those of the classes and those of known device plugins.
    #[must_use]
    pub fn accelerator_resources(&self) -> BTreeSet<String> {
        let class_resources =
            self.classes.iter().flat_map(|class| class.resources.iter().map(|resource| resource.name.clone()));
        class_resources.chain(api::ACCELERATOR_RESOURCES.iter().map(|name| (*name).to_owned())).collect()
    }
}

// === impl Runtime ===

impl Runtime {
    /// Returns the pseudo-runtime of a service that defines its own engine: it has no name and accepts any model.
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
            has_router: false,
            components: BTreeMap::new(),
        }
    }

    /// Whether this is [`Self::custom_engine`].
    pub(crate) fn is_custom_engine(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns the configurations of one component, weakest layer first: runtime, matching format entry, the runtime's
    /// component, the service's component.
    #[must_use]
    pub fn configuration_layers<'a>(
        &'a self,
        format: Option<&'a SupportedFormat>,
        component: &'a RuntimeComponent,
        demand: &'a ComponentDemand,
    ) -> [&'a [ClassConfiguration]; 4] {
        let format_configurations = format.map(|format| format.configurations.as_slice()).unwrap_or_default();
        [&self.configurations, format_configurations, &component.configurations, &demand.configurations]
    }
}

// === impl Class ===

impl Class {
    /// Returns the resource that Pods request: the first one that is not a partition of a device.
    #[must_use]
    pub fn resource(&self) -> Option<&ClassResource> {
        self.resources.iter().find(|resource| !resource.divisible).or(self.resources.first())
    }

    /// Whether Pods request a partition of a device (MIG). An engine uses one partition, because partitions cannot be
    /// combined.
    #[must_use]
    pub fn is_fraction(&self) -> bool {
        self.resource().is_some_and(|resource| resource.divisible)
    }

    /// Returns the resource name of the class, or the one of its vendor's device plugin; `None` if both are unknown.
    #[must_use]
    pub fn resource_name(&self) -> Option<&str> {
        let declared = self.resource().map(|resource| resource.name.as_str());
        declared.or_else(|| ome::vendor_resource(self.effective_vendor()))
    }

    /// Returns the vendor whose device plugin advertises the resource of the class; if it is unknown, the declared vendor or the
    /// domain of the resource.
    pub(crate) fn resource_vendor(&self) -> Option<&str> {
        let resource = self.resource_name()?;
        let domain = || resource.split('/').next();
        vendor::of_resource(resource).or(self.vendor.as_deref()).or_else(domain)
    }

    /// Returns the declared vendor, otherwise the vendor of the node labels in the class's selector, otherwise the
    /// default vendor.
    fn effective_vendor(&self) -> &str {
        let expressions = self.discovery.terms.iter().filter_map(|term| term["matchExpressions"].as_array()).flatten();
        let keys = self.discovery.node_selector.keys().map(String::as_str);
        let mut keys = keys.chain(expressions.filter_map(|expression| expression["key"].as_str()));
        self.vendor.as_deref().or_else(|| keys.find_map(ome::vendor_for_label)).unwrap_or(ome::DEFAULT_VENDOR)
    }
}

// === impl Cost ===

impl Cost {
    /// Returns the hourly price of one accelerator: on-demand if declared, otherwise spot.
    #[must_use]
    pub fn per_accelerator_hour(&self) -> Option<f64> {
        self.per_hour.or(self.spot_per_hour)
    }

    /// Returns whether the class declares no price in dollars.
    pub(crate) fn has_no_amount(&self) -> bool {
        self.per_accelerator_hour().is_none() && self.per_million_tokens.is_none()
    }
}
