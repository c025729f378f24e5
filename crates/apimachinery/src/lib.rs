//! Kubernetes object semantics: quantities, selectors, structural schemas, patches and server-side apply; pure.
//!
//! Input: objects as `serde_json::Value` and the schema of their type. Output: new objects, or a [`Status`] with the
//! message of the Kubernetes API server. The crate uses no clock, socket or random number, and never converts objects
//! to generated structs, so unknown and newer fields survive.
//!
//! Layers, from low to high:
//! - values: `quantity`, `resource_list`, `int_or_percent`, `time`, `hash`, `go` (Go's formatting), `expansion` (of variables), `status`; `panic`, `panic_back_off`;
//! - access to objects and the built-in kinds: `object`, `condition`, `pod`, `persistent_volume`, `disruption_budget`;
//! - `merge_schema`: how the fields of a type merge;
//! - operations on objects: `apply`, `patch`, `selector`;
//! - `schema`: definitions of custom resources.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests pass `json!(…)` by value"))]

mod apply;
pub mod condition;
pub mod disruption_budget;
mod expansion;
mod go;
mod hash;
mod int_or_percent;
mod merge_schema;
pub mod object;
mod panic;
mod panic_back_off;
mod patch;
pub mod persistent_volume;
pub mod pod;
mod quantity;
mod resource_list;
mod schema;
mod selector;
mod status;
pub mod time;

pub use apply::{
    ApplyOptions, UpdateOptions, equal_ignoring_timestamps, server_side_apply, track_update, typed_patch_error,
};
pub use expansion::expand_variables;
pub use go::{go_format_struct, go_format_syntax, go_format_value, go_type_name};
pub use hash::fnv1a_32;
pub use int_or_percent::scaled_int_or_percent;
pub use merge_schema::{MergeSchema, builtin_merge_schema, openapi_merge_schema};
pub use panic::{CaughtPanic, catch_future_panic, catch_panic};
pub use panic_back_off::{PanicBackOff, panic_retry_delay};
pub use patch::{apply_json_patch, apply_merge_patch, apply_strategic_merge_patch};
pub use quantity::{Quantity, QuantityError};
pub use resource_list::{ResourceList, add_resources, add_resources_of_pods, parse_resource_list, pod_requests};
pub use schema::{
    Constraint, NullPolicy, RuleReason, Schema, SchemaViolation, TypeCheck, field_type_at, validate_openapi_schema,
};
pub use selector::{
    FieldSelector, LabelSelector, Requirement, SelectorError, SelectorOperator, node_selector_terms_match,
};
pub use status::{Status, StatusCause};
