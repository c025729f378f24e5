//! Items of the work queue.

use std::fmt;

use cluster::{Kind, NamespacedName};

/// Key of the work queue: one unit of reconciliation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The status of one accelerator class.
    Class(String),
    /// The classes discovered from node labels.
    ClassDiscovery,
    /// The classes of the base set ConfigMap.
    BaseSet,
    /// Kueue's ResourceFlavors and the classes linked to them.
    ResourceFlavors,
    /// The events about invalid objects.
    InvalidObjects,
    /// One service of either kind.
    Service(Kind, NamespacedName),
    /// The event about a panic of the operator on a service.
    InternalError(Kind, NamespacedName),
}

// === impl WorkItem ===

/// `Kind namespace/name`, or what the item maintains.
impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkItem::Class(name) => write!(f, "AcceleratorClass {name}"),
            WorkItem::ClassDiscovery => f.write_str("the discovered AcceleratorClasses"),
            WorkItem::BaseSet => f.write_str("the base set of AcceleratorClasses"),
            WorkItem::ResourceFlavors => f.write_str("the ResourceFlavors"),
            WorkItem::InvalidObjects => f.write_str("the invalid objects"),
            WorkItem::Service(kind, key) => write!(f, "{} {key}", kind.kind),
            WorkItem::InternalError(kind, key) => write!(f, "the event about a panic on {} {key}", kind.kind),
        }
    }
}

impl WorkItem {
    /// Returns whether the item must not be reconciled concurrently with others, because it writes what they read.
    pub(crate) fn is_exclusive(&self) -> bool {
        match self {
            WorkItem::ClassDiscovery | WorkItem::BaseSet | WorkItem::ResourceFlavors | WorkItem::InvalidObjects => true,
            WorkItem::Class(_) | WorkItem::Service(..) | WorkItem::InternalError(..) => false,
        }
    }

    /// Returns whether the item maintains accelerator classes, which the feature gate and namespaces turn off.
    pub(crate) fn maintains_classes(&self) -> bool {
        match self {
            WorkItem::Class(_) | WorkItem::ClassDiscovery | WorkItem::BaseSet | WorkItem::ResourceFlavors => true,
            WorkItem::InvalidObjects | WorkItem::Service(..) | WorkItem::InternalError(..) => false,
        }
    }
}
