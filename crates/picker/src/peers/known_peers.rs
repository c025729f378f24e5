//! What a replica knows about its peers: their last states, as long as these are recent.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use cluster::NamespacedName;
use tokio::time::Instant;

use super::{
    MAX_PEERS,
    message::PeerMessageError,
    replica_state::{EndpointKey, EndpointLoad, EndpointUpdate, FlowKey, PrefixInsert, ReplicaId, ReplicaState},
};

/// How long a state is used after it was received.
const MAX_AGE: Duration = Duration::from_secs(1);

/// How long the age of the last state of a peer is reported.
const MAX_REPORTED_AGE: Duration = Duration::from_secs(600);

/// The peers of a replica.
#[derive(Debug)]
pub(crate) struct KnownPeers {
    /// The replica itself, which may connect to itself.
    own: ReplicaId,
    by_name: BTreeMap<String, Peer>,
    has_lost_peer: bool,
    /// When the last states were received, also of peers whose states have expired.
    last_received: BTreeMap<String, Instant>,
}

/// The last state of a peer.
#[derive(Debug)]
struct Peer {
    incarnation: u64,
    sequence: u64,
    received: Instant,
    loads: HashMap<EndpointKey, EndpointLoad>,
    flows: BTreeMap<FlowKey, FlowUse>,
}

/// Use of the engines by a flow of a peer.
#[derive(Debug, Clone, Copy)]
struct FlowUse {
    served_tokens: u64,
    is_waiting: bool,
}

/// Tokens that a peer has served of a flow since its last state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServedTokens {
    /// Which flow.
    pub(crate) flow: FlowKey,
    /// Number of tokens.
    pub(crate) tokens: u64,
}

/// How a received state was used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecordOutcome {
    /// The state is that of the replica itself, or not newer than the known one.
    Ignored,
    /// The state is used from now on.
    Recorded {
        /// Tokens that the peer has served since its last state.
        served: Vec<ServedTokens>,
        /// Prompts that the peer sent to endpoints since its last state.
        prefixes: Vec<(EndpointKey, Vec<PrefixInsert>)>,
    },
}

// === impl KnownPeers ===

impl KnownPeers {
    /// Returns no peers of the replica `own`.
    pub(crate) fn new(own: ReplicaId) -> Self {
        Self { own, by_name: BTreeMap::new(), has_lost_peer: false, last_received: BTreeMap::new() }
    }

    /// Records a state that was received at `now`. States of the replica itself, and duplicated or reordered ones, have no effect.
    ///
    /// # Errors
    /// [`PeerMessageError::TooManyPeers`].
    pub(crate) fn record(&mut self, state: ReplicaState, now: Instant) -> Result<RecordOutcome, PeerMessageError> {
        let ReplicaState { replica: ReplicaId { name, incarnation }, sequence, endpoints, flows } = state;
        self.remove_expired(now);
        let known = self.by_name.get(&name);
        let is_old = known.is_some_and(|peer| (incarnation, sequence) <= (peer.incarnation, peer.sequence));
        if is_old || name == self.own.name {
            return Ok(RecordOutcome::Ignored);
        }
        if known.is_none() && self.by_name.len() >= MAX_PEERS {
            return Err(PeerMessageError::TooManyPeers(MAX_PEERS));
        }
        let previous = self.by_name.remove(&name).filter(|peer| peer.incarnation == incarnation);
        let mut peer = Peer { incarnation, sequence, received: now, loads: HashMap::new(), flows: BTreeMap::new() };
        let mut prefixes = Vec::new();
        for EndpointUpdate { endpoint, load, prefixes: new } in endpoints {
            if !new.is_empty() {
                prefixes.push((endpoint.clone(), new));
            }
            peer.loads.insert(endpoint, load);
        }
        let mut served = Vec::new();
        for flow in flows {
            // What the peer served before its first state is not a debt.
            if let Some(previous) = &previous {
                let before = previous.flows.get(&flow.flow).map_or(0, |flow| flow.served_tokens);
                let tokens = flow.served_tokens.checked_sub(before).unwrap_or(flow.served_tokens);
                if tokens > 0 {
                    served.push(ServedTokens { flow: flow.flow.clone(), tokens });
                }
            }
            let is_waiting = flow.waiting_requests > 0;
            peer.flows.insert(flow.flow, FlowUse { served_tokens: flow.served_tokens, is_waiting });
        }
        self.last_received.retain(|_, received| now.saturating_duration_since(*received) < MAX_REPORTED_AGE);
        if self.last_received.len() < MAX_PEERS || self.last_received.contains_key(&name) {
            self.last_received.insert(name.clone(), now);
        }
        self.by_name.insert(name, peer);
        Ok(RecordOutcome::Recorded { served, prefixes })
    }

    /// Removes the states that are too old at `now`.
    pub(crate) fn remove_expired(&mut self, now: Instant) {
        let count = self.by_name.len();
        self.by_name.retain(|_, peer| now.saturating_duration_since(peer.received) < MAX_AGE);
        self.has_lost_peer |= self.by_name.len() < count;
    }

    /// Returns whether the state of a peer has expired since the last call.
    pub(crate) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_peer)
    }

    /// Returns the requests that all peers have in flight on an endpoint.
    pub(crate) fn load(&self, endpoint: &EndpointKey) -> EndpointLoad {
        let loads = self.by_name.values().filter_map(|peer| peer.loads.get(endpoint));
        loads.fold(EndpointLoad::default(), |sum, load| sum.with(*load))
    }

    /// Returns priority and name of the flows of a pool that have waiting requests, one list for each peer.
    pub(crate) fn waiting_flows(&self, pool: &NamespacedName) -> Vec<Vec<(i32, &str)>> {
        self.by_name.values().map(|peer| peer.waiting_flows(pool)).collect()
    }

    /// Returns the pools with requests that wait at peers.
    pub(crate) fn pools_with_waiting_flows(&self) -> impl Iterator<Item = &NamespacedName> {
        let flows = self.by_name.values().flat_map(|peer| &peer.flows);
        flows.filter(|(_, state)| state.is_waiting).map(|(flow, _)| &flow.pool)
    }

    /// Returns the number of replicas in which several flows with the priority of `flow` wait, with this one.
    pub(crate) fn choosing_replicas(&self, flow: &FlowKey) -> u64 {
        let waiting = |peer: &&Peer| {
            peer.waiting_flows(&flow.pool).into_iter().filter(|(priority, _)| *priority == flow.priority).count()
        };
        self.by_name.values().filter(|peer| waiting(peer) > 1).count() as u64 + 1
    }

    /// Returns the number of peers whose states are used.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns names of peers, and the ages of their last states, also of those that have expired.
    pub(crate) fn ages(&self, now: Instant) -> Vec<(String, Duration)> {
        let age = |(name, received): (&String, &Instant)| (name.clone(), now.saturating_duration_since(*received));
        self.last_received.iter().map(age).filter(|(_, age)| *age < MAX_REPORTED_AGE).collect()
    }
}

// === impl Peer ===

impl Peer {
    fn waiting_flows(&self, pool: &NamespacedName) -> Vec<(i32, &str)> {
        let first = FlowKey { pool: pool.clone(), priority: i32::MIN, name: String::new() };
        let flows = self.flows.range(first..).take_while(|(flow, _)| flow.pool == *pool);
        flows.filter(|(_, state)| state.is_waiting).map(|(flow, _)| (flow.priority, flow.name.as_str())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::FlowState;

    fn id(name: &str, incarnation: u64) -> ReplicaId {
        ReplicaId { name: name.to_owned(), incarnation }
    }

    fn endpoint() -> EndpointKey {
        EndpointKey { address: ([10, 0, 0, 1], 8000).into(), pod_uid: "uid".to_owned() }
    }

    fn flow(name: &str) -> FlowKey {
        FlowKey { pool: NamespacedName::new("ns", "p"), priority: 0, name: name.to_owned() }
    }

    /// Returns a state with this number of requests in flight and of served tokens of flow `a`.
    fn state(replica: ReplicaId, sequence: u64, requests: usize, served_tokens: u64) -> ReplicaState {
        let load = EndpointLoad { requests, tokens: 10, remaining_tokens: 5 };
        let waiting_requests = requests;
        ReplicaState {
            replica,
            sequence,
            endpoints: vec![EndpointUpdate { endpoint: endpoint(), load, prefixes: Vec::new() }],
            flows: vec![FlowState { flow: flow("a"), served_tokens, waiting_requests }],
        }
    }

    fn requests(peers: &KnownPeers) -> usize {
        peers.load(&endpoint()).requests
    }

    fn served(outcome: Result<RecordOutcome, PeerMessageError>) -> Vec<u64> {
        match outcome.unwrap() {
            RecordOutcome::Recorded { served, .. } => served.into_iter().map(|served| served.tokens).collect(),
            RecordOutcome::Ignored => panic!("the state is ignored"),
        }
    }

    #[test]
    fn loads_of_all_peers_are_summed_until_they_expire() {
        let (mut peers, start) = (KnownPeers::new(id("own", 1)), Instant::now());
        peers.record(state(id("a", 1), 1, 3, 0), start).unwrap();
        peers.record(state(id("b", 1), 1, 4, 0), start + Duration::from_millis(600)).unwrap();
        assert_eq!(peers.load(&endpoint()), EndpointLoad { requests: 7, tokens: 20, remaining_tokens: 10 });
        let other = EndpointKey { pod_uid: "new".to_owned(), ..endpoint() };
        assert_eq!(peers.load(&other), EndpointLoad::default(), "another Pod has the address");
        for (millis, expect) in [(999, 7), (1_000, 4), (1_599, 4), (1_600, 0)] {
            peers.remove_expired(start + Duration::from_millis(millis));
            assert_eq!(requests(&peers), expect, "{millis}");
            assert_eq!(peers.take_lost(), [1_000, 1_600].contains(&millis));
        }
        let ages = |seconds| peers.ages(start + Duration::from_secs(seconds)).into_iter().map(|(name, _)| name);
        assert_eq!([ages(599), ages(600), ages(601)].map(Iterator::collect::<String>), ["ab", "b", ""]);
    }

    #[test]
    fn duplicated_and_reordered_states_and_those_of_the_replica_itself_are_ignored() {
        let (mut peers, now) = (KnownPeers::new(id("own", 5)), Instant::now());
        peers.record(state(id("a", 2), 7, 3, 0), now).unwrap();
        for old in [state(id("a", 2), 7, 9, 0), state(id("a", 2), 6, 9, 0), state(id("a", 1), 8, 9, 0)] {
            assert_eq!(peers.record(old, now), Ok(RecordOutcome::Ignored));
        }
        assert_eq!(peers.record(state(id("own", 5), 1, 9, 0), now), Ok(RecordOutcome::Ignored));
        assert_eq!(requests(&peers), 3);
        assert_ne!(peers.record(state(id("a", 3), 1, 1, 0), now), Ok(RecordOutcome::Ignored));
        assert_eq!(requests(&peers), 1, "the restarted replica has a new state");
    }

    #[test]
    fn served_tokens_are_those_since_the_last_state() {
        let (mut peers, now) = (KnownPeers::new(id("own", 1)), Instant::now());
        let mut record =
            |incarnation, sequence, tokens| served(peers.record(state(id("a", incarnation), sequence, 0, tokens), now));
        assert_eq!(record(1, 1, 500), [0; 0], "unknown when");
        assert_eq!(record(1, 2, 700), [200]);
        assert_eq!(record(1, 5, 700), [0; 0]);
        assert_eq!(record(1, 6, 30), [30], "the flow had no requests for a while");
        assert_eq!(record(2, 1, 100), [0; 0], "restarted");
        assert_eq!(record(2, 2, 101), [1]);
    }

    #[test]
    fn flows_wait_in_their_pool() {
        let (mut peers, now) = (KnownPeers::new(id("own", 1)), Instant::now());
        peers.record(state(id("a", 1), 1, 1, 0), now).unwrap();
        peers.record(state(id("b", 1), 1, 0, 0), now).unwrap();
        assert_eq!(peers.waiting_flows(&flow("a").pool), [vec![(0, "a")], vec![]]);
        assert_eq!(peers.waiting_flows(&NamespacedName::new("ns", "o")), [vec![], vec![]]);
    }

    #[test]
    fn number_of_peers_is_limited() {
        let (mut peers, now) = (KnownPeers::new(id("own", 1)), Instant::now());
        let mut record = |number: usize, now| peers.record(state(id(&number.to_string(), 1), 1, 1, 0), now);
        (0..MAX_PEERS).for_each(|number| drop(record(number, now).unwrap()));
        assert_eq!(record(MAX_PEERS, now), Err(PeerMessageError::TooManyPeers(MAX_PEERS)));
        assert!(record(MAX_PEERS, now + MAX_AGE).is_ok());
    }
}
