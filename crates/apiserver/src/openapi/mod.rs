//! OpenAPI documents for kubectl, and schemas of the built-in kinds.

mod document;
mod type_schema;
pub(crate) mod v2;

pub(crate) use document::{group_version_document, index};
pub(crate) use type_schema::{definitions, generate};
