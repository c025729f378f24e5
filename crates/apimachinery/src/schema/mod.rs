//! Structural schemas of custom resources: pruning, defaulting, validation and CEL rules, applied in this order on write.
//!
//! Layers, from low to high:
//! - the schema: `openapi` (its JSON form), `paths`, `node` (its compiled form), `parse`, which compiles it with
//!   its `patterns`;
//! - operations on objects: `defaults`, `prune`, `typing`, and those that return a `violation`: `validate` (with `formats`),
//!   `rules` (with `cost`, `optionals`, `rule_check`);
//! - `compiled`: one type with all operations;
//! - `definition`: validation of a schema itself (with `structural`, `keywords`).

mod compiled;
mod cost;
mod defaults;
mod definition;
mod formats;
mod keywords;
mod node;
mod openapi;
mod optionals;
mod parse;
mod paths;
mod patterns;
mod prune;
mod rule_check;
mod rules;
mod structural;
mod typing;
mod validate;
mod violation;

pub use compiled::Schema;
pub use defaults::NullPolicy;
pub use definition::{field_type_at, validate_openapi_schema};
pub use typing::TypeCheck;
pub use violation::{Constraint, RuleReason, SchemaViolation};
