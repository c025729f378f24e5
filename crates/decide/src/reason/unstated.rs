//! What a model leaves unstated although a runtime asks for it.

use api::code::Code;

use crate::code;

/// A field of a model that says nothing, and what it must say to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstated {
    pub field: ModelField,
    pub wanted: String,
}

/// Fields of a model that runtimes ask for, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelField {
    Format,
    FormatVersion,
    Framework,
    FrameworkVersion,
    Architecture,
}

impl ModelField {
    /// Where the model says it.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Format => "spec.modelFormat.name",
            Self::FormatVersion => "spec.modelFormat.version",
            Self::Framework => "spec.modelFramework.name",
            Self::FrameworkVersion => "spec.modelFramework.version",
            Self::Architecture => "spec.modelArchitecture",
        }
    }

    pub(crate) fn stage(self) -> u8 {
        match self {
            Self::Format => 1,
            Self::FormatVersion => 2,
            Self::Framework => 3,
            Self::FrameworkVersion => 4,
            Self::Architecture => 5,
        }
    }

    pub(super) fn code(self) -> Code {
        match self {
            Self::Format => code::runtime::FORMAT_MISMATCH,
            Self::FormatVersion => code::runtime::FORMAT_VERSION_MISMATCH,
            Self::Framework => code::runtime::FRAMEWORK_MISMATCH,
            Self::FrameworkVersion => code::runtime::FRAMEWORK_VERSION_MISMATCH,
            Self::Architecture => code::runtime::ARCHITECTURE_MISMATCH,
        }
    }
}

/// `spec.modelFormat.name: safetensors, spec.modelArchitecture: LlamaForCausalLM`
pub(crate) fn to_state(fields: &[Unstated]) -> String {
    let one = |unstated: &Unstated| match unstated.field {
        ModelField::FormatVersion | ModelField::FrameworkVersion => {
            format!("{}: \"{}\"", unstated.field.path(), unstated.wanted)
        }
        field => format!("{}: {}", field.path(), unstated.wanted),
    };
    fields.iter().map(one).collect::<Vec<_>>().join(", ")
}
