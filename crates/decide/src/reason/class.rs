//! Why an accelerator class cannot carry a component.

use std::fmt;

use api::code::Code;

use crate::code;

use super::words::{Gibibytes, Gigabytes, Listed, Offered, or_unstated};

/// Why a class cannot carry a component, in the order of the checks. Memory is in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassRejection {
    UnknownClass,
    NotSupportedByRuntime {
        supported: Vec<String>,
    },
    NotPreferred {
        preferred: Vec<String>,
    },
    ExcludedClass {
        because: Exclusion,
    },
    NoMatchingNodes {
        selector: Option<String>,
    },
    /// Neither the class nor its vendor says what Pods are to request.
    ResourceUnknown {
        vendor: Option<String>,
    },
    InsufficientMemory {
        needed: u64,
        offered: Option<u64>,
    },
    ComputeCapabilityTooLow {
        needed: String,
        offered: Option<String>,
    },
    MissingFeature {
        missing: Vec<String>,
    },
    BandwidthTooLow {
        needed: f64,
        offered: Option<f64>,
    },
    PerformanceTooLow {
        precision: &'static str,
        needed: f64,
        offered: Option<f64>,
    },
    /// A number that is fixed, above what any node has: no waiting helps.
    TooManyPerNode {
        asked: u32,
        largest: u32,
    },
    ModelDoesNotFit {
        needed: u64,
        per_accelerator: u64,
        accelerators: u32,
        limit: CountLimit,
    },
    NodeSelectorConflict {
        nodes: usize,
    },
}

/// What excluded a class.
#[derive(Clone, Debug, PartialEq)]
pub enum Exclusion {
    ByName,
    ByFamily { family: Option<String> },
    TooMuchMemory { allowed: u64, offered: u64 },
}

/// Why no more accelerators than these were tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountLimit {
    /// Runtime or service state the number.
    Fixed,
    /// The largest node of the class has no more.
    LargestNode,
    /// Slices of a device cannot be joined.
    Fraction,
    /// The largest number that is ever tried.
    Most,
}

impl ClassRejection {
    /// Number of checks.
    pub const STAGES: u8 = 14;

    /// Position of the check that failed: the greater, the nearer the class came.
    #[must_use]
    pub fn stage(&self) -> u8 {
        match self {
            Self::UnknownClass => 0,
            Self::NotSupportedByRuntime { .. } => 1,
            Self::NotPreferred { .. } => 2,
            Self::ExcludedClass { .. } => 3,
            Self::NoMatchingNodes { .. } => 4,
            Self::ResourceUnknown { .. } => 5,
            Self::InsufficientMemory { .. } => 6,
            Self::ComputeCapabilityTooLow { .. } => 7,
            Self::MissingFeature { .. } => 8,
            Self::BandwidthTooLow { .. } => 9,
            Self::PerformanceTooLow { .. } => 10,
            Self::TooManyPerNode { .. } => 11,
            Self::ModelDoesNotFit { .. } => 12,
            Self::NodeSelectorConflict { .. } => 13,
        }
    }

    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::UnknownClass => code::class::UNKNOWN_CLASS,
            Self::NotSupportedByRuntime { .. } => code::class::NOT_SUPPORTED_BY_RUNTIME,
            Self::NotPreferred { .. } => code::class::NOT_PREFERRED,
            Self::ExcludedClass { .. } => code::class::EXCLUDED_CLASS,
            Self::NoMatchingNodes { .. } => code::class::NO_MATCHING_NODES,
            Self::ResourceUnknown { .. } => code::class::RESOURCE_UNKNOWN,
            Self::InsufficientMemory { .. } => code::class::INSUFFICIENT_MEMORY,
            Self::ComputeCapabilityTooLow { .. } => code::class::COMPUTE_CAPABILITY_TOO_LOW,
            Self::MissingFeature { .. } => code::class::MISSING_FEATURE,
            Self::BandwidthTooLow { .. } => code::class::BANDWIDTH_TOO_LOW,
            Self::PerformanceTooLow { .. } => code::class::PERFORMANCE_TOO_LOW,
            Self::TooManyPerNode { .. } => code::class::TOO_MANY_PER_NODE,
            Self::ModelDoesNotFit { .. } => code::class::MODEL_DOES_NOT_FIT,
            Self::NodeSelectorConflict { .. } => code::class::NODE_SELECTOR_CONFLICT,
        }
    }
}

impl fmt::Display for ClassRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownClass => f.write_str("there is no AcceleratorClass of this name"),
            Self::NotSupportedByRuntime { supported } => write!(f, "the runtime supports {}", Listed(supported)),
            Self::NotPreferred { preferred } => write!(f, "the service asks for {}", Listed(preferred)),
            Self::ExcludedClass { because } => because.fmt(f),
            Self::NoMatchingNodes { selector: None } => f.write_str("no node belongs to the class"),
            Self::NoMatchingNodes { selector: Some(selector) } => {
                write!(f, "no node of the class has {selector} (acceleratorSelector.nodeSelector)")
            }
            Self::ResourceUnknown { vendor } => {
                let vendor = or_unstated(vendor.as_deref());
                write!(
                    f,
                    "states no resources, and for vendor {vendor} none is known; state spec.resources of the class"
                )
            }
            Self::InsufficientMemory { needed, offered } => {
                write!(f, "needs {} per accelerator, has {}", Gibibytes(*needed), Offered(offered.map(Gibibytes)))
            }
            Self::ComputeCapabilityTooLow { needed, offered } => {
                write!(f, "needs compute capability {needed}, has {}", Offered(offered.as_deref()))
            }
            Self::MissingFeature { missing } => write!(f, "lacks {}", Listed(missing)),
            Self::BandwidthTooLow { needed, offered } => {
                write!(f, "needs {needed} GB/s memory bandwidth, has {}", Offered(*offered))
            }
            Self::PerformanceTooLow { precision, needed, offered } => {
                write!(f, "needs {needed} {precision} TFLOPS, has {}", Offered(*offered))
            }
            Self::TooManyPerNode { asked, largest } => {
                write!(f, "{asked} on one node are asked for, its largest node has {largest}")
            }
            Self::ModelDoesNotFit { needed, per_accelerator, accelerators, limit } => write!(
                f,
                "needs {}, {accelerators} × {} usable ({limit})",
                Gigabytes(*needed),
                Gigabytes(*per_accelerator)
            ),
            Self::NodeSelectorConflict { nodes } => {
                write!(f, "none of its {nodes} nodes satisfies the merged node selector and affinity")
            }
        }
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByName => f.write_str("the service excludes it"),
            Self::ByFamily { family } => write!(f, "family {} is not asked for", or_unstated(family.as_deref())),
            Self::TooMuchMemory { allowed, offered } => {
                write!(f, "has {}, at most {} are asked for", Gibibytes(*offered), Gibibytes(*allowed))
            }
        }
    }
}

impl fmt::Display for CountLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed => "the number is fixed by runtime or service",
            Self::LargestNode => "its largest node has no more",
            Self::Fraction => "slices of a device cannot be joined",
            Self::Most => "no more are tried",
        })
    }
}
