//! The compiled form of one schema node.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

/// One node of a schema.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub kind: Option<Kind>,
    pub nullable: bool,
    pub preserve_unknown: bool,
    /// The root and embedded resources: `apiVersion`, `kind` and `metadata` are known.
    pub is_resource: bool,
    pub default: Option<Value>,
    pub properties: BTreeMap<String, Node>,
    pub additional: Additional,
    pub items: Option<Box<Node>>,
    pub list: ListType,
    pub limits: Limits,
    pub combined: Combined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Additional {
    #[default]
    Unknown,
    Any,
    Schema(Box<Node>),
}

#[derive(Clone, Debug, Default)]
pub(super) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Value validations.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    pub required: Vec<String>,
    pub allowed: Vec<Value>,
    pub format: Option<String>,
    pub pattern: Option<Regex>,
    pub minimum: Option<Bound>,
    pub maximum: Option<Bound>,
    pub multiple_of: Option<f64>,
    pub length: Range,
    pub items: Range,
    pub properties: Range,
    pub unique: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub value: f64,
    pub exclusive: bool,
}

/// Inclusive bounds of a count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub min: Option<u64>,
    pub max: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Combined {
    pub all: Vec<Node>,
    pub any: Vec<Node>,
    pub one: Vec<Node>,
    pub not: Option<Box<Node>>,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }

    pub(super) fn admits(self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Integer => is_integer(value),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::IntOrString => value.is_string() || is_integer(value),
        }
    }
}

/// `1.0` counts: JSON does not tell it from `1`.
fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
}
