//! Kubernetes object semantics: quantities, selectors, structural schemas, patches and server-side apply; pure.
//!
//! In: objects as `serde_json::Value`, and what is known of their type. Out: new objects, or a [`status::Status`]
//! worded as a Kubernetes API server words it. Nothing here reads a clock, a socket or a random number, and no
//! object is read through a generated struct, so fields newer than this crate survive.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests pass `json!(…)` by value"))]

pub mod apply;
pub mod go;
pub mod patch;
pub mod pod;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod status;
pub mod structure;
