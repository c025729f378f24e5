//! The environment of a container: variables, the downward API, and the objects that a Pod refers to.

mod downward;
mod error;
mod host_address;
mod object_source;
mod resolve;

pub(crate) use downward::{pod_field, resource_field};
pub(crate) use error::EnvironmentError;
#[cfg(test)]
pub(crate) use object_source::FixedSource;
pub(crate) use object_source::ObjectSource;
pub(crate) use resolve::resolve;
