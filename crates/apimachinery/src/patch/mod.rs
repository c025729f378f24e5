//! The patch formats of Kubernetes: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch.

mod json;
mod limits;
mod merge;
mod strategic;

pub use json::apply_json_patch;
pub use merge::apply_merge_patch;
pub use strategic::apply_strategic_merge_patch;
