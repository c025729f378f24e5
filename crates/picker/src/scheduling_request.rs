//! A request as scorers and policy read it.

/// A request to schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchedulingRequest<'a> {
    /// Model name of the engines.
    pub(crate) model: &'a str,
    /// Size of the prompt in bytes, as encoded in JSON.
    pub(crate) prompt_bytes: usize,
    /// Block hashes of the prompt, one list per prefix index.
    pub(crate) prefix_hashes: &'a [Vec<u64>],
}
