//! Structural schemas of custom resources.

use serde_json::Value;

use crate::status::Cause;

/// A compiled `openAPIV3Schema`.
#[derive(Debug)]
pub struct Schema {}

impl Schema {
    /// Compiles an `openAPIV3Schema`.
    ///
    /// # Errors
    /// What is not structural, in one sentence.
    pub fn from_json(_schema: &Value) -> Result<Self, String> {
        Ok(Self {})
    }

    /// Fills in defaults.
    pub fn default(&self, _object: &mut Value) {}

    /// Drops unknown fields; returns their paths.
    pub fn prune(&self, _object: &mut Value) -> Vec<String> {
        Vec::new()
    }

    /// Types, required fields, enums, ranges, patterns, list types.
    pub fn validate(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// `x-kubernetes-validations`.
    pub fn check_rules(&self, _new: &Value, _old: Option<&Value>) -> Vec<Cause> {
        Vec::new()
    }
}
