//! The three patch formats: RFC 6902 (`json`), RFC 7386 (`merge`) and Kubernetes' own (`strategic`).

mod bounds;
pub mod json;
pub mod merge;
pub mod strategic;
