//! Structural schemas of custom resources: pruning, defaulting, validation and CEL rules, applied in this order on write.

mod cost;
mod defaults;
mod definition;
mod formats;
mod keywords;
mod node;
mod optionals;
mod parse;
mod paths;
mod prune;
mod rule_check;
mod rules;
mod structural;
mod typing;
mod validate;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::merge_schema::MergeSchema;
use crate::status::StatusCause;
pub use defaults::NullPolicy;
use node::SchemaNode;
use rules::Rules;
pub use typing::TypeCheck;

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
    pub fn validate(&self, object: &Value) -> Vec<StatusCause> {
        validate::validate(&self.root, object)
    }

    /// Evaluates `x-kubernetes-validations`; `old` is the stored object of an update, for rules that use `oldSelf`.
    pub fn check_rules(&self, new: &Value, old: Option<&Value>) -> Vec<StatusCause> {
        self.rules.check(new, old)
    }
}

/// Returns the errors of the `openAPIV3Schema` at `path`; empty if [`Schema::from_json`] and kube-apiserver accept it.
#[must_use]
pub fn validate_openapi_schema(schema: &Value, path: &str) -> Vec<StatusCause> {
    definition::validate(schema, path)
}

/// Returns the `type` of the field at a path such as `.spec.color` in an `openAPIV3Schema`.
///
/// # Errors
/// Fails if `path` does not refer to a field of `schema`.
pub fn field_type_at<'s>(schema: &'s Value, path: &str) -> Result<&'s str, &'static str> {
    definition::type_at(schema, path)
}

/// Returns `path.field`, or `field` at the root.
fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// Keyword of CEL rules.
const VALIDATION_RULES: &str = "x-kubernetes-validations";

/// Fields that every object has regardless of its schema.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];
