//! Reasons why a node is filtered out.

use std::fmt;

use apimachinery::Quantity;

/// The reason why a Pod cannot run on a node. `Display` prints the text of kube-scheduler, without the values in the
/// fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnschedulableReason {
    /// The node is cordoned.
    Unschedulable,
    /// The node has a taint that the Pod does not tolerate.
    UntoleratedTaint {
        /// Key of the taint.
        key: String,
        /// Value of the taint.
        value: String,
    },
    /// The node does not match `nodeSelector` or the required node affinity.
    NodeAffinity,
    /// The node already runs its maximum number of Pods.
    TooManyPods {
        /// Maximum number of Pods.
        limit: Quantity,
    },
    /// Another Pod on the node uses the same `hostPort`.
    HostPortConflict {
        /// The host port.
        port: i64,
    },
    /// The node has too little of a resource available.
    InsufficientResource {
        /// Name of the resource.
        resource: String,
        /// Amount that the Pod requests.
        requested: Quantity,
        /// Allocatable amount minus the requests of the Pods on the node.
        free: Quantity,
        /// Allocatable amount on the node.
        allocatable: Quantity,
    },
    /// A PersistentVolume that the Pod uses is not accessible from the node.
    VolumeNodeAffinity {
        /// Name of the PersistentVolumeClaim.
        claim: String,
    },
    /// No PersistentVolume is available for a PersistentVolumeClaim with delayed binding (`WaitForFirstConsumer`).
    NoMatchingVolume {
        /// Name of the PersistentVolumeClaim.
        claim: String,
    },
    /// The node lacks the topology label of a topology spread constraint.
    MissingTopologyLabel {
        /// Topology key.
        key: String,
    },
    /// The Pod would violate a topology spread constraint: its topology domain would have `skew` more matching Pods
    /// than the domain with the fewest.
    TopologySkew {
        /// Topology key.
        key: String,
        /// Skew that would result.
        skew: i64,
        /// `maxSkew` of the constraint.
        max_skew: i64,
    },
    /// The required Pod affinity is not satisfied.
    PodAffinity,
    /// The required Pod anti-affinity is violated.
    PodAntiAffinity,
    /// The required anti-affinity of an existing Pod is violated.
    ExistingPodAntiAffinity,
}

/// The result of a plugin that rejects a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterFailure {
    /// The reasons of the first plugin that rejected the node.
    pub(crate) reasons: Vec<UnschedulableReason>,
    /// Whether the Pod could fit on the node after other Pods are removed: the status code is `Unschedulable` rather
    /// than `UnschedulableAndUnresolvable`.
    pub(crate) resolvable: bool,
}

// === impl UnschedulableReason ===

impl fmt::Display for UnschedulableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::UntoleratedTaint { .. } => f.write_str("node(s) had untolerated taint(s)"),
            Self::NodeAffinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::TooManyPods { .. } => f.write_str("Too many pods"),
            Self::HostPortConflict { .. } => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Self::InsufficientResource { resource, .. } => write!(f, "Insufficient {resource}"),
            Self::VolumeNodeAffinity { .. } => f.write_str("node(s) didn't match PersistentVolume's node affinity"),
            Self::NoMatchingVolume { .. } => f.write_str("node(s) didn't find available persistent volumes to bind"),
            Self::MissingTopologyLabel { .. } => {
                f.write_str("node(s) didn't match pod topology spread constraints (missing required label)")
            }
            Self::TopologySkew { .. } => f.write_str("node(s) didn't match pod topology spread constraints"),
            Self::PodAffinity => f.write_str("node(s) didn't match pod affinity rules"),
            Self::PodAntiAffinity => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::ExistingPodAntiAffinity => f.write_str("node(s) didn't satisfy existing pods anti-affinity rules"),
        }
    }
}

// === impl FilterFailure ===

impl FilterFailure {
    /// Returns a failure that preemption cannot resolve.
    pub(super) fn unresolvable(reason: UnschedulableReason) -> Self {
        Self { reasons: vec![reason], resolvable: false }
    }

    /// Returns a failure that preemption may resolve.
    pub(super) fn resolvable(reason: UnschedulableReason) -> Self {
        Self { reasons: vec![reason], resolvable: true }
    }
}
