//! Why a node does not take a Pod.

use std::fmt;

use apimachinery::quantity::Quantity;

/// Why a node does not take a Pod, with its numbers. `Display` is kube-scheduler's phrase, which has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The node is cordoned.
    Unschedulable,
    UntoleratedTaint {
        key: String,
        value: String,
    },
    /// `nodeSelector` or the required node affinity.
    NotSelected,
    /// The node takes so many Pods and has them.
    TooManyPods {
        most: Quantity,
    },
    /// Another Pod of the node has the `hostPort`.
    PortTaken {
        port: i64,
    },
    Insufficient {
        resource: String,
        needs: Quantity,
        free: Quantity,
        total: Quantity,
    },
    /// A volume that the Pod uses can only be reached from other nodes.
    VolumeElsewhere {
        claim: String,
    },
    /// No PersistentVolume fits a claim that waits for its first Pod.
    NoVolume {
        claim: String,
    },
    /// The node has no label that a topology spread constraint spreads over.
    NoPlaceToSpread {
        key: String,
    },
    /// A topology spread constraint: the place would have `skew` Pods more than the emptiest.
    Uneven {
        key: String,
        skew: i64,
        most: i64,
    },
    /// Required Pod affinity.
    NotNear,
    /// Required Pod anti-affinity.
    NotFar,
    /// Required anti-affinity of a Pod that is there.
    OthersStayFar,
}

/// Why a node is out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// One or more reasons of the first plugin that refused.
    pub(crate) reasons: Vec<Reason>,
    /// Whether the node would fit if other Pods left it.
    pub(crate) preemptable: bool,
}

// === impl Reason ===

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::UntoleratedTaint { .. } => f.write_str("node(s) had untolerated taint(s)"),
            Self::NotSelected => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::TooManyPods { .. } => f.write_str("Too many pods"),
            Self::PortTaken { .. } => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Self::Insufficient { resource, .. } => write!(f, "Insufficient {resource}"),
            Self::VolumeElsewhere { .. } => f.write_str("node(s) didn't match PersistentVolume's node affinity"),
            Self::NoVolume { .. } => f.write_str("node(s) didn't find available persistent volumes to bind"),
            Self::NoPlaceToSpread { .. } => {
                f.write_str("node(s) didn't match pod topology spread constraints (missing required label)")
            }
            Self::Uneven { .. } => f.write_str("node(s) didn't match pod topology spread constraints"),
            Self::NotNear => f.write_str("node(s) didn't match pod affinity rules"),
            Self::NotFar => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::OthersStayFar => f.write_str("node(s) didn't satisfy existing pods anti-affinity rules"),
        }
    }
}

// === impl Unfit ===

impl Unfit {
    /// Whoever leaves the node, it does not help.
    pub(super) fn lasting(reason: Reason) -> Self {
        Self { reasons: vec![reason], preemptable: false }
    }

    /// It could help that others leave.
    pub(super) fn curable(reason: Reason) -> Self {
        Self { reasons: vec![reason], preemptable: true }
    }
}
