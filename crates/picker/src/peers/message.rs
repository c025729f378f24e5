//! Encoding of [`ReplicaState`] as a Protobuf message.
//!
//! Replicas of different releases run at the same time during an update. A release may add fields, which older ones skip; a change
//! of the meaning of a field needs a new version of the protocol, which the connections negotiate. Prefixes have a version of their
//! own ([`PREFIX_FORMAT`]), because their hashes change with the prefix index.
//!
//! A received message is checked completely before anything of it is used. All its parts have limits, and it has at most
//! [`MAX_MESSAGE_BYTES`].

use std::net::{IpAddr, SocketAddr};

use cluster::NamespacedName;
use prost::Message as _;

use super::replica_state::{
    EndpointKey, EndpointLoad, EndpointUpdate, FlowKey, FlowState, PrefixInsert, ReplicaId, ReplicaState,
};
use crate::prefix_index::{PREFIX_FORMAT, indexed_count};

/// Maximum size of a message in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// Maximum length of names: those of objects, Pods and flows.
const MAX_NAME_BYTES: usize = 253;

/// Maximum length of the UID of a Pod; UUIDs have 36.
const MAX_UID_BYTES: usize = 64;

/// Maximum number of blocks of a prompt.
const MAX_PROMPT_BLOCKS: u32 = 1 << 20;

/// A message that is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerMessageError {
    /// The message is too large.
    #[error("message of {0} bytes is larger than {MAX_MESSAGE_BYTES}")]
    TooLarge(usize),
    /// The message is not valid Protobuf.
    #[error("invalid Protobuf message: {0}")]
    Protobuf(#[from] prost::DecodeError),
    /// A field has an impossible value.
    #[error("invalid field {0}")]
    InvalidField(&'static str),
    /// More replicas than a process tracks.
    #[error("more than {0} peers")]
    TooManyPeers(usize),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReplicaStateMessage {
    #[prost(string, tag = "1")]
    replica: String,
    #[prost(fixed64, tag = "2")]
    incarnation: u64,
    #[prost(uint64, tag = "3")]
    sequence: u64,
    #[prost(message, repeated, tag = "4")]
    endpoints: Vec<EndpointMessage>,
    #[prost(message, repeated, tag = "5")]
    flows: Vec<FlowMessage>,
    #[prost(uint32, tag = "6")]
    prefix_format: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EndpointMessage {
    /// 4 or 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    ip: Vec<u8>,
    #[prost(uint32, tag = "2")]
    port: u32,
    #[prost(string, tag = "3")]
    pod_uid: String,
    #[prost(uint32, tag = "4")]
    requests: u32,
    #[prost(uint64, tag = "5")]
    tokens: u64,
    #[prost(uint64, tag = "6")]
    remaining_tokens: u64,
    #[prost(message, repeated, tag = "7")]
    prefixes: Vec<PrefixMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PrefixMessage {
    #[prost(uint32, tag = "1")]
    block_size: u32,
    #[prost(uint32, tag = "2")]
    prompt_blocks: u32,
    #[prost(fixed64, tag = "3")]
    first_block: u64,
    #[prost(fixed64, repeated, tag = "4")]
    hashes: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FlowMessage {
    #[prost(string, tag = "1")]
    namespace: String,
    #[prost(string, tag = "2")]
    pool: String,
    #[prost(sint32, tag = "3")]
    priority: i32,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(uint64, tag = "5")]
    served_tokens: u64,
    #[prost(uint32, tag = "6")]
    waiting_requests: u32,
}

/// Encodes a state in at most [`MAX_MESSAGE_BYTES`]. What does not fit is left out: first prefixes, then endpoints and flows at the
/// end of their lists.
pub(crate) fn encode(state: ReplicaState) -> Vec<u8> {
    let mut message = ReplicaStateMessage {
        replica: state.replica.name,
        incarnation: state.replica.incarnation,
        sequence: state.sequence,
        prefix_format: PREFIX_FORMAT,
        ..ReplicaStateMessage::default()
    };
    // Half of the message is for the endpoints, so that neither they nor the flows displace the others.
    let mut budget = Budget(MAX_MESSAGE_BYTES / 2 - message.encoded_len());
    let mut prefixes = Vec::new();
    for EndpointUpdate { endpoint, load, prefixes: new } in state.endpoints {
        let endpoint = endpoint_message(endpoint, load);
        if budget.reserve(&endpoint) {
            message.endpoints.push(endpoint);
            prefixes.push(new);
        }
    }
    let mut budget = Budget(MAX_MESSAGE_BYTES / 4);
    let flows = state.flows.into_iter().map(flow_message).filter(|flow| is_name(&flow.name) && budget.reserve(flow));
    message.flows = flows.collect();
    let mut budget = Budget(MAX_MESSAGE_BYTES / 4);
    for (endpoint, prefixes) in message.endpoints.iter_mut().zip(prefixes) {
        let prefixes = prefixes.into_iter().map(prefix_message).filter(|prefix| budget.reserve(prefix));
        endpoint.prefixes = prefixes.collect();
    }
    message.encode_to_vec()
}

/// Decodes a message.
///
/// # Errors
/// It is too large, not valid, or contains impossible values.
pub(crate) fn decode(bytes: &[u8]) -> Result<ReplicaState, PeerMessageError> {
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(PeerMessageError::TooLarge(bytes.len()));
    }
    let message = ReplicaStateMessage::decode(bytes)?;
    require(is_name(&message.replica), "replica")?;
    require(message.incarnation > 0, "incarnation")?;
    let has_known_prefixes = message.prefix_format == PREFIX_FORMAT;
    let endpoint = |endpoint| decode_endpoint(endpoint, has_known_prefixes);
    Ok(ReplicaState {
        replica: ReplicaId { name: message.replica, incarnation: message.incarnation },
        sequence: message.sequence,
        endpoints: message.endpoints.into_iter().map(endpoint).collect::<Result<_, _>>()?,
        flows: message.flows.into_iter().map(decode_flow).collect::<Result<_, _>>()?,
    })
}

/// Remaining bytes of a part of a message.
struct Budget(usize);

impl Budget {
    /// Returns whether a field fits, and reserves its bytes.
    fn reserve(&mut self, field: &impl prost::Message) -> bool {
        // Tag and length of the field, and growth of the length of the field that contains it.
        let bytes = field.encoded_len().saturating_add(16);
        let rest = self.0.checked_sub(bytes);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

fn endpoint_message(endpoint: EndpointKey, load: EndpointLoad) -> EndpointMessage {
    EndpointMessage {
        ip: match endpoint.address.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        },
        port: endpoint.address.port().into(),
        pod_uid: endpoint.pod_uid,
        requests: saturating_u32(load.requests),
        tokens: load.tokens,
        remaining_tokens: load.remaining_tokens,
        prefixes: Vec::new(),
    }
}

fn prefix_message(prefix: PrefixInsert) -> PrefixMessage {
    PrefixMessage {
        block_size: saturating_u32(prefix.block_size),
        prompt_blocks: saturating_u32(prefix.prompt_blocks),
        first_block: prefix.first_block,
        hashes: prefix.hashes,
    }
}

fn flow_message(FlowState { flow, served_tokens, waiting_requests }: FlowState) -> FlowMessage {
    FlowMessage {
        namespace: flow.pool.namespace,
        pool: flow.pool.name,
        priority: flow.priority,
        name: flow.name,
        served_tokens,
        waiting_requests: saturating_u32(waiting_requests),
    }
}

fn decode_endpoint(message: EndpointMessage, has_known_prefixes: bool) -> Result<EndpointUpdate, PeerMessageError> {
    let ip = match message.ip.len() {
        4 => <[u8; 4]>::try_from(message.ip).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(message.ip).ok().map(IpAddr::from),
    };
    let ip = ip.ok_or(PeerMessageError::InvalidField("endpoints.ip"))?;
    let port = u16::try_from(message.port).map_err(|_| PeerMessageError::InvalidField("endpoints.port"))?;
    require(message.pod_uid.len() <= MAX_UID_BYTES, "endpoints.pod_uid")?;
    let prefixes = if has_known_prefixes { message.prefixes } else { Vec::new() };
    Ok(EndpointUpdate {
        endpoint: EndpointKey { address: SocketAddr::new(ip, port), pod_uid: message.pod_uid },
        load: EndpointLoad {
            requests: message.requests as usize,
            tokens: message.tokens,
            remaining_tokens: message.remaining_tokens,
        },
        prefixes: prefixes.into_iter().map(decode_prefix).collect::<Result<_, _>>()?,
    })
}

fn decode_prefix(message: PrefixMessage) -> Result<PrefixInsert, PeerMessageError> {
    let PrefixMessage { block_size, prompt_blocks, first_block, hashes } = message;
    require((1..=MAX_PROMPT_BLOCKS).contains(&prompt_blocks), "endpoints.prefixes.prompt_blocks")?;
    let is_possible = hashes.len() <= indexed_count(prompt_blocks as usize) && !hashes.contains(&0);
    require(is_possible, "endpoints.prefixes.hashes")?;
    let (block_size, prompt_blocks) = (block_size as usize, prompt_blocks as usize);
    Ok(PrefixInsert { block_size, prompt_blocks, first_block, hashes })
}

fn decode_flow(message: FlowMessage) -> Result<FlowState, PeerMessageError> {
    let FlowMessage { namespace, pool, priority, name, served_tokens, waiting_requests } = message;
    require(is_name(&namespace) && is_name(&pool), "flows.pool")?;
    require(is_name(&name), "flows.name")?;
    let flow = FlowKey { pool: NamespacedName { namespace, name: pool }, priority, name };
    Ok(FlowState { flow, served_tokens, waiting_requests: waiting_requests as usize })
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
}

fn require(is_valid: bool, field: &'static str) -> Result<(), PeerMessageError> {
    if is_valid { Ok(()) } else { Err(PeerMessageError::InvalidField(field)) }
}

fn saturating_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn endpoint(address: &str) -> EndpointUpdate {
        let prefix = PrefixInsert { block_size: 256, prompt_blocks: 3, first_block: 7, hashes: vec![8, u64::MAX] };
        EndpointUpdate {
            endpoint: EndpointKey { address: address.parse().unwrap(), pod_uid: "uid".to_owned() },
            load: EndpointLoad { requests: 2, tokens: 3_000, remaining_tokens: 200 },
            prefixes: vec![prefix],
        }
    }

    fn flow(name: &str) -> FlowState {
        let flow = FlowKey { pool: NamespacedName::new("ns", "p"), priority: -10, name: name.to_owned() };
        FlowState { flow, served_tokens: 1 << 40, waiting_requests: 5 }
    }

    fn state() -> ReplicaState {
        ReplicaState {
            replica: ReplicaId { name: "gateway-1".to_owned(), incarnation: u64::MAX },
            sequence: 9,
            endpoints: vec![endpoint("10.0.0.1:8000"), endpoint("[fd00::1]:65535")],
            flows: vec![flow("a"), flow("")],
        }
    }

    #[test]
    fn state_is_decoded_as_it_was_encoded() {
        let bytes = encode(state());
        assert!(bytes.len() < 250, "{}", bytes.len());
        assert_eq!(decode(&bytes), Ok(state()));
    }

    /// A newer release has additional fields, an older one lacks some.
    #[test]
    fn fields_of_other_releases_are_skipped() {
        let mut newer = encode(state());
        // Field 99 with the value 1.
        newer.extend([0x98, 0x06, 0x01]);
        assert_eq!(decode(&newer), Ok(state()));
        let (replica, incarnation) = ("old".to_owned(), 1);
        let older = ReplicaStateMessage { replica, incarnation, ..ReplicaStateMessage::default() };
        assert_eq!(decode(&older.encode_to_vec()).map(|state| (state.endpoints, state.flows)), Ok((vec![], vec![])));
    }

    #[test]
    fn prefixes_of_another_format_are_skipped() {
        let mut message = ReplicaStateMessage::decode(&*encode(state())).unwrap();
        message.prefix_format = PREFIX_FORMAT + 1;
        let state = decode(&message.encode_to_vec()).unwrap();
        assert_eq!((state.endpoints[0].load.requests, state.endpoints[0].prefixes.len()), (2, 0));
    }

    #[rstest]
    #[case::replica("replica", |message: &mut ReplicaStateMessage| message.replica = "x".repeat(254))]
    #[case::incarnation("incarnation", |message: &mut ReplicaStateMessage| message.incarnation = 0)]
    #[case::ip("endpoints.ip", |message: &mut ReplicaStateMessage| message.endpoints[0].ip = vec![1; 5])]
    #[case::port("endpoints.port", |message: &mut ReplicaStateMessage| message.endpoints[0].port = 65_536)]
    #[case::uid("endpoints.pod_uid", |message: &mut ReplicaStateMessage| message.endpoints[1].pod_uid = "x".repeat(65))]
    #[case::no_blocks("endpoints.prefixes.prompt_blocks", |message: &mut ReplicaStateMessage| message.endpoints[0].prefixes[0].prompt_blocks = 0)]
    #[case::many_blocks("endpoints.prefixes.prompt_blocks", |message: &mut ReplicaStateMessage| message.endpoints[0].prefixes[0].prompt_blocks = u32::MAX)]
    #[case::hashes("endpoints.prefixes.hashes", |message: &mut ReplicaStateMessage| message.endpoints[0].prefixes[0].hashes = vec![1; 4])]
    #[case::empty_hash("endpoints.prefixes.hashes", |message: &mut ReplicaStateMessage| message.endpoints[0].prefixes[0].hashes = vec![0])]
    #[case::pool("flows.pool", |message: &mut ReplicaStateMessage| message.flows[0].pool = "x".repeat(254))]
    #[case::flow("flows.name", |message: &mut ReplicaStateMessage| message.flows[0].name = "x".repeat(254))]
    fn impossible_fields_are_rejected(#[case] field: &'static str, #[case] change: fn(&mut ReplicaStateMessage)) {
        let mut message = ReplicaStateMessage::decode(&*encode(state())).unwrap();
        change(&mut message);
        assert_eq!(decode(&message.encode_to_vec()), Err(PeerMessageError::InvalidField(field)));
    }

    #[test]
    fn large_message_is_rejected() {
        let bytes = vec![0; MAX_MESSAGE_BYTES + 1];
        assert_eq!(decode(&bytes), Err(PeerMessageError::TooLarge(bytes.len())));
    }

    #[test]
    fn large_state_is_truncated() {
        let mut large = state();
        let hashes: Vec<u64> = (1..=100).collect();
        let prefix = PrefixInsert { block_size: 256, prompt_blocks: 4_096, first_block: 1, hashes };
        large.endpoints = vec![EndpointUpdate { prefixes: vec![prefix; 10], ..endpoint("10.0.0.1:8000") }; 5_000];
        large.flows = vec![flow(&"x".repeat(253)); 5_000];
        let bytes = encode(large);
        let decoded = decode(&bytes).unwrap();
        assert!(decoded.endpoints.len() > 1_000 && decoded.flows.len() > 100, "{}", decoded.endpoints.len());
        let prefixes: usize = decoded.endpoints.iter().map(|endpoint| endpoint.prefixes.len()).sum();
        assert!((50..100).contains(&prefixes), "{prefixes}");
    }

    /// Panics unless any bytes are rejected, or decoded to a state that is encoded within the limit.
    fn check_message(bytes: &[u8]) {
        if let Ok(state) = decode(bytes) {
            let encoded = encode(state);
            assert!(encoded.len() <= MAX_MESSAGE_BYTES, "{} bytes", encoded.len());
            assert!(decode(&encoded).is_ok());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_rejected_or_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            check_message(&bytes);
        }

        #[test]
        fn damaged_messages_are_rejected_or_decoded(position in 0_usize..150, byte in any::<u8>()) {
            let mut bytes = encode(state());
            if let Some(damaged) = bytes.get_mut(position) {
                *damaged = byte;
            }
            check_message(&bytes);
            check_message(&bytes[..position.min(bytes.len())]);
        }
    }
}
