//! Why something lost: enums that carry their numbers. Text is made only when shown.
//!
//! Codes are stable and CamelCase. A rejection read back from status is `Recorded`: its numbers are gone, its words are not.

mod class;
mod runtime;
mod words;

use serde::{Deserialize, Serialize};

pub use class::{ClassRejection, CountLimit, Exclusion};
pub use runtime::{NO_ELIGIBLE_ACCELERATOR, Rejection};
pub use words::Count;

/// Code and sentence of a rejection or a warning, as JSON carries them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub code: String,
    pub message: String,
}

/// Something that was done nonetheless, and that the owner should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub code: String,
    pub message: String,
}

impl Warning {
    /// The choice waits until others let accelerators go.
    pub const NO_FREE_CAPACITY: &str = "NoFreeCapacity";
    /// A runtime that cannot be read is left out of the choice.
    pub const INVALID_RUNTIME: &str = "InvalidRuntime";
    /// Likewise a class.
    pub const INVALID_CLASS: &str = "InvalidClass";
    /// Likewise a model.
    pub const INVALID_MODEL: &str = "InvalidModel";

    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}
