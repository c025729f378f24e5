//! Options of deletions.

use apimachinery::object::FOREGROUND_FINALIZER;

/// Finalizer of an owner whose dependents have to be orphaned.
pub(crate) const ORPHAN: &str = "orphan";

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PropagationPolicy {
    /// Dependents are deleted after their owner.
    #[default]
    Background,
    /// Dependents with `blockOwnerDeletion` are deleted before their owner.
    Foreground,
    /// Dependents are retained, and their reference to the owner is removed.
    Orphan,
}

/// Options of a deletion (`meta/v1` DeleteOptions).
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    /// How the deletion propagates to dependents.
    pub(crate) propagation: PropagationPolicy,
    /// Grace period in seconds, which applies only to Pods.
    pub(crate) grace_period_seconds: Option<i64>,
    /// Precondition: the UID that the object must have.
    pub(crate) uid: Option<String>,
    /// Precondition: the resource version that the object must have.
    pub(crate) resource_version: Option<String>,
    /// Whether to validate the deletion without deleting the object.
    pub(crate) dry_run: bool,
}

// === impl PropagationPolicy ===

impl PropagationPolicy {
    /// Returns the finalizer that the policy requires.
    pub(super) fn finalizer(self) -> Option<&'static str> {
        match self {
            Self::Background => None,
            Self::Foreground => Some(FOREGROUND_FINALIZER),
            Self::Orphan => Some(ORPHAN),
        }
    }
}
