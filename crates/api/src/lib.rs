//! Resource types of every API group that ostler serves or writes; no I/O.
//!
//! In comes YAML or JSON, out come typed resources, their CRDs, and findings about what a person
//! wrote. Nothing here decides anything: rules that compare two resources live in `decide`.
//! Fields that the deployed upstream projects use are read beside the specified ones.

pub mod capability;
pub mod code;
pub mod condition;
pub mod crds;
pub mod duration;
pub mod fusioninfer;
pub mod inference;
pub mod lint;
pub mod manifest;
pub mod memory;
pub mod neighbours;
pub mod ome;
mod openapi;
pub mod size;
pub mod version;

pub use apimachinery::quantity::Quantity;
pub use crds::crds;
