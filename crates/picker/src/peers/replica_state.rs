//! The state that a replica sends to the others.

use std::net::SocketAddr;

use cluster::NamespacedName;

/// Identifies a replica.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaId {
    /// Host name, which is that of the Pod, and port on which the replica listens.
    pub name: String,
    /// Time of the start of the process, in nanoseconds since 1970: a restarted replica has a higher number.
    pub incarnation: u64,
}

/// The state of a replica at one time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReplicaState {
    /// Which replica.
    pub(crate) replica: ReplicaId,
    /// Increases with each state of this incarnation.
    pub(crate) sequence: u64,
    /// Endpoints with requests in flight or new prompts. Others have no requests in flight.
    pub(crate) endpoints: Vec<EndpointUpdate>,
    /// Flows with recent or waiting requests.
    pub(crate) flows: Vec<FlowState>,
}

/// What a replica sent to an endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndpointUpdate {
    /// Which endpoint.
    pub(crate) endpoint: EndpointKey,
    /// Requests in flight.
    pub(crate) load: EndpointLoad,
    /// Prompts that were sent since the last state.
    pub(crate) prefixes: Vec<PrefixInsert>,
}

/// Identifies an endpoint. Another Pod may reuse the address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct EndpointKey {
    /// IP address and port.
    pub(crate) address: SocketAddr,
    /// UID of the Pod.
    pub(crate) pod_uid: String,
}

/// Requests in flight on an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EndpointLoad {
    /// Their number.
    pub(crate) requests: usize,
    /// Estimated tokens of prompts and outputs.
    pub(crate) tokens: u64,
    /// Estimated tokens that the engine has yet to compute.
    pub(crate) remaining_tokens: u64,
}

/// The blocks at the end of a prompt that an endpoint presumably caches, with all blocks before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrefixInsert {
    /// Bytes per block.
    pub(crate) block_size: usize,
    /// Number of blocks of the prompt.
    pub(crate) prompt_blocks: usize,
    /// Hash of its first block.
    pub(crate) first_block: u64,
    /// Hashes of the last indexed prefixes, in ascending order of their lengths.
    pub(crate) hashes: Vec<u64>,
}

/// Identifies a flow: the requests of one priority and fairness ID in the queue of a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowKey {
    /// Namespace and name of the pool.
    pub(crate) pool: NamespacedName,
    /// Priority.
    pub(crate) priority: i32,
    /// Name of the flow.
    pub(crate) name: String,
}

/// State of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlowState {
    /// Which flow.
    pub(crate) flow: FlowKey,
    /// Estimated tokens of all requests that were sent to engines.
    pub(crate) served_tokens: u64,
    /// Number of requests in the queue.
    pub(crate) waiting_requests: usize,
}

// === impl FlowKey ===

impl FlowKey {
    /// Returns whether both flows have the same pool and priority.
    pub(crate) fn is_same_band(&self, other: &Self) -> bool {
        (&self.pool, self.priority) == (&other.pool, other.priority)
    }
}

// === impl EndpointLoad ===

impl EndpointLoad {
    /// Returns the requests of both loads.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tokens: self.tokens.saturating_add(other.tokens),
            remaining_tokens: self.remaining_tokens.saturating_add(other.remaining_tokens),
        }
    }
}
