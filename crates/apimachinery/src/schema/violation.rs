//! Violations of a schema and of its CEL rules, with the messages of the API server.

use std::fmt;

use serde_json::Value;

use crate::status::{StatusCause, format_value};

/// A value that its schema or one of its CEL rules does not accept.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemaViolation {
    /// Path of the field, such as `spec.items[0].name`; empty for the whole object.
    pub field: String,
    /// The value as the API server quotes it: the name of its type if the type or a junctor is violated, and the number
    /// of elements if there are too few or too many. Null if the field is not set.
    pub value: Value,
    /// The constraint that the value violates.
    pub constraint: Constraint,
}

/// A constraint of a schema on a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    /// `required`.
    Required,
    /// `type`.
    Type(&'static str),
    /// `format`, such as `int32`.
    Format(String),
    /// `enum`.
    Enum(Vec<Value>),
    /// `maxLength`.
    MaxLength(u64),
    /// `minLength`.
    MinLength(u64),
    /// `pattern`.
    Pattern(String),
    /// `minimum`.
    Minimum {
        /// The bound.
        bound: f64,
        /// Whether the bound itself is rejected.
        exclusive: bool,
    },
    /// `maximum`.
    Maximum {
        /// The bound.
        bound: f64,
        /// Whether the bound itself is rejected.
        exclusive: bool,
    },
    /// `multipleOf`.
    MultipleOf(f64),
    /// `minItems` or `minProperties`.
    MinCount {
        /// Minimum number of elements.
        min: u64,
        /// `items` or `properties`.
        unit: &'static str,
    },
    /// `maxItems` or `maxProperties`.
    MaxCount {
        /// Maximum number of elements.
        max: u64,
        /// `items` or `properties`.
        unit: &'static str,
    },
    /// Unique elements or keys of a list.
    Unique,
    /// `anyOf`, `oneOf` or `not`; contains the error message.
    Junctor(&'static str),
    /// A CEL rule.
    Rule {
        /// `reason` of the rule.
        reason: RuleReason,
        /// Message of the rule, or why it cannot be evaluated.
        message: String,
    },
}

/// `reason` of a CEL rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleReason {
    /// `FieldValueInvalid`, the default.
    Invalid,
    /// `FieldValueRequired`.
    Required,
    /// `FieldValueForbidden`.
    Forbidden,
    /// `FieldValueDuplicate`.
    Duplicate,
}

// === impl SchemaViolation ===

impl SchemaViolation {
    pub(super) fn new(field: impl Into<String>, value: impl Into<Value>, constraint: Constraint) -> Self {
        Self { field: field.into(), value: value.into(), constraint }
    }

    /// Returns the cause that the API server reports.
    #[must_use]
    pub fn cause(&self) -> StatusCause {
        self.cause_with_path(&self.field)
    }

    /// Returns the cause with `path` instead of the field in its message. In status updates, the API server writes paths
    /// in messages relative to `status`.
    #[must_use]
    pub fn cause_with_path(&self, path: &str) -> StatusCause {
        let Self { field, value, constraint } = self;
        let in_body = || StatusCause::invalid(field, value, &format!("{path} in body {constraint}"));
        match constraint {
            Constraint::Required => StatusCause::required(field, ""),
            Constraint::Type(_) => {
                StatusCause::new(field, "FieldValueTypeInvalid", format!("{}: {value}", in_body().message))
            }
            Constraint::Format(_) => {
                let message = format!("Invalid value: {value}: {path} in body {constraint}: {value}");
                StatusCause::new(field, "FieldValueTypeInvalid", message)
            }
            Constraint::Enum(supported) => StatusCause::not_supported(field, value, supported),
            Constraint::MaxLength(_) => StatusCause::new(field, "FieldValueTooLong", format!("Too long: {constraint}")),
            Constraint::MaxCount { .. } => {
                StatusCause::new(field, "FieldValueTooMany", format!("Too many: {value}: {constraint}"))
            }
            Constraint::MinLength(_)
            | Constraint::Pattern(_)
            | Constraint::Minimum { .. }
            | Constraint::Maximum { .. }
            | Constraint::MultipleOf(_)
            | Constraint::MinCount { .. }
            | Constraint::Junctor(_) => in_body(),
            Constraint::Unique => StatusCause::duplicate(field, value),
            Constraint::Rule { reason, message } => match reason {
                RuleReason::Required => StatusCause::required(field, message),
                RuleReason::Forbidden => StatusCause::forbidden(field, message),
                RuleReason::Duplicate => StatusCause::duplicate(field, value),
                // Only scalar values are quoted; others would obscure the message.
                RuleReason::Invalid if value.is_object() || value.is_array() || value.is_null() => {
                    StatusCause::new(field, "FieldValueInvalid", format!("Invalid value: {message}"))
                }
                RuleReason::Invalid => StatusCause::invalid(field, value, message),
            },
        }
    }
}

/// Formats the violation as its cause.
impl fmt::Display for SchemaViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause().fmt(f)
    }
}

// === impl Constraint ===

/// Formats what is required of the value, without the value.
impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required => f.write_str("Required value"),
            Self::Type(name) => write!(f, "must be of type {name}"),
            Self::Format(format) => write!(f, "must be of type {format}"),
            Self::Enum(supported) => {
                let supported: Vec<String> = supported.iter().map(format_value).collect();
                write!(f, "supported values: {}", supported.join(", "))
            }
            Self::MaxLength(max) => write!(f, "may not be more than {max} bytes"),
            Self::MinLength(min) => write!(f, "should be at least {min} chars long"),
            Self::Pattern(pattern) => write!(f, "should match '{pattern}'"),
            Self::Minimum { bound, exclusive: false } => write!(f, "should be greater than or equal to {bound}"),
            Self::Minimum { bound, exclusive: true } => write!(f, "should be greater than {bound}"),
            Self::Maximum { bound, exclusive: false } => write!(f, "should be less than or equal to {bound}"),
            Self::Maximum { bound, exclusive: true } => write!(f, "should be less than {bound}"),
            Self::MultipleOf(factor) => write!(f, "should be a multiple of {factor}"),
            Self::MinCount { min, unit } => write!(f, "should have at least {min} {unit}"),
            Self::MaxCount { max, unit } => write!(f, "must have at most {max} {unit}"),
            Self::Unique => f.write_str("must be unique"),
            Self::Junctor(message) => f.write_str(message),
            Self::Rule { message, .. } => f.write_str(message),
        }
    }
}
