//! Reasons why an accelerator class is not eligible for a component.

use std::fmt;

use api::Code;

use super::format::{AbbreviatedList, DeclaredValue, Gibibytes, Gigabytes, or_unset};
use crate::accelerator_request::StatedCount;
use crate::code;
use crate::compute_request::ComputeShortage;
use crate::memory_budget::{MemoryBudget, Reserve};
use crate::nodes::list_names;
use crate::number_format::UnsupportedAccelerator;
use crate::taint::Taint;

/// Why a class is not eligible for a component. Memory is in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassRejection {
    /// No class has this name.
    UnknownClass {
        /// An existing name that is similar.
        suggestion: Option<String>,
    },
    /// The runtime does not list the class.
    NotSupportedByRuntime {
        /// Classes that the runtime lists.
        supported: Vec<String>,
    },
    /// The service does not list the class.
    NotPreferred {
        /// Classes that the service lists.
        preferred: Vec<String>,
    },
    /// The service excludes the class.
    ExcludedClass {
        /// The constraint that excludes it.
        reason: ExclusionReason,
    },
    /// No node belongs to the class, or none matches `selector`.
    NoMatchingNodes {
        /// `acceleratorSelector.nodeSelector`, if the class has nodes.
        selector: Option<String>,
    },
    /// Neither the class nor its vendor determines the resource that Pods request.
    ResourceUnknown {
        /// The declared vendor.
        vendor: Option<String>,
    },
    /// One accelerator has too little memory.
    InsufficientMemory {
        /// Required bytes per accelerator.
        required: u64,
        /// Bytes per accelerator of the class.
        offered: Option<u64>,
    },
    /// The compute capability is too low.
    ComputeCapabilityTooLow {
        /// The required version.
        required: String,
        /// The version of the class.
        offered: Option<String>,
    },
    /// The class lacks required features.
    MissingFeature {
        /// The features that the class lacks.
        missing: Vec<String>,
    },
    /// The memory bandwidth is too low.
    BandwidthTooLow {
        /// Required GB/s.
        required: f64,
        /// GB/s of the class.
        offered: Option<f64>,
    },
    /// The throughput at a precision is too low.
    PerformanceTooLow {
        /// The first insufficient precision, such as `fp16`.
        precision: &'static str,
        /// Required TFLOPS.
        required: f64,
        /// TFLOPS of the class.
        offered: Option<f64>,
    },
    /// The manifests fix more accelerators per node than any node has; freeing accelerators does not help.
    TooManyPerNode {
        /// Requested accelerators per node.
        requested: u32,
        /// The largest number that is possible.
        largest: u32,
        /// Whether accelerators of the class are partitions of a device, which cannot be combined.
        is_fraction: bool,
        /// What states the number.
        stated: Option<StatedCount>,
    },
    /// The model needs more memory than the largest shape provides.
    ModelDoesNotFit {
        /// Memory of one accelerator of the largest shape.
        budget: MemoryBudget,
        /// Tokens of the longest sequence that would fit, if the weights do.
        fitting_tokens: Option<u64>,
        /// Accelerators of the largest shape.
        accelerators: u32,
        /// Why no larger shape is possible.
        limit: CountLimit,
    },
    /// No node that the placement allows has taints that the Pods tolerate.
    TaintNotTolerated {
        /// A taint that the Pods do not tolerate.
        taint: Taint,
        /// Names of the nodes.
        nodes: Vec<String>,
    },
    /// No node has the CPU or memory that a Pod requests, even if nothing runs on it.
    InsufficientNodeResources {
        /// The resource with the requested and the largest amount.
        shortage: ComputeShortage,
        /// Names of the nodes.
        nodes: Vec<String>,
    },
    /// The runtime is for accelerators of other vendors.
    VendorMismatch {
        /// Vendors that the runtime is for.
        required: Vec<&'static str>,
        /// Vendor of the class.
        offered: String,
    },
    /// The engine does not start on accelerators of the class, or not with the number format of the model.
    AcceleratorUnsupported(UnsupportedAccelerator),
    /// No node satisfies node selectors and affinities of class, runtime and service together.
    NodeSelectorConflict {
        /// Number of nodes of the class.
        nodes: usize,
    },
}

/// The constraint that excludes a class.
#[derive(Clone, Debug, PartialEq)]
pub enum ExclusionReason {
    /// `excludedClasses` lists the class.
    ByName,
    /// `architectureFamilies` does not list the family of the class.
    ByFamily {
        /// Family of the class.
        family: Option<String>,
    },
    /// The class has more memory than `maxMemory`.
    TooMuchMemory {
        /// Maximum bytes that the service allows.
        allowed: u64,
        /// Bytes of the class.
        offered: u64,
    },
}

/// Reason why a replica cannot have more accelerators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountLimit {
    /// The manifests set the number.
    Stated(StatedCount),
    /// The largest node of the class has no more.
    LargestNode,
    /// Partitions of a device cannot be combined.
    Fraction,
    /// The largest shape that is tried.
    Maximum,
}

/// Returns the stage of the check behind `code`: its position in [`code::class::ALL`] after `Eligible`.
pub(crate) fn class_stage(code: Code) -> u8 {
    super::position(code::class::ALL, code).saturating_sub(1)
}

// === impl ClassRejection ===

impl ClassRejection {
    /// Returns the number of checks of a class.
    pub(crate) fn stages() -> u8 {
        u8::try_from(code::class::ALL.len().saturating_sub(1)).unwrap_or(u8::MAX)
    }

    /// Returns the position of the failed check in the order of all checks. A class with a greater stage passed more checks.
    #[must_use]
    pub fn stage(&self) -> u8 {
        class_stage(self.code())
    }

    /// Returns the published code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::UnknownClass { .. } => code::class::UNKNOWN_CLASS,
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
            Self::VendorMismatch { .. } => code::class::VENDOR_MISMATCH,
            Self::TaintNotTolerated { .. } => code::class::TAINT_NOT_TOLERATED,
            Self::InsufficientNodeResources { .. } => code::class::INSUFFICIENT_NODE_RESOURCES,
            Self::AcceleratorUnsupported(_) => code::class::ACCELERATOR_UNSUPPORTED,
        }
    }
}

impl fmt::Display for ClassRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownClass { suggestion } => {
                f.write_str("no AcceleratorClass with this name exists")?;
                suggestion.as_ref().map_or(Ok(()), |name| write!(f, "; did you mean {name}?"))
            }
            Self::NotSupportedByRuntime { supported } => {
                write!(f, "the runtime supports only {}", AbbreviatedList(supported))
            }
            Self::NotPreferred { preferred } => write!(f, "the service allows only {}", AbbreviatedList(preferred)),
            Self::ExcludedClass { reason } => reason.fmt(f),
            Self::NoMatchingNodes { selector: None } => f.write_str("no node belongs to the class"),
            Self::NoMatchingNodes { selector: Some(selector) } => {
                write!(f, "no node of the class matches acceleratorSelector.nodeSelector {selector}")
            }
            Self::ResourceUnknown { vendor } => {
                let vendor = or_unset(vendor.as_deref());
                write!(
                    f,
                    "the class declares no resources and the resource of vendor {vendor} is unknown; set spec.resources of the class"
                )
            }
            Self::InsufficientMemory { required, offered } => {
                let (required, offered) = (Gibibytes(*required), DeclaredValue(offered.map(Gibibytes)));
                write!(f, "{required} of memory per accelerator is required; the class {offered}")
            }
            Self::ComputeCapabilityTooLow { required, offered } => {
                write!(f, "compute capability {required} is required; the class {}", DeclaredValue(offered.as_deref()))
            }
            Self::MissingFeature { missing } => {
                let noun = if missing.len() == 1 { "feature" } else { "features" };
                write!(f, "the class lacks {noun} {}", AbbreviatedList(missing))
            }
            Self::BandwidthTooLow { required, offered } => {
                let offered = DeclaredValue(offered.map(|speed| format!("{speed} GB/s")));
                write!(f, "{required} GB/s of memory bandwidth is required; the class {offered}")
            }
            Self::PerformanceTooLow { precision, required, offered } => {
                write!(f, "{required} {precision} TFLOPS are required; the class {}", DeclaredValue(*offered))
            }
            Self::TooManyPerNode { requested, largest, is_fraction, stated } => {
                let accelerators_are =
                    if *requested == 1 { "accelerator per node is" } else { "accelerators per node are" };
                write!(f, "{requested} {accelerators_are} requested")?;
                if let Some(stated) = stated {
                    write!(f, " ({stated})")?;
                }
                match is_fraction {
                    true => write!(f, "; {}", CountLimit::Fraction),
                    false => write!(f, "; the largest node of the class has {largest}"),
                }
            }
            Self::ModelDoesNotFit { budget, fitting_tokens, accelerators, limit } => {
                does_not_fit(f, budget, *accelerators, limit)?;
                match fitting_tokens {
                    Some(tokens) => write!(f, "; a context of {tokens} tokens would fit"),
                    None => Ok(()),
                }
            }
            Self::NodeSelectorConflict { nodes } => {
                write!(f, "0 of {nodes} nodes of the class satisfy the merged node selector and affinity")
            }
            Self::TaintNotTolerated { taint, nodes } => {
                let noun = if nodes.len() == 1 { "node" } else { "nodes" };
                write!(f, "the Pods do not tolerate taint {taint} of {noun} {}", list_names(nodes))
            }
            Self::VendorMismatch { required, offered } => {
                let required = required.join(" or ");
                write!(f, "the runtime is for {required} accelerators and declares nothing for vendor {offered}")
            }
            Self::AcceleratorUnsupported(reason) => reason.fmt(f),
            Self::InsufficientNodeResources { shortage, nodes } => {
                write!(f, "{shortage} ({})", list_names(nodes))
            }
        }
    }
}

fn does_not_fit(
    f: &mut fmt::Formatter<'_>,
    budget: &MemoryBudget,
    accelerators: u32,
    limit: &CountLimit,
) -> fmt::Result {
    let usable = Gigabytes(budget.usable);
    match budget.reserve {
        Reserve::Estimated { .. } => {
            let required = budget.required().saturating_mul(u64::from(accelerators));
            write!(f, "the model requires {} of accelerator memory", Gigabytes(required))?;
            f.write_str(", with 20 % of the weights for KV cache and activations; ")?;
            write!(f, "{accelerators} × {usable} are usable ({limit})")
        }
        Reserve::Computed { kv_cache, tokens, activations, .. } => {
            let (required, weights) = (Gigabytes(budget.required()), Gigabytes(budget.weights));
            match accelerators {
                1 => f.write_str("one accelerator"),
                _ => write!(f, "each of {accelerators} accelerators"),
            }?;
            write!(f, " requires {required}: {weights} for weights, ")?;
            write!(f, "{} for the KV cache of {tokens} tokens", Gigabytes(kv_cache))?;
            if activations > 0 {
                write!(f, ", {} for activations", Gigabytes(activations))?;
            }
            write!(f, "; {usable} are usable ({limit})")
        }
    }
}

// === impl ExclusionReason ===

impl fmt::Display for ExclusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByName => f.write_str("the service excludes the class"),
            Self::ByFamily { family } => {
                write!(f, "family {} is not listed in constraints.architectureFamilies", or_unset(family.as_deref()))
            }
            Self::TooMuchMemory { allowed, offered } => {
                let (allowed, offered) = (Gibibytes(*allowed), Gibibytes(*offered));
                write!(f, "the class has {offered} of memory; the service allows at most {allowed}")
            }
        }
    }
}

// === impl CountLimit ===

impl fmt::Display for CountLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stated(stated) => stated.fmt(f),
            Self::LargestNode => f.write_str("the largest node has no more"),
            Self::Fraction => f.write_str("partitions of a device cannot be combined"),
            Self::Maximum => f.write_str("larger numbers are not tried"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_follow_the_order_of_the_checks() {
        let stages: Vec<(&str, u8)> =
            code::class::ALL.iter().skip(1).map(|code| (code.as_str(), class_stage(*code))).collect();
        let expected = [
            ("UnknownClass", 0),
            ("NotSupportedByRuntime", 1),
            ("NotPreferred", 2),
            ("ExcludedClass", 3),
            ("NoMatchingNodes", 4),
            ("ResourceUnknown", 5),
            ("InsufficientMemory", 6),
            ("ComputeCapabilityTooLow", 7),
            ("MissingFeature", 8),
            ("BandwidthTooLow", 9),
            ("PerformanceTooLow", 10),
            ("TooManyPerNode", 11),
            ("ModelDoesNotFit", 12),
            ("NodeSelectorConflict", 13),
            ("TaintNotTolerated", 14),
            ("InsufficientNodeResources", 15),
            ("VendorMismatch", 16),
            ("AcceleratorUnsupported", 17),
        ];
        assert_eq!(stages, expected);
        assert_eq!(ClassRejection::stages(), 18);
    }
}
