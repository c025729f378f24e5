//! Detection of rolled-back writes.

/// Number of rollbacks at the start of a request. If the number has changed since, data that the request read may be
/// invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch(pub(super) u64);
