//! The compiled form of a structural schema.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

/// A compiled schema and its nested schemas.
#[derive(Clone, Debug, Default)]
pub(super) struct SchemaNode {
    pub schema_type: Option<SchemaType>,
    pub nullable: bool,
    pub preserve_unknown_fields: bool,
    /// Set for the root and embedded resources, which have `apiVersion`, `kind` and `metadata`.
    pub is_resource: bool,
    pub default: Option<Value>,
    pub properties: BTreeMap<String, SchemaNode>,
    pub additional: AdditionalProperties,
    pub items: Option<Box<SchemaNode>>,
    pub list_type: ListType,
    pub validations: ValueValidations,
    pub junctors: Junctors,
}

/// `type`, or `x-kubernetes-int-or-string`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`, which replaces `type`.
    IntOrString,
}

/// `additionalProperties`: fields that `properties` does not list.
#[derive(Clone, Debug, Default)]
pub(super) enum AdditionalProperties {
    /// Absent or `false`: all other fields are unknown.
    #[default]
    Unset,
    /// `true`: values of other fields are not restricted.
    Any,
    /// Schema of the values of all other fields.
    Schema(Box<SchemaNode>),
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default)]
pub(super) enum ListType {
    /// Duplicates are permitted, unless `uniqueItems` is set.
    #[default]
    Atomic,
    /// No two elements are equal.
    Set,
    /// No two elements are equal in these fields (`x-kubernetes-list-map-keys`).
    Map(Vec<String>),
}

/// Value validations: keywords that restrict values and define no structure.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueValidations {
    pub required: Vec<String>,
    pub enum_values: Vec<Value>,
    pub format: Option<String>,
    pub pattern: Option<Regex>,
    pub minimum: Option<NumericBound>,
    pub maximum: Option<NumericBound>,
    pub multiple_of: Option<f64>,
    pub length: CountRange,
    pub items: CountRange,
    pub properties: CountRange,
    pub unique_items: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NumericBound {
    pub value: f64,
    pub exclusive: bool,
}

/// Inclusive bounds of a count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountRange {
    pub min: Option<u64>,
    pub max: Option<u64>,
}

/// Logical junctors of value validations.
#[derive(Clone, Debug, Default)]
pub(super) struct Junctors {
    pub all_of: Vec<SchemaNode>,
    pub any_of: Vec<SchemaNode>,
    pub one_of: Vec<SchemaNode>,
    pub not: Option<Box<SchemaNode>>,
}

// === impl SchemaType ===

impl SchemaType {
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

    pub(super) fn matches(self, value: &Value) -> bool {
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

/// Reports whether `value` is integral. `1.0` counts as integral because JSON does not distinguish it from `1`.
fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
}
