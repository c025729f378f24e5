//! Registry of the served resources: the built-in ones and those of custom resource definitions.
//!
//! A [`Resource`] is one served version of a kind. Several `Resource`s can share a storage name, such as the versions
//! of a custom resource or both API groups of Events.

mod builtin;
mod builtin_schemas;
mod custom;
pub(crate) mod definition;
mod deprecation;
mod registry;
mod resource;
mod version_priority;

pub(crate) use registry::{CompiledDefinition, Registry};
pub(crate) use resource::{PrinterColumn, Resource, ScalePaths, openapi_definitions};
