//! Label selectors, field selectors and node selector terms.

mod field;
mod label;
mod node;

pub use field::FieldSelector;
pub use label::{LabelSelector, Requirement, SelectorOperator};
pub use node::node_selector_terms_match;

/// Error for a malformed selector; the API server returns it with status 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The text is not a valid label selector.
    #[error("unable to parse requirement: {0}")]
    Syntax(String),
    /// The operator of an expression is unknown.
    #[error("{0:?} is not a valid label selector operator")]
    UnknownOperator(String),
    /// `In` or `NotIn` has no values.
    #[error("for 'in', 'notin' operators, values set can't be empty")]
    NoValues,
    /// `Gt` or `Lt` has a value that is not a single integer.
    #[error("for 'Gt', 'Lt' operators, exactly one integer value is required")]
    NoInteger,
    /// A term of a field selector has no operator.
    #[error("invalid selector: '{0}'; can't understand '{0}'")]
    Field(String),
}

impl From<SelectorError> for crate::status::Status {
    fn from(error: SelectorError) -> Self {
        Self::bad_request(error.to_string())
    }
}
