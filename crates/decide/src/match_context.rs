//! Input of the class checks: one component of a service on one runtime.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::compute_request::{ComputeRequest, ReplicaRequests};
use crate::configuration::ClassConfiguration;
use crate::decision::ComponentDecision;
use crate::demand::{Capabilities, ComponentDemand, Model};
use crate::engine::LayeredSettings;
use crate::engine_memory::ModelMemory;
use crate::number_format::{self, FormatSupport};
use crate::supply::{Class, ClassRequirements, RuntimeComponent};

/// Requirements that classes are evaluated against, for one component on one runtime.
pub(crate) struct MatchContext<'a> {
    /// `None` if the model is unknown, or if the service runs its own engine (seed 000, Story 8).
    pub(crate) model: Option<&'a Model>,
    /// Memory that the model requires; `None` if it is not checked.
    pub(crate) model_memory: Option<&'a ModelMemory>,
    /// The component as the service defines it.
    pub(crate) demand: &'a ComponentDemand,
    /// `acceleratorRequirements` of the runtime.
    pub(crate) requirements: &'a ClassRequirements,
    /// The component as the runtime defines it.
    pub(crate) runtime: &'a RuntimeComponent,
    /// Configurations per class, weakest layer first: runtime, format entry, the runtime's component, the service's
    /// component.
    pub(crate) configurations: [&'a [ClassConfiguration]; 4],
    /// Capabilities required by runtime and service together.
    pub(crate) required: Cow<'a, Capabilities>,
    /// Whether the node selector of the runtime matches no node of any class.
    pub(crate) excludes_all_nodes: bool,
    /// Names of accelerator resources.
    pub(crate) accelerator_resources: &'a BTreeSet<String>,
    /// Vendors of the classes, by name.
    pub(crate) class_vendors: &'a BTreeMap<String, String>,
    /// The component in the current selection, if the service uses this runtime.
    pub(crate) current: Option<&'a ComponentDecision>,
}

impl MatchContext<'_> {
    /// Returns the initial number of replicas.
    pub(crate) fn replicas(&self) -> u32 {
        self.demand.min_replicas.or(self.runtime.min_replicas).unwrap_or(1)
    }

    /// Returns the vendors to which the runtime binds the component; `None` if it runs on those of any vendor. An image of the
    /// service replaces that of the runtime.
    pub(crate) fn bound_vendors(&self) -> Option<&[&'static str]> {
        let vendors = self.demand.image_vendor.as_ref().map_or(self.runtime.vendors.as_slice(), std::slice::from_ref);
        (!vendors.is_empty()).then_some(vendors)
    }

    /// Whether the runtime has a configuration for, supports by name or prefers a class of `vendor`.
    pub(crate) fn declares_vendor(&self, vendor: &str) -> bool {
        let configured = self.configurations.iter().flat_map(|layer| layer.iter()).map(|entry| &entry.class);
        let supported = self.requirements.supported_classes.iter().flatten();
        let preferred = self.requirements.preferences.iter().map(|preference| &preference.class);
        let mut declared = configured.chain(supported).chain(preferred);
        declared.any(|class| self.class_vendors.get(class).is_some_and(|known| known == vendor))
    }

    /// Returns the CPU and memory that a Pod requests on `class`.
    pub(crate) fn compute_request(&self, class: &Class) -> ComputeRequest {
        let layers = self.configurations.iter().flat_map(|layer| layer.iter());
        let resources = layers.filter(|configuration| configuration.class == class.name).flat_map(|configuration| {
            configuration.runner.get("resources").into_iter().chain([&configuration.resources])
        });
        ReplicaRequests::merge(&self.runtime.compute, resources, &self.demand.compute)
    }

    /// Returns the accelerators of `class` that containers beside the engine request.
    pub(crate) fn accelerators_beside_engine(&self, class: &Class) -> u32 {
        let Some(resource) = class.resource_name() else { return 0 };
        let units_per_accelerator = class.resource().map_or(1, |resource| resource.quantity.max(1));
        let units = ReplicaRequests::units_beside_engine(&self.runtime.compute, &self.demand.compute, resource);
        units.div_ceil(units_per_accelerator)
    }

    /// Returns how the engine computes the number format of the model on `class`.
    pub(crate) fn format_support(&self, class: &Class) -> FormatSupport {
        let Some(model) = self.model else { return FormatSupport::Native };
        let quantization = model.quantization.as_deref().or(model.memory.quantization.as_deref());
        number_format::format_support(quantization, &self.engine_settings(class), class)
    }

    /// Returns the position of the first precision that the manifests prefer and `class` computes; the service takes precedence.
    pub(crate) fn precision_position(&self, class: &Class) -> usize {
        let (service, runtime) = (&self.demand.selector.precisions, &self.requirements.precisions);
        let preferred = if service.is_empty() { runtime } else { service };
        preferred.iter().position(|name| number_format::computes(class, name)).unwrap_or(preferred.len())
    }

    /// Returns the settings of the engine on `class`.
    pub(crate) fn engine_settings(&self, class: &Class) -> LayeredSettings<'_> {
        let layers = self.configurations.iter().flat_map(|layer| layer.iter());
        let for_class: Vec<&ClassConfiguration> =
            layers.filter(|configuration| configuration.class == class.name).collect();
        LayeredSettings::new(&self.runtime.engine, for_class.into_iter(), &self.demand.engine)
    }
}
