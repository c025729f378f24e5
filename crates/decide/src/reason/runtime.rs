//! Reasons why a runtime cannot serve.

use std::fmt;

use api::Code;
use serde::{Serialize, Serializer};

use super::format::{AbbreviatedList, MAX_LISTED, ShortList, or_unset};
use super::{ClassRejection, MissingField, RenderedReason, field_assignments};
use crate::code;
use crate::lazy_list::LazyList;
use crate::size::{DisplayCount, SizeRange};

/// Why a runtime cannot serve. `required` is the value of the model or the service, `offered` the value of the runtime.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeRejection {
    /// `spec.disabled` is set.
    Disabled,
    /// The model does not set fields that the runtime's format entry requires.
    MissingFields {
        /// The missing fields, in the order of the checks.
        fields: Vec<MissingField>,
        /// The next check that fails even if the fields are set.
        next: Option<Box<RuntimeRejection>>,
    },
    /// The model formats differ.
    FormatMismatch {
        /// Format of the model.
        required: Option<String>,
        /// `None` if the runtime has no format entries.
        offered: Option<String>,
    },
    /// The versions of the model format differ.
    FormatVersionMismatch {
        /// Version of the model.
        required: String,
        /// Versions that the runtime accepts.
        offered: String,
    },
    /// The model frameworks differ.
    FrameworkMismatch {
        /// Framework of the model.
        required: String,
        /// Framework of the runtime.
        offered: String,
    },
    /// The versions of the model framework differ.
    FrameworkVersionMismatch {
        /// Version of the model.
        required: String,
        /// Versions that the runtime accepts.
        offered: String,
    },
    /// The model architectures differ.
    ArchitectureMismatch {
        /// Architecture of the model.
        required: String,
        /// Architecture of the runtime.
        offered: String,
    },
    /// The quantizations differ.
    QuantizationMismatch {
        /// Quantization of the model.
        required: Option<String>,
        /// Quantization of the runtime.
        offered: Option<String>,
    },
    /// The diffusion pipelines differ.
    PipelineMismatch {
        /// Class name of the model's pipeline.
        required: Option<String>,
        /// Class name of the runtime's pipeline.
        offered: Option<String>,
    },
    /// The model's size is outside `modelSizeRange`.
    SizeOutOfRange {
        /// Number of parameters of the model.
        parameters: u64,
        /// Range of the runtime.
        range: SizeRange,
    },
    /// The runtime does not support the protocol.
    ProtocolUnsupported {
        /// Protocol of the service.
        required: String,
        /// Protocols of the runtime.
        offered: Vec<String>,
    },
    /// The engine of the runtime only generates text, and the model has another task.
    TaskUnsupported,
    /// The engine of the runtime does not load LoRA adapters.
    AdaptersUnsupported {
        /// The engine; `None` if it is unknown.
        engine: Option<&'static str>,
    },
    /// The service requests dual pods, and the engine of the runtime cannot sleep.
    EngineCannotSleep {
        /// The engine; `None` if it is unknown.
        engine: Option<&'static str>,
    },
    /// The runtime matches, but serves only services that name it.
    AutoSelectDisabled,
    /// No class is eligible for a component.
    NoEligibleAccelerator {
        /// The component.
        component: &'static str,
        /// The latest stage that any class reached.
        furthest_stage: u8,
        /// Rejected classes, in the order of the record.
        classes: LazyList<(String, ClassRejection)>,
    },
    /// Classes are not considered, and no known node has the accelerators that Pods of a component request.
    AcceleratorUnavailable {
        /// The component.
        component: &'static str,
        /// The accelerators.
        accelerators: UnavailableAccelerators,
    },
}

/// Accelerators that Pods request although no known node has as many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnavailableAccelerators {
    /// Name of the resource.
    pub resource: String,
    /// Units that a Pod requests.
    pub requested: u32,
    /// Units of the largest node; 0 if no node has the resource.
    pub largest: u32,
}

impl RuntimeRejection {
    /// Returns the number of checks.
    fn stages() -> u8 {
        u8::try_from(code::runtime::ALL.len()).unwrap_or(u8::MAX)
    }

    /// Returns the position of the failed check in [`code::runtime::ALL`]. A runtime with a greater stage passed more checks.
    #[must_use]
    pub fn stage(&self) -> u8 {
        super::position(code::runtime::ALL, self.code())
    }

    /// Returns the number of further checks that the model (with its missing fields set) or the closest class did not pass;
    /// comparable between rejections of one stage.
    #[must_use]
    pub fn remaining_checks(&self) -> u64 {
        match self {
            Self::NoEligibleAccelerator { furthest_stage, .. } => {
                u64::from(ClassRejection::stages().saturating_sub(*furthest_stage))
            }
            Self::MissingFields { next, .. } => {
                u64::from(next.as_ref().map_or(0, |next| Self::stages().saturating_sub(next.stage())))
            }
            _ => 0,
        }
    }

    /// Returns how far a runtime is from passing the failed check, in parameters between model and range; 0 for other checks.
    /// Comparable between rejections of one stage.
    #[must_use]
    pub fn distance(&self) -> u64 {
        match self {
            Self::SizeOutOfRange { parameters, range } => range.distance(*parameters),
            _ => 0,
        }
    }

    /// Returns the message without the classes that it lists; `None` if it lists none.
    #[must_use]
    pub fn without_classes(&self) -> Option<String> {
        match self {
            Self::NoEligibleAccelerator { component, .. } => Some(no_eligible_class(component)),
            _ => None,
        }
    }

    /// Returns the published code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Disabled => code::runtime::DISABLED,
            Self::MissingFields { fields, .. } => {
                fields.first().map_or(code::runtime::FORMAT_MISMATCH, |first| first.field.code())
            }
            Self::FormatMismatch { .. } => code::runtime::FORMAT_MISMATCH,
            Self::FormatVersionMismatch { .. } => code::runtime::FORMAT_VERSION_MISMATCH,
            Self::FrameworkMismatch { .. } => code::runtime::FRAMEWORK_MISMATCH,
            Self::FrameworkVersionMismatch { .. } => code::runtime::FRAMEWORK_VERSION_MISMATCH,
            Self::ArchitectureMismatch { .. } => code::runtime::ARCHITECTURE_MISMATCH,
            Self::QuantizationMismatch { .. } => code::runtime::QUANTIZATION_MISMATCH,
            Self::PipelineMismatch { .. } => code::runtime::PIPELINE_MISMATCH,
            Self::SizeOutOfRange { .. } => code::runtime::SIZE_OUT_OF_RANGE,
            Self::ProtocolUnsupported { .. } => code::runtime::PROTOCOL_UNSUPPORTED,
            Self::TaskUnsupported => code::runtime::TASK_UNSUPPORTED,
            Self::AdaptersUnsupported { .. } => code::runtime::ADAPTERS_UNSUPPORTED,
            Self::EngineCannotSleep { .. } => code::runtime::ENGINE_CANNOT_SLEEP,
            Self::AutoSelectDisabled => code::runtime::AUTO_SELECT_DISABLED,
            Self::NoEligibleAccelerator { .. } => code::runtime::NO_ELIGIBLE_ACCELERATOR,
            Self::AcceleratorUnavailable { .. } => code::runtime::ACCELERATOR_UNAVAILABLE,
        }
    }
}

impl fmt::Display for RuntimeRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("the runtime is disabled"),
            Self::MissingFields { fields, next } => {
                let fields = field_assignments(fields);
                write!(f, "the model does not set fields that the runtime requires: {fields}")?;
                match next {
                    Some(next) => write!(f, "; in addition, {}: {next}", next.code()),
                    None => Ok(()),
                }
            }
            Self::FormatMismatch { offered: None, .. } => f.write_str("the runtime has no supportedModelFormats"),
            Self::FormatMismatch { required, offered } => {
                let (required, offered) = (or_unset(required.as_deref()), or_unset(offered.as_deref()));
                write!(f, "the model has format {required}; the runtime supports {offered}")
            }
            Self::FormatVersionMismatch { required, offered } => {
                write!(f, "the model has format version {required}; the runtime supports {offered}")
            }
            Self::FrameworkMismatch { required, offered } => {
                write!(f, "the model has framework {required}; the runtime supports {offered}")
            }
            Self::FrameworkVersionMismatch { required, offered } => {
                write!(f, "the model has framework version {required}; the runtime supports {offered}")
            }
            Self::ArchitectureMismatch { required, offered } => {
                write!(f, "the model has architecture {required}; the runtime supports {offered}")
            }
            Self::QuantizationMismatch { required, offered } => {
                let (required, offered) = (or_unset(required.as_deref()), or_unset(offered.as_deref()));
                write!(f, "the model has quantization {required}; the runtime supports {offered}")
            }
            Self::PipelineMismatch { required, offered } => {
                let (required, offered) = (or_unset(required.as_deref()), or_unset(offered.as_deref()));
                write!(f, "the model has diffusion pipeline {required}; the runtime supports {offered}")
            }
            Self::SizeOutOfRange { parameters, range } => {
                write!(f, "the model has {} parameters; the runtime supports {range}", DisplayCount(*parameters))
            }
            Self::ProtocolUnsupported { required, offered } => {
                write!(f, "the service requires protocol {required}; the runtime supports {}", AbbreviatedList(offered))
            }
            Self::TaskUnsupported => {
                f.write_str("the model computes embeddings or scores; the engine of the runtime only generates text")
            }
            Self::AdaptersUnsupported { engine } => {
                let engine = engine.unwrap_or("an unknown engine");
                write!(
                    f,
                    "the service has fineTunedWeights, and the runtime starts {engine}; only vllm and sglang are supported"
                )
            }
            Self::EngineCannotSleep { engine } => {
                let engine = engine.unwrap_or("an unknown engine");
                write!(f, "the service requests dual pods, and the runtime starts {engine}; only vllm can sleep")
            }
            Self::AutoSelectDisabled => {
                f.write_str("the runtime matches, but autoSelect is off; set spec.runtime.name to use it")
            }
            Self::NoEligibleAccelerator { component, classes, .. } => fmt_no_eligible_class(f, component, classes),
            Self::AcceleratorUnavailable { component, accelerators } => {
                let UnavailableAccelerators { resource, requested, largest } = accelerators;
                write!(f, "the {component} requests {requested} × {resource} per Pod; ")?;
                match largest {
                    0 => f.write_str("no node has this resource"),
                    _ => write!(f, "the largest node has {largest}"),
                }
            }
        }
    }
}

fn no_eligible_class(component: &str) -> String {
    format!("no accelerator class is eligible for the {component}")
}

fn fmt_no_eligible_class(
    f: &mut fmt::Formatter<'_>,
    component: &str,
    classes: &[(String, ClassRejection)],
) -> fmt::Result {
    f.write_str(&no_eligible_class(component))?;
    let groups = classes_by_reason(classes);
    for (index, (reason, names)) in groups.iter().take(MAX_LISTED).enumerate() {
        write!(f, "{}{} {reason}", if index == 0 { ": " } else { "; " }, ShortList(names))?;
    }
    match groups.iter().skip(MAX_LISTED).map(|(_, names)| names.len()).sum() {
        0 => Ok(()),
        more => write!(f, "; and {more} more"),
    }
}

/// Returns the names of the classes with the same code and message, in the order of the first one: most shipped classes are
/// rejected because no nodes match them.
fn classes_by_reason(classes: &[(String, ClassRejection)]) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (class, rejection) in classes {
        let reason = format!("{}: {rejection}", rejection.code());
        match groups.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, names)) => names.push(class.clone()),
            None => groups.push((reason, vec![class.clone()])),
        }
    }
    groups
}

impl Serialize for RuntimeRejection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RenderedReason { code: self.code().as_str(), message: self.to_string() }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_follow_the_order_of_the_checks() {
        let stages: Vec<(&str, u8)> = code::runtime::ALL
            .iter()
            .map(|code| (code.as_str(), super::super::position(code::runtime::ALL, *code)))
            .collect();
        let expected = [
            ("Disabled", 0),
            ("FormatMismatch", 1),
            ("FormatVersionMismatch", 2),
            ("FrameworkMismatch", 3),
            ("FrameworkVersionMismatch", 4),
            ("ArchitectureMismatch", 5),
            ("QuantizationMismatch", 6),
            ("PipelineMismatch", 7),
            ("SizeOutOfRange", 8),
            ("ProtocolUnsupported", 9),
            ("TaskUnsupported", 10),
            ("AdaptersUnsupported", 11),
            ("EngineCannotSleep", 12),
            ("AutoSelectDisabled", 13),
            ("NoEligibleAccelerator", 14),
            ("AcceleratorUnavailable", 15),
        ];
        assert_eq!(stages, expected);
        assert_eq!(RuntimeRejection::stages(), 16);
    }

    #[test]
    fn missing_fields_have_the_stage_of_their_check() {
        let fields = [
            (super::super::ModelField::Format, 1),
            (super::super::ModelField::FormatVersion, 2),
            (super::super::ModelField::Framework, 3),
            (super::super::ModelField::FrameworkVersion, 4),
            (super::super::ModelField::Architecture, 5),
        ];
        for (field, stage) in fields {
            assert_eq!(field.stage(), stage);
        }
    }
}
