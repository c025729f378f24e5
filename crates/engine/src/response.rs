//! Response bodies. Field order and nulls match the recordings in `tests/data`.

pub(crate) mod completion;
pub(crate) mod event_stream;
pub(crate) mod model_list;

use serde::Serialize;

use crate::request::Endpoint;

/// The simulated vLLM release.
pub(crate) const VLLM_VERSION: &str = "0.32.0";

/// Type of fields for features that the simulation does not support; serializes as `null`.
pub(crate) type Null = ();

/// Identifiers and creation time that all chunks of one response share.
#[derive(Debug, Clone)]
pub(crate) struct ResponseMetadata {
    /// Endpoint that received the request, which determines the format.
    pub(crate) endpoint: Endpoint,
    /// `chatcmpl-…` or `cmpl-…`.
    pub(crate) id: String,
    /// Unix seconds.
    pub(crate) created: i64,
    /// Model name in the request.
    pub(crate) model: String,
    /// `system_fingerprint`: release and model of the engine.
    pub(crate) fingerprint: String,
}

/// Why generation finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finish {
    /// `stop` or `length`.
    pub(crate) reason: &'static str,
    /// The stop string that ended generation.
    pub(crate) stop: Option<String>,
}

/// Token counts of a response or of a streamed chunk.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
    completion_tokens: usize,
}

// === impl Usage ===

impl Usage {
    /// Returns the counts of a response.
    pub(crate) fn new(prompt_tokens: usize, completion_tokens: usize) -> Self {
        Self { prompt_tokens, total_tokens: prompt_tokens + completion_tokens, completion_tokens }
    }
}
