//! Merge semantics of a type for server-side apply and strategic merge patch: which lists merge, by which keys, and which
//! maps are atomic.
//!
//! Layers, from low to high: `node` (types), `constructors`, `meta` and `pod` (types that many kinds share), `builtin` and
//! `openapi` (the schemas of a kind).

mod builtin;
mod constructors;
mod meta;
mod node;
mod openapi;
mod pod;

pub use builtin::builtin_merge_schema;
pub use node::MergeSchema;
pub(crate) use node::{MergeStrategy, PatchStrategy};
pub use openapi::openapi_merge_schema;
