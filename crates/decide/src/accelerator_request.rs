//! Number of accelerators that the manifests request, and what states it.

use std::fmt;
use std::sync::Arc;

use crate::merge::origin::{Origin, SettingField};
use crate::parallelism::Parallelism;
use crate::shape::ReplicaShape;

/// Number of accelerators that runtime and service request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AcceleratorRequest {
    /// Parallelism of one replica that flags or environment variables state.
    pub parallelism: Parallelism,
    /// Accelerators per node from resource requests: the maximum over all layers.
    pub per_node: Option<u32>,
    /// Whether another number is permitted.
    pub strength: RequestStrength,
    /// What states the number; `None` if nothing does.
    pub stated: Option<StatedCount>,
    /// Accelerators that a shell script of the service uses, as far as its flags show; `None` if it states none.
    pub script_accelerators: Option<u32>,
}

/// Whether a replica may have another number of accelerators than the stated one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestStrength {
    /// A shell script of the service contains the number. The script is never changed, and may compute another number, so
    /// it makes no class ineligible: Pods request at most what a node has.
    Hint,
    /// Only the runtime states the number: a larger one replaces it if the model requires it.
    Minimum,
    /// The service states the number, or a shell script of the runtime contains it.
    #[default]
    Exact,
}

/// A number of accelerators and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedCount {
    /// The flag, the environment variable or the resource.
    pub field: Arc<SettingField>,
    /// Its value.
    pub value: u32,
    /// Who sets the field.
    pub origin: Origin,
}

// === impl AcceleratorRequest ===

impl AcceleratorRequest {
    /// Whether the manifests fix the number of accelerators.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.strength == RequestStrength::Exact && self.states_count()
    }

    /// Returns (accelerators that the parallelism uses, accelerators in resource requests) if they differ on `nodes` nodes.
    #[must_use]
    pub fn mismatch(&self, nodes: u32) -> Option<(u32, u32)> {
        let requested = self.per_node?.saturating_mul(nodes);
        let used = self.parallelism.accelerators_of(requested);
        (used != requested).then_some((used, requested))
    }

    /// Returns what states a number that a replica of this shape exceeds.
    pub(crate) fn exceeded_by(&self, shape: ReplicaShape) -> Option<&StatedCount> {
        let requested = match self.parallelism.accelerators() {
            Some(accelerators) => accelerators,
            None => self.parallelism.accelerators_of(self.per_node?.saturating_mul(shape.nodes)),
        };
        self.stated.as_ref().filter(|_| shape.accelerators() > requested)
    }

    fn states_count(&self) -> bool {
        self.parallelism.accelerators().is_some() || self.per_node.is_some()
    }
}

// === impl StatedCount ===

impl fmt::Display for StatedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, origin } = self;
        let origin = origin.as_str();
        match &**field {
            SettingField::Flag(name) | SettingField::Env(name) | SettingField::Limit(name) => {
                write!(f, "the {origin} sets {name} to {value}")
            }
            field => write!(f, "the {origin} sets {field} to {value}"),
        }
    }
}
