//! A compiled schema and the operations on objects of its kind.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::defaults::{self, NullPolicy};
use super::node::SchemaNode;
use super::rules::Rules;
use super::typing::{self, TypeCheck};
use super::violation::SchemaViolation;
use super::{parse, prune, validate};
use crate::merge_schema::MergeSchema;

/// A compiled `openAPIV3Schema`; cheap to clone, compiled once per version of a resource.
#[derive(Clone, Debug)]
pub struct Schema {
    root: Arc<SchemaNode>,
    rules: Rules,
}

impl Schema {
    /// Compiles an `openAPIV3Schema`.
    ///
    /// # Errors
    /// Fails if the schema is not structural or a rule does not compile; the message starts with the path.
    pub fn from_json(schema: &Value) -> Result<Self, String> {
        let root = Arc::new(parse::root(schema)?);
        Ok(Self { root, rules: Rules::compile(schema)? })
    }

    /// Fills in defaults; first removes null from fields that are not nullable, as the API server does.
    pub fn default(&self, object: &mut Value) {
        defaults::apply(&self.root, object, NullPolicy::Prune);
    }

    /// Fills in defaults; `nulls` selects how null in fields that are not nullable is treated.
    pub fn default_with(&self, object: &mut Value, nulls: NullPolicy) {
        defaults::apply(&self.root, object, nulls);
    }

    /// Removes fields that the schema does not specify; returns their paths, e.g. `spec.items[0].foo`, sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::apply(&self.root, object)
    }

    /// Returns the typing errors of an applied configuration, each prefixed with its path; `metadata` is not checked.
    pub fn typing_errors(&self, merge_schema: &MergeSchema, applied: &Value, check: TypeCheck) -> BTreeSet<String> {
        typing::errors(&self.root, merge_schema, applied, check)
    }

    /// Validates types, required fields, enums, ranges, patterns and list types, but not CEL rules.
    pub fn validate(&self, object: &Value) -> Vec<SchemaViolation> {
        validate::validate(&self.root, object, None)
    }

    /// Validates like [`Self::validate`], except for values that are equal in the stored object `old`.
    pub fn validate_update(&self, new: &Value, old: &Value) -> Vec<SchemaViolation> {
        validate::validate(&self.root, new, Some(old))
    }

    /// Evaluates `x-kubernetes-validations`; `old` is the stored object of an update, for rules that use `oldSelf`.
    pub fn check_rules(&self, new: &Value, old: Option<&Value>) -> Vec<SchemaViolation> {
        self.rules.check(new, old)
    }
}
