//! Why something lost: enums that carry their numbers. Text is made only when shown.
//!
//! Codes are stable and CamelCase. A rejection read back from status is `Recorded`: its numbers are gone, its words are not.

mod class;
mod runtime;
mod unstated;
mod words;

use api::code::Code;
use serde::{Deserialize, Serialize};

pub use crate::size::Count;
pub use class::{ClassRejection, CountLimit, Exclusion};
pub use runtime::{NO_ELIGIBLE_ACCELERATOR, Rejection};
pub(crate) use unstated::to_state;
pub use unstated::{ModelField, Unstated};

/// Code and sentence of a rejection or a warning, as JSON carries them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub code: String,
    pub message: String,
}

/// Something that was done nonetheless, and that the owner should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Warning {
    pub code: String,
    pub message: String,
}

impl Warning {
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}
