//! What `ostler explain` shows of a pool. The command line reads the same types.

use std::{collections::BTreeMap, net::SocketAddr};

use serde::{Deserialize, Serialize};

/// State of a pool in one gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolDetails {
    /// `NAMESPACE/NAME`.
    pub pool: String,
    /// Creation timestamp of the pool (RFC 3339).
    pub creation_timestamp: String,
    /// Number of endpoints, ready or not.
    pub endpoint_count: usize,
    /// Number of endpoints that are not ready.
    pub unready_endpoints: usize,
    /// Requests that wait.
    pub waiting_requests: usize,
    /// Size of their bodies in bytes.
    pub waiting_bytes: u64,
    /// Maximum number of requests that wait.
    pub max_requests: usize,
    /// Maximum size of their bodies in bytes.
    pub max_bytes: u64,
    /// Maximum time in the queue in seconds.
    pub timeout_seconds: f64,
    /// Fraction of the limit of an engine up to which noncritical requests are admitted: below 1 while a critical use case misses its
    /// objective.
    pub noncritical_share: f64,
    /// Time in seconds in which the requests of `flows` arrived.
    pub period_seconds: f64,
    /// Use cases, and models without one that received requests.
    pub flows: Vec<FlowDetails>,
    /// Ready endpoints, at most 1,000.
    pub endpoints: Vec<EndpointDetails>,
}

/// Recent requests of a use case, or of a model without one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowDetails {
    /// Model name of clients; empty for models beyond the number that is counted.
    pub name: String,
    /// `KIND NAMESPACE/NAME` of the object that declares the use case; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_case: Option<String>,
    /// Priority of its requests.
    pub priority: i32,
    /// Requests that were sent to an engine.
    pub requests: u64,
    /// Their estimated tokens.
    pub tokens: u64,
    /// Part of the tokens of all flows, 0 to 1.
    pub share: f64,
    /// Requests that wait now.
    pub waiting_requests: usize,
    /// Rejected requests by reason, such as `QueueTimeout`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected: BTreeMap<String, u64>,
    /// Latency per output token at the 95th percentile; absent without an objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<ObjectiveDetails>,
}

/// An objective and its measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectiveDetails {
    /// Desired seconds per output token.
    pub desired_seconds: f64,
    /// Measured seconds per output token; absent with too few requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_seconds: Option<f64>,
    /// Number of measured requests; 0 with too few.
    pub requests: usize,
}

/// State of an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointDetails {
    /// IP address and port.
    pub address: SocketAddr,
    /// Name of the Pod.
    pub pod: String,
    /// Requests in flight from all replicas of the gateway.
    pub requests: usize,
    /// How many requests of all replicas of the gateway the engine runs at the same time; absent if it reports nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_limit: Option<usize>,
    /// Whether reports of the engine have shown the limit; otherwise it is assumed.
    pub limit_is_learned: bool,
    /// Seconds for which no requests are sent to it because earlier ones failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ejected_seconds: Option<f64>,
    /// Number of failures since the last response.
    pub consecutive_failures: u32,
    /// Whether the engine sleeps.
    pub asleep: bool,
    /// Whether the last scrape could not connect to it.
    pub unreachable: bool,
    /// Requests of all clients that wait in the engine, as it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_waiting: Option<f64>,
    /// Used fraction of the KV cache, as it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_usage: Option<f64>,
}
