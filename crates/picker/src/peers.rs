//! What replicas of a gateway or endpoint picker know about each other, without the connections between them.
//!
//! At least every 100 ms a replica sends its state to all others: its requests in flight by endpoint, the tokens that it has served and the
//! requests that wait by flow, and the prompts that it sent to engines since then ([`ReplicaState`]). Receivers use it for a second
//! ([`KnownPeers`]). It only improves their decisions: nothing waits for it, and without it each replica decides by its own
//! requests and the metrics of the engines.

mod credit;
mod known_peers;
mod message;
mod replica_state;

use std::time::Duration;

pub(crate) use credit::{FairShare, ReportedRequests, WaitingFlows, own_limit};
pub(crate) use known_peers::{KnownPeers, RecordOutcome, ServedTokens};
pub use message::PeerMessageError;
pub(crate) use message::{MAX_MESSAGE_BYTES, decode, encode};
pub use replica_state::ReplicaId;
pub(crate) use replica_state::{
    EndpointKey, EndpointLoad, EndpointUpdate, FlowKey, FlowState, PrefixInsert, ReplicaState,
};

/// Minimum interval between two messages of a replica, while it sends requests to engines.
pub const PEER_UPDATE_INTERVAL: Duration = Duration::from_millis(20);

/// Interval between two messages of a replica that sends no new requests.
pub(crate) const IDLE_UPDATE_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of peers.
pub(crate) const MAX_PEERS: usize = 64;
