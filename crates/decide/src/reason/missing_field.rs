//! Model fields that a runtime requires and the model does not set.

use api::Code;

use crate::code;

/// An unset field of a model, and the value that would match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingField {
    /// The field that the model does not set.
    pub field: ModelField,
    /// The value that the runtime requires.
    pub required: String,
}

/// Fields of a model that a runtime may require, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelField {
    /// `spec.modelFormat.name`.
    Format,
    /// `spec.modelFormat.version`.
    FormatVersion,
    /// `spec.modelFramework.name`.
    Framework,
    /// `spec.modelFramework.version`.
    FrameworkVersion,
    /// `spec.modelArchitecture`.
    Architecture,
}

// === impl ModelField ===

impl ModelField {
    /// Returns the path of the field in the model.
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

    /// Returns the stage of the check that compares the field.
    pub(crate) fn stage(self) -> u8 {
        super::position(code::runtime::ALL, self.code())
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

/// Formats fields as `spec.modelFormat.name: safetensors, spec.modelArchitecture: LlamaForCausalLM`.
pub(crate) fn field_assignments(fields: &[MissingField]) -> String {
    let assignment = |missing: &MissingField| match missing.field {
        ModelField::FormatVersion | ModelField::FrameworkVersion => {
            format!("{}: \"{}\"", missing.field.path(), missing.required)
        }
        field => format!("{}: {}", field.path(), missing.required),
    };
    fields.iter().map(assignment).collect::<Vec<_>>().join(", ")
}
