//! Exchanges the state of the scheduler with other replicas.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use cluster::NamespacedName;
use tokio::time::Instant;

use super::{model_route::ModelRoute, pool_queues::PoolQueues};
use crate::{
    endpoint_registry::EndpointRegistry,
    endpoint_state::EndpointState,
    metrics::PeerSummary,
    peers::{
        EndpointKey, EndpointUpdate, FlowKey, FlowState, IDLE_UPDATE_INTERVAL, KnownPeers, PeerMessageError,
        PrefixInsert, RecordOutcome, ReplicaId, ReplicaState, WaitingFlows, decode, encode,
    },
    prefix_index::{LoggedInsert, PrefixCache, PrefixIndex},
    request_queue::QueuedFlow,
    snapshot::Snapshot,
};

/// How long a flow without requests is reported.
const MAX_IDLE_TIME: Duration = Duration::from_secs(10);

/// Maximum number of reported flows. Clients choose the names of flows without a use case.
const MAX_FLOWS: usize = 1_024;

/// What a scheduler reports to other replicas, and what these reported.
#[derive(Debug)]
pub(super) struct PeerExchange {
    own: ReplicaId,
    /// The last message.
    last: Mutex<LastMessage>,
    /// Whether a request was sent to an engine since then.
    has_new_requests: AtomicBool,
    /// Whether a peer has sent a message since the loads of the endpoints were updated.
    has_new_messages: AtomicBool,
    known: Mutex<KnownPeers>,
    served: Mutex<ServedFlows>,
}

/// The last message to peers.
#[derive(Debug, Default)]
struct LastMessage {
    sequence: u64,
    time: Option<Instant>,
}

/// What the exchange reads and changes in a scheduler.
#[derive(Clone, Copy)]
pub(super) struct ExchangedState<'a> {
    pub(super) endpoints: &'a EndpointRegistry,
    pub(super) queues: &'a PoolQueues,
    pub(super) prefix_index: &'a PrefixIndex,
    pub(super) snapshot: &'a Snapshot,
}

/// Tokens of the requests that were sent to engines.
#[derive(Debug, Default)]
struct ServedFlows {
    by_pool: BTreeMap<NamespacedName, BTreeMap<i32, HashMap<String, ServedFlow>>>,
    count: usize,
}

#[derive(Debug)]
struct ServedFlow {
    tokens: u64,
    last_request: Instant,
}

/// Returns what is reported about the endpoints: their requests in flight, and the prompts in `log`.
fn endpoint_updates(endpoints: Vec<(EndpointKey, Arc<EndpointState>)>, log: Vec<LoggedInsert>) -> Vec<EndpointUpdate> {
    let mut inserts: HashMap<u32, Vec<LoggedInsert>> = HashMap::new();
    for insert in log {
        inserts.entry(insert.cache).or_default().push(insert);
    }
    let update = |(endpoint, state): (EndpointKey, Arc<EndpointState>)| {
        let caches = if inserts.is_empty() { Vec::new() } else { state.prefix_caches() };
        let of_cache = |(block_size, cache): (usize, Arc<PrefixCache>)| {
            let logged = inserts.remove(&cache.id()).unwrap_or_default();
            logged.into_iter().map(move |insert| {
                let LoggedInsert { prompt_blocks, first_block, hashes, .. } = insert;
                PrefixInsert { block_size, prompt_blocks, first_block, hashes }
            })
        };
        let prefixes = caches.into_iter().flat_map(of_cache).collect();
        EndpointUpdate { endpoint, load: state.own_load(), prefixes }
    };
    let updates = endpoints.into_iter().map(update);
    updates.filter(|update| update.load.requests > 0 || !update.prefixes.is_empty()).collect()
}

/// Returns the flows that wait for each endpoint.
fn waiting_flows(snapshot: &Snapshot, known: &KnownPeers, queued: &[QueuedFlow]) -> HashMap<SocketAddr, WaitingFlows> {
    let mut by_address: HashMap<SocketAddr, WaitingFlows> = HashMap::new();
    let waiting: BTreeSet<&NamespacedName> =
        queued.iter().map(|flow| &flow.pool).chain(known.pools_with_waiting_flows()).collect();
    for pool in waiting.into_iter().filter_map(|pool| snapshot.pools.get(pool)) {
        let own = queued.iter().filter(|flow| flow.pool == pool.key);
        let own: Vec<(i32, &str)> = own.map(|flow| (flow.priority, flow.name.as_str())).collect();
        let flows = WaitingFlows::new(&own, &known.waiting_flows(&pool.key));
        if flows.all > 0.0 {
            for endpoint in pool.serving_endpoints() {
                let waiting = by_address.entry(endpoint.address).or_default();
                *waiting = waiting.with(flows);
            }
        }
    }
    by_address
}

/// Inserts the prompts that a peer sent to endpoints.
fn insert_prefixes(
    prefixes: Vec<(EndpointKey, Vec<PrefixInsert>)>,
    endpoints: &[(EndpointKey, Arc<EndpointState>)],
    index: &PrefixIndex,
) {
    let states: HashMap<&EndpointKey, &Arc<EndpointState>> =
        endpoints.iter().map(|(key, state)| (key, state)).collect();
    for (key, inserts) in prefixes {
        let Some(caches) = states.get(&key).map(|state| state.prefix_caches()) else { continue };
        for PrefixInsert { block_size, prompt_blocks, first_block, hashes } in inserts {
            for (_, cache) in caches.iter().filter(|(size, _)| *size == block_size) {
                index.insert_logged(prompt_blocks, first_block, &hashes, cache);
            }
        }
    }
}

// === impl PeerExchange ===

impl PeerExchange {
    /// Returns the exchange of the replica `own`, which knows no peers.
    pub(super) fn new(own: ReplicaId) -> Self {
        let known = Mutex::new(KnownPeers::new(own.clone()));
        Self {
            own,
            last: Mutex::default(),
            has_new_requests: AtomicBool::new(false),
            has_new_messages: AtomicBool::new(false),
            known,
            served: Mutex::default(),
        }
    }

    /// Returns the message with the state of this replica, `None` if none is due. Updates the loads of the endpoints by the messages
    /// of peers, and forgets those that are too old at `now`.
    pub(super) fn message(&self, state: ExchangedState<'_>, now: Instant) -> Option<Vec<u8>> {
        let sequence = self.next_sequence(now);
        if sequence.is_none() && !self.has_new_messages.load(Relaxed) {
            return None;
        }
        let (endpoints, queued) = (state.endpoints.all(), state.queues.flows());
        self.has_new_messages.store(false, Relaxed);
        self.apply(state.snapshot, &endpoints, &queued, now);
        Some(encode(ReplicaState {
            replica: self.own.clone(),
            sequence: sequence?,
            endpoints: endpoint_updates(endpoints, state.prefix_index.insert_log.take()),
            flows: self.lock_served().states(queued, now),
        }))
    }

    /// Returns the sequence number of the next message if it is due.
    fn next_sequence(&self, now: Instant) -> Option<u64> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.time.is_none_or(|time| now.saturating_duration_since(time) >= IDLE_UPDATE_INTERVAL);
        if !self.has_new_requests.swap(false, Relaxed) && !is_due {
            return None;
        }
        *last = LastMessage { sequence: last.sequence.saturating_add(1), time: Some(now) };
        Some(last.sequence)
    }

    /// Uses messages of a peer that were received at `now`, the oldest first. The loads in the last one replace those in the others.
    ///
    /// # Errors
    /// A message is invalid, so none is used, or there are too many peers.
    pub(super) fn record(
        &self,
        messages: &[impl AsRef<[u8]>],
        state: ExchangedState<'_>,
        now: Instant,
    ) -> Result<(), PeerMessageError> {
        // Messages are large: other tasks do not wait until they are decoded.
        let states: Vec<ReplicaState> =
            messages.iter().map(|message| decode(message.as_ref())).collect::<Result<_, _>>()?;
        let (mut served, mut prefixes, mut is_recorded) = (Vec::new(), Vec::new(), false);
        {
            let mut known = self.lock_known();
            for state in states {
                if let RecordOutcome::Recorded { served: new, prefixes: new_prefixes } = known.record(state, now)? {
                    served.extend(new);
                    prefixes.extend(new_prefixes);
                    is_recorded = true;
                }
            }
            served.sort_unstable_by(|left, right| left.flow.cmp(&right.flow));
            // All replicas that have a choice compensate for them.
            for band in served.chunk_by_mut(|left, right| left.flow.is_same_band(&right.flow)) {
                let replicas = band.first().map_or(1, |served| known.choosing_replicas(&served.flow));
                band.iter_mut().for_each(|served| served.tokens /= replicas);
            }
        }
        if is_recorded {
            state.queues.record_served_elsewhere(&served);
            let endpoints = if prefixes.is_empty() { Vec::new() } else { state.endpoints.all() };
            insert_prefixes(prefixes, &endpoints, state.prefix_index);
            self.has_new_messages.store(true, Relaxed);
        }
        Ok(())
    }

    /// Updates the loads and limits of all endpoints.
    fn apply(
        &self,
        snapshot: &Snapshot,
        endpoints: &[(EndpointKey, Arc<EndpointState>)],
        queued: &[QueuedFlow],
        now: Instant,
    ) {
        let (updates, has_lost_peer): (Vec<_>, bool) = {
            let mut known = self.lock_known();
            known.remove_expired(now);
            let has_lost_peer = known.take_lost();
            let waiting = waiting_flows(snapshot, &known, queued);
            let update = |(key, state): &(EndpointKey, Arc<EndpointState>)| {
                let share = waiting.get(&key.address).copied().unwrap_or_default().fair_share();
                (Arc::clone(state), known.load(key), share)
            };
            (endpoints.iter().map(update).collect(), has_lost_peer)
        };
        // Free engines dispatch requests: no lock is held.
        updates.into_iter().for_each(|(state, load, share)| state.record_peers(load, share, has_lost_peer));
    }

    /// Records that a request was sent to an engine.
    pub(super) fn record_served(&self, route: &ModelRoute) {
        let tokens = route.computed_tokens();
        self.has_new_requests.store(true, Relaxed);
        self.lock_served().record(&route.pool.key, route.priority, &route.flow, tokens, Instant::now());
    }

    /// Returns what is known about peers.
    pub(super) fn summary(&self, now: Instant) -> PeerSummary {
        let mut known = self.lock_known();
        known.remove_expired(now);
        PeerSummary { count: known.len(), ages: known.ages(now) }
    }

    fn lock_known(&self) -> MutexGuard<'_, KnownPeers> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_served(&self) -> MutexGuard<'_, ServedFlows> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ServedFlows ===

impl ServedFlows {
    fn record(&mut self, pool: &NamespacedName, priority: i32, flow: &str, tokens: u64, now: Instant) {
        let known = self.by_pool.get_mut(pool).and_then(|bands| bands.get_mut(&priority)?.get_mut(flow));
        if let Some(served) = known {
            *served = ServedFlow { tokens: served.tokens.saturating_add(tokens), last_request: now };
        } else if self.count < MAX_FLOWS {
            self.count += 1;
            let bands = self.by_pool.entry(pool.clone()).or_default();
            bands.entry(priority).or_default().insert(flow.to_owned(), ServedFlow { tokens, last_request: now });
        }
    }

    /// Returns the states of the flows with waiting requests in `queued` or recent ones, and forgets the others.
    fn states(&mut self, queued: Vec<QueuedFlow>, now: Instant) -> Vec<FlowState> {
        let is_recent = |flow: &ServedFlow| now.saturating_duration_since(flow.last_request) < MAX_IDLE_TIME;
        for bands in self.by_pool.values_mut() {
            bands.values_mut().for_each(|flows| flows.retain(|_, flow| is_recent(flow)));
            bands.retain(|_, flows| !flows.is_empty());
        }
        self.by_pool.retain(|_, bands| !bands.is_empty());
        self.count = self.by_pool.values().flat_map(BTreeMap::values).map(HashMap::len).sum();

        let mut states: BTreeMap<FlowKey, FlowState> = BTreeMap::new();
        for (pool, bands) in &self.by_pool {
            for (priority, flows) in bands {
                for (name, ServedFlow { tokens, .. }) in flows {
                    let flow = FlowKey { pool: pool.clone(), priority: *priority, name: name.clone() };
                    let state = FlowState { flow: flow.clone(), served_tokens: *tokens, waiting_requests: 0 };
                    states.insert(flow, state);
                }
            }
        }
        for QueuedFlow { pool, priority, name, requests, .. } in queued {
            let flow = FlowKey { pool, priority, name };
            let unserved = FlowState { flow: flow.clone(), served_tokens: 0, waiting_requests: 0 };
            states.entry(flow).or_insert(unserved).waiting_requests = requests;
        }
        states.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::{policy::SchedulingPolicy, scheduler::Scheduler};

    #[test]
    fn message_is_decoded_before_the_peers_are_locked() {
        let scheduler = Arc::new(Scheduler::new(SchedulingPolicy::default(), 1));
        scheduler.enable_peers(ReplicaId { name: "own".to_owned(), incarnation: 1 });
        let (sender, receiver) = mpsc::channel();
        let _known = scheduler.peers.get().unwrap().lock_known();
        thread::spawn({
            let scheduler = Arc::clone(&scheduler);
            move || sender.send(scheduler.record_peer_messages(&[b"invalid"], Instant::now()))
        });
        let result = receiver.recv_timeout(Duration::from_secs(10));
        assert!(matches!(result, Ok(Err(PeerMessageError::Protobuf(_)))), "{result:?}");
    }
}
