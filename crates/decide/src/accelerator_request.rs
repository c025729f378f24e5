//! Number of accelerators that the manifests request, and what states it.

use std::fmt;

use crate::merge::origin::SettingField;
use crate::parallelism::{Parallelism, StatedSize};
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

/// The settings whose product is a number of accelerators: a resource, or the sizes of parallelism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedCount(Vec<StatedSize>);

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

impl StatedCount {
    /// Creates a count from its settings; `None` without any.
    #[must_use]
    pub fn new(settings: impl IntoIterator<Item = StatedSize>) -> Option<Self> {
        let settings: Vec<StatedSize> = settings.into_iter().collect();
        (!settings.is_empty()).then_some(Self(settings))
    }
}

impl fmt::Display for StatedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut previous = None;
        for StatedSize { size, field, origin, .. } in &self.0 {
            match previous {
                None => write!(f, "the {} sets ", origin.as_str())?,
                Some(previous) if previous == origin => f.write_str(" and ")?,
                Some(_) => write!(f, " and the {} sets ", origin.as_str())?,
            }
            previous = Some(origin);
            match &**field {
                SettingField::Flag(name) | SettingField::Env(name) | SettingField::Limit(name) => {
                    write!(f, "{name} to {size}")?;
                }
                field => write!(f, "{field} to {size}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;

    use super::*;
    use crate::merge::origin::Origin;

    #[rstest]
    #[case(&[("--tp", 8, Origin::Runtime)], "the runtime sets --tp to 8")]
    #[case(&[("--tp", 2, Origin::Service), ("--dp", 4, Origin::Service)], "the service sets --tp to 2 and --dp to 4")]
    #[case(
        &[("--tp", 2, Origin::Runtime), ("--dp", 4, Origin::Service)],
        "the runtime sets --tp to 2 and the service sets --dp to 4"
    )]
    fn names_all_settings(#[case] settings: &[(&str, u32, Origin)], #[case] expected: &str) {
        let settings = settings.iter().map(|(name, size, origin)| {
            let field = Arc::new(SettingField::Flag((*name).to_owned()));
            StatedSize { size: *size, field, origin: *origin, in_script: false }
        });
        assert_eq!(StatedCount::new(settings).unwrap().to_string(), expected);
        assert_eq!(StatedCount::new([]), None);
    }
}
