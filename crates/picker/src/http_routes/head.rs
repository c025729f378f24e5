//! The head of a request.

use http::{HeaderMap, Method};

/// What routes read of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestHead<'a> {
    /// `Host` or `:authority`, possibly with a port.
    pub(crate) authority: &'a str,
    /// Normalized path.
    pub(crate) path: &'a str,
    /// Query without `?`; empty if there is none.
    pub(crate) query: &'a str,
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
}
