//! Selectors: over labels, over a few fields, and over nodes.

mod field;
mod label;
mod node;

pub use field::FieldSelector;
pub use label::{LabelSelector, Operator, Requirement};
pub use node::{node_matches, node_selector_matches};

/// A selector that cannot be read. The API answers 400 with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("unable to parse requirement: {0}")]
    Syntax(String),
    #[error("{0:?} is not a valid label selector operator")]
    UnknownOperator(String),
    #[error("for 'in', 'notin' operators, values set can't be empty")]
    NoValues,
    #[error("for 'Gt', 'Lt' operators, exactly one integer value is required")]
    NoInteger,
    #[error("invalid selector: '{0}'; can't understand '{0}'")]
    Field(String),
}

impl From<SelectorError> for crate::status::Status {
    fn from(error: SelectorError) -> Self {
        Self::bad_request(error.to_string())
    }
}
