//! OpenAPI documents for kubectl.

mod document;
pub(crate) mod v2;

pub(crate) use document::{group_version_document, index};
