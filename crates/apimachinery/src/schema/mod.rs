//! Structural schemas of custom resources: default, prune, validate, CEL rules. A write runs them in the order
//! prune, default, validate, rules.

mod cost;
mod defaults;
mod definition;
mod formats;
mod keywords;
mod misfits;
mod node;
mod optionals;
mod parse;
mod paths;
mod prune;
mod rule_types;
mod rules;
mod structural;
mod validate;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::status::Cause;
use crate::structure::Structure;
pub use defaults::Nulls;
pub use misfits::Depth;
use node::Node;
use rules::Rules;

/// A compiled `openAPIV3Schema`; cheap to share, made once per version of a resource.
#[derive(Clone, Debug)]
pub struct Schema {
    root: Arc<Node>,
    rules: Rules,
}

impl Schema {
    /// Compiles an `openAPIV3Schema`.
    ///
    /// # Errors
    /// What is not structural or does not compile, in one sentence that starts with the place.
    pub fn from_json(schema: &Value) -> Result<Self, String> {
        let root = Arc::new(parse::root(schema)?);
        Ok(Self { root, rules: Rules::compile(schema)? })
    }

    /// Fills in defaults; drops null where the schema does not allow it, as the API server does before defaulting.
    pub fn default(&self, object: &mut Value) {
        defaults::apply(&self.root, object, Nulls::Dropped);
    }

    /// Fills in defaults.
    pub fn default_with(&self, object: &mut Value, nulls: Nulls) {
        defaults::apply(&self.root, object, nulls);
    }

    /// Drops what the schema does not know; returns the paths, e.g. `spec.items[0].foo`, sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::apply(&self.root, object)
    }

    /// What of an applied configuration cannot be owned, each with its place; metadata is not looked at.
    pub fn misfits(&self, structure: &Structure, applied: &Value, depth: Depth) -> BTreeSet<String> {
        misfits::find(&self.root, structure, applied, depth)
    }

    /// Types, required fields, enums, ranges, patterns, list types. No CEL.
    pub fn validate(&self, object: &Value) -> Vec<Cause> {
        validate::check(&self.root, object)
    }

    /// `x-kubernetes-validations`; `old` is the stored object of an update, for rules with `oldSelf`.
    pub fn check_rules(&self, new: &Value, old: Option<&Value>) -> Vec<Cause> {
        self.rules.check(new, old)
    }
}

/// What is wrong with an `openAPIV3Schema` that stands at `path`; nothing of one that [`Schema::from_json`] compiles and
/// kube-apiserver takes.
#[must_use]
pub fn problems(schema: &Value, path: &str) -> Vec<Cause> {
    definition::problems(schema, path)
}

/// The `type` of the field at a path as `.spec.color` in an `openAPIV3Schema`.
///
/// # Errors
/// Why there is no such field.
pub fn kind_at<'s>(schema: &'s Value, path: &str) -> Result<&'s str, &'static str> {
    definition::kind_at(schema, path)
}

/// `path.field`, or `field` at the root.
fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// What every object has beside its schema.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];
