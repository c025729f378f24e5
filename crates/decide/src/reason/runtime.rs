//! Why a runtime cannot serve.

use std::fmt;

use api::code::Code;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::words::{Listed, SHOWN, or_unstated};
use super::{ClassRejection, Count, Told, Unstated, to_state};
use crate::code;
use crate::deferred::Deferred;
use crate::size::SizeRange;

/// Code of a runtime that only lacks a class, and of a decision whose nearest runtime is such a one.
pub const NO_ELIGIBLE_ACCELERATOR: &str = code::runtime::NO_ELIGIBLE_ACCELERATOR.as_str();

/// Why a runtime cannot serve, in the order of the checks.
#[derive(Clone, Debug, PartialEq)]
pub enum Rejection {
    Disabled,
    /// The model leaves unstated what the runtime's entry states: all such fields, the one that was asked first in front.
    Unstated {
        fields: Vec<Unstated>,
        /// What would fail next if the model said them: then saying them is not enough.
        next: Option<Box<Rejection>>,
    },
    FormatMismatch {
        wanted: Option<String>,
        /// `None`: the runtime lists no entries at all.
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
        wanted: String,
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
        /// Stage at which the nearest of them failed.
        nearest: u8,
        classes: Deferred<(String, ClassRejection)>,
    },
    Recorded(Told),
}

impl Rejection {
    /// Number of checks.
    pub const STAGES: u8 = 12;

    /// Position of the check that failed: the greater, the nearer the runtime came.
    #[must_use]
    pub fn stage(&self) -> u8 {
        match self {
            Self::Recorded(_) | Self::Disabled => 0,
            Self::Unstated { fields, .. } => fields.first().map_or(0, |first| first.field.stage()),
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

    /// Among failures of one check, the smaller the nearer: parameters between model and range, or checks that the model
    /// with what it leaves unstated, or the nearest class, still had before it.
    #[must_use]
    pub fn distance(&self) -> u64 {
        match self {
            Self::NoEligibleAccelerator { nearest, .. } => u64::from(ClassRejection::STAGES.saturating_sub(*nearest)),
            Self::Unstated { next, .. } => u64::from(next.as_ref().map_or(0, |next| Self::STAGES - next.stage())),
            Self::NamedForAnotherSize { parameters, size } => parameters.abs_diff(*size),
            Self::SizeOutOfRange { parameters, range } => {
                let below = range.min.map_or(0, |min| min.saturating_sub(*parameters));
                let above = range.max.map_or(0, |max| parameters.saturating_sub(max));
                below.max(above)
            }
            _ => 0,
        }
    }

    /// The code as it is published.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Recorded(told) => &told.code,
            other => other.known().map_or("", Code::as_str),
        }
    }

    /// The code with its meaning; `None` for one that was read back.
    #[must_use]
    pub fn known(&self) -> Option<Code> {
        Some(match self {
            Self::Disabled => code::runtime::DISABLED,
            Self::Unstated { fields, .. } => {
                fields.first().map_or(code::runtime::FORMAT_MISMATCH, |first| first.field.code())
            }
            Self::FormatMismatch { .. } => code::runtime::FORMAT_MISMATCH,
            Self::FormatVersionMismatch { .. } => code::runtime::FORMAT_VERSION_MISMATCH,
            Self::FrameworkMismatch { .. } => code::runtime::FRAMEWORK_MISMATCH,
            Self::FrameworkVersionMismatch { .. } => code::runtime::FRAMEWORK_VERSION_MISMATCH,
            Self::ArchitectureMismatch { .. } => code::runtime::ARCHITECTURE_MISMATCH,
            Self::QuantizationMismatch { .. } => code::runtime::QUANTIZATION_MISMATCH,
            Self::PipelineMismatch { .. } => code::runtime::PIPELINE_MISMATCH,
            Self::SizeOutOfRange { .. } | Self::NamedForAnotherSize { .. } => code::runtime::SIZE_OUT_OF_RANGE,
            Self::ProtocolUnsupported { .. } => code::runtime::PROTOCOL_UNSUPPORTED,
            Self::AutoSelectDisabled => code::runtime::AUTO_SELECT_DISABLED,
            Self::NoEligibleAccelerator { .. } => code::runtime::NO_ELIGIBLE_ACCELERATOR,
            Self::Recorded(_) => return None,
        })
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("the runtime is disabled"),
            Self::Unstated { fields, next: None } => {
                write!(f, "the model does not say what the runtime asks for; {}", to_state(fields))
            }
            Self::Unstated { fields, next: Some(next) } => {
                let (code, fields) = (next.code(), to_state(fields));
                write!(f, "the model does not say what the runtime asks for; {fields}; besides, {code}: {next}")
            }
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
                write!(f, "model architecture {wanted}, runtime {offered}")
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
            Self::NoEligibleAccelerator { component, classes, .. } => no_eligible(f, component, classes),
            Self::Recorded(told) => f.write_str(&told.message),
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
