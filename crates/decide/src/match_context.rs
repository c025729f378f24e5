//! Input of the class checks: one component of a service on one runtime.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::configuration::ClassConfiguration;
use crate::decision::ComponentDecision;
use crate::demand::{Capabilities, ComponentDemand, Model};
use crate::engine::LayeredSettings;
use crate::memory_budget::ModelMemory;
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
    /// Names of accelerator resources.
    pub(crate) accelerator_resources: &'a BTreeSet<String>,
    /// The component in the current selection, if the service uses this runtime.
    pub(crate) current: Option<&'a ComponentDecision>,
}

impl MatchContext<'_> {
    /// Returns the initial number of replicas.
    pub(crate) fn replicas(&self) -> u32 {
        self.demand.min_replicas.or(self.runtime.min_replicas).unwrap_or(1)
    }

    /// Returns the settings of the engine on `class`.
    pub(crate) fn engine_settings(&self, class: &Class) -> LayeredSettings<'_> {
        let layers = self.configurations.iter().flat_map(|layer| layer.iter());
        let for_class: Vec<&ClassConfiguration> =
            layers.filter(|configuration| configuration.class == class.name).collect();
        LayeredSettings::new(&self.runtime.engine, for_class.into_iter(), &self.demand.engine)
    }
}
