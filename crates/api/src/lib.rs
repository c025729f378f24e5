//! Resource types of every API group that ostler serves or writes; no I/O.
//!
//! Input: YAML or JSON manifests. Output: typed resources, their CRDs, and lint findings. Each finding concerns a single
//! document; rules that relate several resources are in `decide`. Fields of the upstream projects that the specification does
//! not contain are accepted, too.
//!
//! Layers, from low to high:
//! - values: `accelerator_resource`, `code`, `capability`, `version`, and `duration`, `memory`, `parameter_count` with their schemas in `openapi`;
//! - the API groups: `fusioninfer`, `inference`, `ome` (with `condition`); `integrations` defines those of other projects;
//!   `dual_pods`: names of annotations, labels and finalizers;
//! - `crds` (the definitions of the kinds), `manifest` (documents);
//! - `lint`: findings about a document.

#![warn(missing_docs)]

mod accelerator_resource;
mod capability;
mod code;
mod condition;
mod crds;
pub mod dual_pods;
mod duration;
pub mod fusioninfer;
pub mod inference;
pub mod integrations;
mod lint;
mod manifest;
mod memory;
pub mod ome;
mod openapi;
mod parameter_count;
mod version;

pub use accelerator_resource::{ACCELERATOR_RESOURCES, is_accelerator_resource};
pub use capability::{ComputeCapability, ComputeCapabilityError};
pub use code::Code;
pub use condition::Condition;
pub use crds::{crds, is_served_kind};
pub use duration::{Duration, DurationError};
pub use lint::{
    Finding, Severity, http_route_spec_error, lint_document, lint_semantics, nearest_name, reserved_template_keys,
};
pub use manifest::{Document, ManifestError, parse_each_document, parse_manifest};
pub use memory::{AcceleratorMemory, AcceleratorMemoryError};
pub use parameter_count::{ParameterCount, ParameterCountError};
pub use version::{Version, VersionError};

/// Maximum number of replicas of one role or component.
pub const MAX_REPLICAS: i32 = 10_000;
