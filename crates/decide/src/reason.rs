//! Why something lost: enums that carry their numbers. Text is made only when shown.
//!
//! Codes are stable and CamelCase. A rejection read back from status is `Recorded`: its numbers are gone, its words are not.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::supply::SizeRange;

/// Code and sentence of a rejection or a warning, as JSON carries them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub code: String,
    pub message: String,
}

/// Why a runtime cannot serve, in the order of the checks.
#[derive(Clone, Debug, PartialEq)]
pub enum Rejection {
    Disabled,
    FormatMismatch {
        wanted: Option<String>,
        offered: Option<String>,
    },
    FormatVersionMismatch {
        wanted: String,
        offered: String,
    },
    FrameworkMismatch {
        wanted: String,
        offered: String,
    },
    FrameworkVersionMismatch {
        wanted: String,
        offered: String,
    },
    ArchitectureMismatch {
        wanted: Option<String>,
        offered: String,
    },
    QuantizationMismatch {
        wanted: Option<String>,
        offered: Option<String>,
    },
    PipelineMismatch {
        wanted: Option<String>,
        offered: Option<String>,
    },
    SizeOutOfRange {
        parameters: u64,
        range: SizeRange,
    },
    /// The runtime states no range; its name states another size.
    NamedForAnotherSize {
        parameters: u64,
        size: u64,
    },
    ProtocolUnsupported {
        wanted: String,
        offered: Vec<String>,
    },
    AutoSelectDisabled,
    /// The classes stand nearest first.
    NoEligibleAccelerator {
        component: &'static str,
        classes: Vec<(String, ClassRejection)>,
    },
    Recorded(Told),
}

impl Rejection {
    /// Position of the check that failed: the greater, the nearer the runtime came.
    #[must_use]
    pub fn stage(&self) -> u8 {
        match self {
            Self::Recorded(_) | Self::Disabled => 0,
            Self::FormatMismatch { .. } => 1,
            Self::FormatVersionMismatch { .. } => 2,
            Self::FrameworkMismatch { .. } => 3,
            Self::FrameworkVersionMismatch { .. } => 4,
            Self::ArchitectureMismatch { .. } => 5,
            Self::QuantizationMismatch { .. } => 6,
            Self::PipelineMismatch { .. } => 7,
            Self::SizeOutOfRange { .. } | Self::NamedForAnotherSize { .. } => 8,
            Self::ProtocolUnsupported { .. } => 9,
            Self::AutoSelectDisabled => 10,
            Self::NoEligibleAccelerator { .. } => 11,
        }
    }

    /// Among failures of one check, the smaller the nearer: parameters between model and range, or checks that the
    /// nearest class still had before it.
    #[must_use]
    pub fn distance(&self) -> u64 {
        match self {
            Self::NoEligibleAccelerator { classes, .. } => {
                let furthest = classes.iter().map(|(_, rejection)| rejection.stage()).max().unwrap_or(0);
                u64::from(ClassRejection::STAGES - furthest)
            }
            Self::NamedForAnotherSize { parameters, size } => parameters.abs_diff(*size),
            Self::SizeOutOfRange { parameters, range } => {
                let below = range.min.map_or(0, |min| min.saturating_sub(*parameters));
                let above = range.max.map_or(0, |max| parameters.saturating_sub(max));
                below.max(above)
            }
            _ => 0,
        }
    }

    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Disabled => "Disabled",
            Self::FormatMismatch { .. } => "FormatMismatch",
            Self::FormatVersionMismatch { .. } => "FormatVersionMismatch",
            Self::FrameworkMismatch { .. } => "FrameworkMismatch",
            Self::FrameworkVersionMismatch { .. } => "FrameworkVersionMismatch",
            Self::ArchitectureMismatch { .. } => "ArchitectureMismatch",
            Self::QuantizationMismatch { .. } => "QuantizationMismatch",
            Self::PipelineMismatch { .. } => "PipelineMismatch",
            Self::SizeOutOfRange { .. } | Self::NamedForAnotherSize { .. } => "SizeOutOfRange",
            Self::ProtocolUnsupported { .. } => "ProtocolUnsupported",
            Self::AutoSelectDisabled => "AutoSelectDisabled",
            Self::NoEligibleAccelerator { .. } => "NoEligibleAccelerator",
            Self::Recorded(told) => &told.code,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("the runtime is disabled"),
            Self::FormatMismatch { offered: None, .. } => f.write_str("the runtime lists no supportedModelFormats"),
            Self::FormatMismatch { wanted, offered } => write!(
                f,
                "model format {}, runtime {}",
                or_unstated(wanted.as_deref()),
                or_unstated(offered.as_deref())
            ),
            Self::FormatVersionMismatch { wanted, offered } => {
                write!(f, "model format version {wanted}, runtime {offered}")
            }
            Self::FrameworkMismatch { wanted, offered } => write!(f, "model framework {wanted}, runtime {offered}"),
            Self::FrameworkVersionMismatch { wanted, offered } => {
                write!(f, "model framework version {wanted}, runtime {offered}")
            }
            Self::ArchitectureMismatch { wanted, offered } => {
                write!(f, "model architecture {}, runtime {offered}", or_unstated(wanted.as_deref()))
            }
            Self::QuantizationMismatch { wanted, offered } => write!(
                f,
                "model quantization {}, runtime {}",
                or_unstated(wanted.as_deref()),
                or_unstated(offered.as_deref())
            ),
            Self::PipelineMismatch { wanted, offered } => write!(
                f,
                "model diffusion pipeline {}, runtime {}",
                or_unstated(wanted.as_deref()),
                or_unstated(offered.as_deref())
            ),
            Self::SizeOutOfRange { parameters, range } => write!(f, "model {}, runtime {range}", Count(*parameters)),
            Self::NamedForAnotherSize { parameters, size } => {
                let (model, size) = (Count(*parameters), Count(*size));
                write!(f, "model {model}; the runtime states no range, and its name says {size}")
            }
            Self::ProtocolUnsupported { wanted, offered } => {
                write!(f, "protocol {wanted}, runtime speaks {}", Listed(offered))
            }
            Self::AutoSelectDisabled => {
                f.write_str("matches, but autoSelect is off; name it in spec.runtime.name to use it")
            }
            Self::NoEligibleAccelerator { component, classes } => no_eligible(f, component, classes),
            Self::Recorded(told) => f.write_str(&told.message),
        }
    }
}

/// Members of a list that a sentence names before it only counts.
const SHOWN: usize = 5;

/// `a, b, c and 7 more`: a sentence stays a sentence, however long the list.
struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..SHOWN).unwrap_or(self.0);
        f.write_str(&shown.join(", "))?;
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

fn no_eligible(f: &mut fmt::Formatter<'_>, component: &str, classes: &[(String, ClassRejection)]) -> fmt::Result {
    write!(f, "no class fits the {component}")?;
    for (index, (class, rejection)) in classes.iter().take(SHOWN).enumerate() {
        write!(f, "{}{class} {}: {rejection}", if index == 0 { ": " } else { "; " }, rejection.code())?;
    }
    match classes.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, "; and {more} more"),
    }
}

/// Why a class cannot carry a component, in the order of the checks. Memory is in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassRejection {
    UnknownClass,
    NotSupportedByRuntime { supported: Vec<String> },
    NotPreferred { preferred: Vec<String> },
    ExcludedClass { because: Exclusion },
    NoMatchingNodes { selector: Option<String> },
    InsufficientMemory { needed: u64, offered: Option<u64> },
    ComputeCapabilityTooLow { needed: String, offered: Option<String> },
    MissingFeature { missing: Vec<String> },
    BandwidthTooLow { needed: f64, offered: Option<f64> },
    PerformanceTooLow { precision: &'static str, needed: f64, offered: Option<f64> },
    ModelDoesNotFit { needed: u64, per_accelerator: u64, accelerators: u32, limit: CountLimit },
    NodeSelectorConflict { nodes: usize },
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
    pub const STAGES: u8 = 12;

    /// Position of the check that failed: the greater, the nearer the class came.
    #[must_use]
    pub fn stage(&self) -> u8 {
        match self {
            Self::UnknownClass => 0,
            Self::NotSupportedByRuntime { .. } => 1,
            Self::NotPreferred { .. } => 2,
            Self::ExcludedClass { .. } => 3,
            Self::NoMatchingNodes { .. } => 4,
            Self::InsufficientMemory { .. } => 5,
            Self::ComputeCapabilityTooLow { .. } => 6,
            Self::MissingFeature { .. } => 7,
            Self::BandwidthTooLow { .. } => 8,
            Self::PerformanceTooLow { .. } => 9,
            Self::ModelDoesNotFit { .. } => 10,
            Self::NodeSelectorConflict { .. } => 11,
        }
    }

    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownClass => "UnknownClass",
            Self::NotSupportedByRuntime { .. } => "NotSupportedByRuntime",
            Self::NotPreferred { .. } => "NotPreferred",
            Self::ExcludedClass { .. } => "ExcludedClass",
            Self::NoMatchingNodes { .. } => "NoMatchingNodes",
            Self::InsufficientMemory { .. } => "InsufficientMemory",
            Self::ComputeCapabilityTooLow { .. } => "ComputeCapabilityTooLow",
            Self::MissingFeature { .. } => "MissingFeature",
            Self::BandwidthTooLow { .. } => "BandwidthTooLow",
            Self::PerformanceTooLow { .. } => "PerformanceTooLow",
            Self::ModelDoesNotFit { .. } => "ModelDoesNotFit",
            Self::NodeSelectorConflict { .. } => "NodeSelectorConflict",
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

impl fmt::Display for SizeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "{}–{}", Count(min), Count(max)),
            (Some(min), None) => write!(f, "{} or more", Count(min)),
            (None, Some(max)) => write!(f, "up to {}", Count(max)),
            (None, None) => f.write_str("any size"),
        }
    }
}

/// Something that was done nonetheless, and that the owner should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub code: String,
    pub message: String,
}

impl Warning {
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

impl Serialize for Rejection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Told { code: self.code().to_owned(), message: self.to_string() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rejection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Told::deserialize(deserializer).map(Self::Recorded)
    }
}

fn or_unstated(text: Option<&str>) -> &str {
    text.unwrap_or("(unstated)")
}

/// A parameter count as people write it: `3.2B`, `405B`, `350M`.
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0 as f64;
        let (scale, suffix) = match self.0 {
            1_000_000_000_000.. => (1e12, "T"),
            1_000_000_000.. => (1e9, "B"),
            1_000_000.. => (1e6, "M"),
            1_000.. => (1e3, "K"),
            _ => (1.0, ""),
        };
        let rounded = (count / scale * 100.0).round() / 100.0;
        write!(f, "{rounded}{suffix}")
    }
}

struct Gibibytes(u64);

impl fmt::Display for Gibibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gibibytes = self.0 as f64 / f64::from(1 << 30);
        write!(f, "{} GiB", (gibibytes * 10.0).round() / 10.0)
    }
}

struct Gigabytes(u64);

impl fmt::Display for Gigabytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = self.0 as f64 / 1e9;
        write!(f, "{} GB", (gigabytes * 10.0).round() / 10.0)
    }
}

struct Offered<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Offered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("none stated"),
        }
    }
}
