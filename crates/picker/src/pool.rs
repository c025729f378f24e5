//! Pools, their endpoints, and the requests in flight on each endpoint.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use cluster::NamespacedName;
use fastrand::Rng;

use crate::use_case::UseCase;

/// One port of a Pod.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// IP address and port.
    pub address: SocketAddr,
    /// Name of the Pod.
    pub pod: String,
    /// Prompt sizes that the Pod is intended for.
    pub prompt_tokens: PromptTokenRange,
    /// Load of the endpoint, shared by all pools that select the Pod.
    pub load: Arc<EndpointLoad>,
}

/// Range of prompt sizes in tokens; both bounds are inclusive and optional.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptTokenRange {
    /// Lower bound.
    pub min: Option<u64>,
    /// Upper bound.
    pub max: Option<u64>,
}

/// Requests in flight on one endpoint.
#[derive(Debug, Default)]
pub struct EndpointLoad {
    requests: AtomicUsize,
    tokens: AtomicU64,
}

/// A pool with its ready endpoints and active use cases.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Namespace and name.
    pub key: NamespacedName,
    /// Ready endpoints, sorted by address.
    pub ready_endpoints: Vec<Endpoint>,
    /// Number of endpoints, ready or not.
    pub endpoint_count: usize,
    /// Use cases by model name.
    pub use_cases: BTreeMap<String, UseCase>,
    /// Whether the pool serves models without a use case.
    pub allows_implicit_use_cases: bool,
    /// Creation timestamp of the BackendPool (RFC 3339).
    pub creation_timestamp: String,
}

/// All pools at one point in time.
#[derive(Debug, Default)]
pub struct RoutingTable {
    /// Pools by namespace and name.
    pub pools: BTreeMap<NamespacedName, Pool>,
    /// Pool that serves a model name: the pool of the oldest use case.
    pub by_model: BTreeMap<String, NamespacedName>,
}

/// Current routing table and endpoint loads, shared by the watch and the gateway.
#[derive(Debug)]
pub struct Datastore {
    table: RwLock<Arc<RoutingTable>>,
    loads: Mutex<BTreeMap<SocketAddr, Arc<EndpointLoad>>>,
    rng: Mutex<Rng>,
}

/// Guard that counts a request as in flight until the guard is dropped.
#[derive(Debug)]
pub struct InFlight {
    load: Arc<EndpointLoad>,
    tokens: u64,
}

impl PromptTokenRange {
    /// Returns whether the range contains a prompt of `tokens`.
    pub fn contains(self, tokens: u64) -> bool {
        self.min.is_none_or(|min| min <= tokens) && self.max.is_none_or(|max| tokens <= max)
    }
}

impl Datastore {
    /// Returns a datastore without pools. `seed` makes random selections reproducible.
    pub fn new(seed: u64) -> Self {
        Self { table: RwLock::default(), loads: Mutex::default(), rng: Mutex::new(Rng::with_seed(seed)) }
    }

    /// Replaces all pools atomically; the loads of retained endpoints are preserved.
    pub fn replace(&self, pools: Vec<Pool>) {
        let routing = Arc::new(RoutingTable::new(pools));
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = routing;
        // Remove loads of removed endpoints without requests: only this map references them.
        self.loads.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, load| Arc::strong_count(load) > 1);
    }

    /// Returns the current routing table.
    pub fn routing_table(&self) -> Arc<RoutingTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the load of `address`, which all pools share.
    pub fn load(&self, address: SocketAddr) -> Arc<EndpointLoad> {
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(loads.entry(address).or_default())
    }

    /// Returns a random number generator for one request, derived from the seed.
    pub fn rng(&self) -> Rng {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }
}

impl RoutingTable {
    fn new(pools: Vec<Pool>) -> Self {
        let mut oldest: BTreeMap<&str, (&str, &NamespacedName)> = BTreeMap::new();
        for pool in &pools {
            for (model, use_case) in &pool.use_cases {
                let candidate = (use_case.creation_timestamp.as_str(), &pool.key);
                oldest.entry(model).and_modify(|oldest| *oldest = candidate.min(*oldest)).or_insert(candidate);
            }
        }
        let by_model = oldest.into_iter().map(|(model, (_, key))| (model.to_owned(), key.clone())).collect();
        Self { by_model, pools: pools.into_iter().map(|pool| (pool.key.clone(), pool)).collect() }
    }

    /// Returns the pool and the use case that serve `model`; searches only `pool` if one is given.
    pub fn find(&self, pool: Option<&NamespacedName>, model: &str) -> Option<(&Pool, UseCase)> {
        let declaring_pool = pool.or_else(|| self.by_model.get(model)).and_then(|key| self.pools.get(key));
        if let Some(found) = declaring_pool.and_then(|pool| Some((pool, pool.use_cases.get(model)?.clone()))) {
            return Some(found);
        }
        let mut candidates: Vec<&Pool> = match pool {
            Some(key) => self.pools.get(key).into_iter().collect(),
            None => self.pools.values().collect(),
        };
        candidates.retain(|pool| pool.allows_implicit_use_cases);
        // The models of these pools are unknown: prefer a pool with ready endpoints, then the oldest.
        candidates.sort_by_key(|pool| (pool.ready_endpoints.is_empty(), pool.creation_timestamp.as_str()));
        candidates.first().map(|pool| (*pool, UseCase::implicit(model)))
    }
}

impl EndpointLoad {
    /// Returns the number of requests in flight.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Returns the estimated total number of tokens of the requests in flight.
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Relaxed)
    }

    /// Counts a request with an estimated number of `tokens` as in flight until the returned guard is dropped.
    pub fn begin(self: &Arc<Self>, tokens: u64) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        self.tokens.fetch_add(tokens, Relaxed);
        InFlight { load: Arc::clone(self), tokens }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.load.requests.fetch_sub(1, Relaxed);
        self.load.tokens.fetch_sub(self.tokens, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, created: &str, models: &[&str]) -> Pool {
        let use_case = |model: &&str| {
            ((*model).to_owned(), UseCase { creation_timestamp: created.to_owned(), ..UseCase::implicit(model) })
        };
        Pool {
            key: NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() },
            ready_endpoints: Vec::new(),
            endpoint_count: 0,
            use_cases: models.iter().map(use_case).collect(),
            allows_implicit_use_cases: false,
            creation_timestamp: created.to_owned(),
        }
    }

    // spec: GW-50
    #[test]
    fn oldest_use_case_wins_unless_a_pool_is_given() {
        let pools = Datastore::new(0);
        pools.replace(vec![pool("a", "2026-02-01", &["m", "x"]), pool("b", "2026-01-01", &["m"])]);
        let routing = pools.routing_table();
        let serving_pool = |pool: Option<&str>, model: &str| {
            let key = pool.map(|name| NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() });
            routing.find(key.as_ref(), model).map(|(pool, _)| pool.key.name.clone())
        };
        assert_eq!(serving_pool(None, "m").as_deref(), Some("b"));
        assert_eq!(serving_pool(Some("a"), "m").as_deref(), Some("a"));
        assert_eq!(serving_pool(Some("b"), "x"), None);
        assert_eq!(serving_pool(None, "nope"), None);
    }

    // spec: GW-72
    #[test]
    fn undeclared_model_requires_pool_with_implicit_use_cases() {
        let pools = Datastore::new(0);
        pools.replace(vec![pool("a", "1", &["m"]), Pool { allows_implicit_use_cases: true, ..pool("b", "2", &[]) }]);
        let routing = pools.routing_table();
        let (pool, use_case) = routing.find(None, "free").unwrap();
        assert_eq!((pool.key.name.as_str(), use_case.draw_target(&mut Rng::with_seed(0))), ("b", "free"));
    }

    #[test]
    fn load_counts_requests_in_flight_and_survives_replacement() {
        let pools = Datastore::new(0);
        let address = "127.0.0.1:1".parse().unwrap();
        let running = pools.load(address).begin(10);
        pools.replace(Vec::new());
        assert_eq!((pools.load(address).requests(), pools.load(address).tokens()), (1, 10));
        drop(running);
        assert_eq!((pools.load(address).requests(), pools.load(address).tokens()), (0, 0));
    }
}
