//! Explains where a request would be sent and why. The command line reads the same types.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Where a request would be sent now, and how its endpoints compare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestTrace {
    /// Model name of the client.
    pub model: String,
    /// Pool that serves the request: `NAMESPACE/NAME`.
    pub pool: String,
    /// All pools that declare the model, of which one is drawn.
    pub pools: Vec<String>,
    /// Object that declares the use case; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_case: Option<String>,
    /// Priority in the queue of the pool.
    pub priority: i32,
    /// Requests of the same flow share their part of the engines.
    pub flow: String,
    /// Model name for the engines, which was drawn for this trace as it would be for the next request.
    pub target_model: String,
    /// Targets of the use case.
    pub targets: Vec<TraceTarget>,
    /// Estimated tokens of the prompt.
    pub prompt_tokens: u64,
    /// Requests that wait in the queue of the pool.
    pub waiting_requests: usize,
    /// Up to which part of the requests that an engine runs at the same time the request is admitted: below 1 while a critical use
    /// case misses its objective.
    pub admitted_share: f64,
    /// What would happen to the request.
    pub outcome: TraceOutcome,
    /// The endpoint that would serve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<SocketAddr>,
    /// The endpoint that would compute its prompt first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<SocketAddr>,
    /// Number of endpoints of the pool that are not ready.
    pub unready_endpoints: usize,
    /// Ready endpoints: first the candidates, the lowest cost or the highest score first.
    pub endpoints: Vec<TraceEndpoint>,
    /// Number of further endpoints that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_endpoints: usize,
}

/// A target model of a use case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceTarget {
    /// Model name of the engines.
    pub model: String,
    /// Relative share of the requests.
    pub weight: u32,
    /// Whether an endpoint may serve it. Others are drawn only if none is served.
    pub served: bool,
}

/// What would happen to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TraceOutcome {
    /// It would be sent to an endpoint.
    Selected,
    /// It would wait in the queue of the pool.
    Queued,
    /// It would be rejected: no endpoint is available.
    NoEndpoint,
}

/// An endpoint of the pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceEndpoint {
    /// IP address and port.
    pub address: SocketAddr,
    /// Name of the Pod.
    pub pod: String,
    /// Requests in flight from all replicas of the gateway.
    pub requests: usize,
    /// How many requests of all replicas of the gateway the engine runs at the same time, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_limit: Option<usize>,
    /// Parts of the cost, if the pool selects by cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<TraceCost>,
    /// Weighted sum of the scores, if the pool has an EndpointPickerConfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Why the endpoint is not selected, whatever its cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded: Option<TraceExclusion>,
}

/// Parts of a cost in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceCost {
    /// Tokens that the engine has yet to compute for requests of all replicas of the gateway.
    pub in_flight: u64,
    /// Estimated tokens of the requests of other clients that wait in the engine.
    pub other_waiting: f64,
    /// Estimated tokens of the requests of other clients that the engine runs.
    pub other_running: f64,
    /// Twice the tokens of the prompt that the engine has not cached.
    pub uncached_prompt: u64,
    /// Penalty for a KV cache that is nearly full.
    pub kv_cache_penalty: f64,
    /// Penalty for an adapter that is not loaded.
    pub adapter_penalty: f64,
    /// The sum.
    pub total: f64,
}

/// Why an endpoint is not selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TraceExclusion {
    /// It only computes prompts that another endpoint continues.
    PrefillOnly,
    /// The engine sleeps.
    Asleep,
    /// Requests to it failed.
    Ejected,
    /// Its engine does not list the model, or responded that it does not serve it.
    ModelNotServed,
    /// Its engine runs as many requests as it can.
    Busy,
    /// The last scrape could not connect to it.
    Unreachable,
    /// It is intended for prompts of another size.
    OtherPromptSize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

// === impl TraceExclusion ===

impl TraceExclusion {
    /// Returns the reason in words, such as `requests to it failed`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::PrefillOnly => "only computes prompts",
            Self::Asleep => "the engine sleeps",
            Self::Ejected => "ejected: requests to it failed",
            Self::ModelNotServed => "the engine does not list the model, or responded that it does not serve it",
            Self::Busy => "the engine runs as many requests as it can",
            Self::Unreachable => "cannot be connected to",
            Self::OtherPromptSize => "intended for prompts of another size",
        }
    }
}
