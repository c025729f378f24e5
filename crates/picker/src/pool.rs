//! Pools as the scheduler sees them, and what is in flight on each endpoint.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use fastrand::Rng;

use crate::use_case::UseCase;

/// Namespace and name of a BackendPool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolKey {
    pub namespace: String,
    pub name: String,
}

/// One port of one Pod.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub address: SocketAddr,
    pub pod: String,
    /// The prompts that the Pod is for.
    pub prompts: Prompts,
    /// Shared by all pools that select the Pod.
    pub load: Arc<Load>,
}

/// Sizes of prompts in tokens, both bounds inclusive; an absent one is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prompts {
    pub min: Option<u64>,
    pub max: Option<u64>,
}

/// What we sent to an endpoint and have not seen the end of.
#[derive(Debug, Default)]
pub struct Load {
    requests: AtomicUsize,
    tokens: AtomicU64,
}

/// A pool with its ready endpoints and active use cases.
#[derive(Debug, Clone)]
pub struct Pool {
    pub key: PoolKey,
    /// Ready endpoints, sorted by address.
    pub ready: Vec<Endpoint>,
    /// All endpoints, ready or not.
    pub endpoints: usize,
    /// By model name.
    pub use_cases: BTreeMap<String, UseCase>,
    /// Whether undeclared models are served.
    pub implicit: bool,
    /// RFC 3339 creation time.
    pub created: String,
}

/// All pools at one moment.
#[derive(Debug, Default)]
pub struct Routing {
    pub pools: BTreeMap<PoolKey, Pool>,
    /// The pool that answers to a model name: that of the oldest use case.
    pub by_model: BTreeMap<String, PoolKey>,
}

/// The current routing, shared by watch and gateway.
#[derive(Debug)]
pub struct Pools {
    routing: RwLock<Arc<Routing>>,
    loads: Mutex<BTreeMap<SocketAddr, Arc<Load>>>,
    rng: Mutex<Rng>,
}

/// Counts one request on an endpoint until it is dropped.
#[derive(Debug)]
pub struct InFlight {
    load: Arc<Load>,
    tokens: u64,
}

impl Prompts {
    /// Whether a prompt of `tokens` is one of them.
    pub fn hold(self, tokens: u64) -> bool {
        self.min.is_none_or(|min| min <= tokens) && self.max.is_none_or(|max| tokens <= max)
    }
}

impl Pools {
    /// No pools yet; `seed` makes the draws repeatable.
    pub fn new(seed: u64) -> Self {
        Self { routing: RwLock::default(), loads: Mutex::default(), rng: Mutex::new(Rng::with_seed(seed)) }
    }

    /// Exchanges all pools at once; endpoints that stay keep their load.
    pub fn replace(&self, pools: Vec<Pool>) {
        let routing = Arc::new(Routing::new(pools));
        *self.routing.write().unwrap_or_else(PoisonError::into_inner) = routing;
        // A load that only this map holds belongs to no endpoint and no request.
        self.loads.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, load| Arc::strong_count(load) > 1);
    }

    /// The pools as of now.
    pub fn routing(&self) -> Arc<Routing> {
        Arc::clone(&self.routing.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The load of `address`, whatever pool asks.
    pub fn load(&self, address: SocketAddr) -> Arc<Load> {
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(loads.entry(address).or_default())
    }

    /// A generator for one request, drawn from the seed.
    pub fn rng(&self) -> Rng {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }
}

impl Routing {
    fn new(pools: Vec<Pool>) -> Self {
        let mut found: BTreeMap<&str, (&str, &PoolKey)> = BTreeMap::new();
        for pool in &pools {
            for (model, use_case) in &pool.use_cases {
                let ours = (use_case.created.as_str(), &pool.key);
                found.entry(model).and_modify(|oldest| *oldest = ours.min(*oldest)).or_insert(ours);
            }
        }
        let by_model = found.into_iter().map(|(model, (_, key))| (model.to_owned(), key.clone())).collect();
        Self { by_model, pools: pools.into_iter().map(|pool| (pool.key.clone(), pool)).collect() }
    }

    /// The pool and use case that answer to `model`, in `pool` only if one is addressed.
    pub fn find(&self, pool: Option<&PoolKey>, model: &str) -> Option<(&Pool, UseCase)> {
        let declared = pool.or_else(|| self.by_model.get(model)).and_then(|key| self.pools.get(key));
        if let Some(found) = declared.and_then(|pool| Some((pool, pool.use_cases.get(model)?.clone()))) {
            return Some(found);
        }
        let mut candidates: Vec<&Pool> = match pool {
            Some(key) => self.pools.get(key).into_iter().collect(),
            None => self.pools.values().collect(),
        };
        candidates.retain(|pool| pool.implicit);
        // Nothing is known of what they serve, so a ready pool goes first, then the older one.
        candidates.sort_by_key(|pool| (pool.ready.is_empty(), pool.created.as_str()));
        candidates.first().map(|pool| (*pool, UseCase::implicit(model)))
    }
}

impl Load {
    /// Requests under way.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Estimated tokens of these requests.
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Relaxed)
    }

    /// Counts a request of `tokens` estimated tokens until the result is dropped.
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

impl fmt::Display for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, created: &str, models: &[&str]) -> Pool {
        let use_case =
            |model: &&str| ((*model).to_owned(), UseCase { created: created.to_owned(), ..UseCase::implicit(model) });
        Pool {
            key: PoolKey { namespace: "ns".to_owned(), name: name.to_owned() },
            ready: Vec::new(),
            endpoints: 0,
            use_cases: models.iter().map(use_case).collect(),
            implicit: false,
            created: created.to_owned(),
        }
    }

    // spec: GW-50
    #[test]
    fn the_oldest_use_case_answers_unless_a_pool_is_addressed() {
        let pools = Pools::new(0);
        pools.replace(vec![pool("a", "2026-02-01", &["m", "x"]), pool("b", "2026-01-01", &["m"])]);
        let routing = pools.routing();
        let found = |pool: Option<&str>, model: &str| {
            let key = pool.map(|name| PoolKey { namespace: "ns".to_owned(), name: name.to_owned() });
            routing.find(key.as_ref(), model).map(|(pool, _)| pool.key.name.clone())
        };
        assert_eq!(found(None, "m").as_deref(), Some("b"));
        assert_eq!(found(Some("a"), "m").as_deref(), Some("a"));
        assert_eq!(found(Some("b"), "x"), None);
        assert_eq!(found(None, "nope"), None);
    }

    // spec: GW-72
    #[test]
    fn an_undeclared_model_needs_a_pool_that_allows_it() {
        let pools = Pools::new(0);
        pools.replace(vec![pool("a", "1", &["m"]), Pool { implicit: true, ..pool("b", "2", &[]) }]);
        let routing = pools.routing();
        let (pool, use_case) = routing.find(None, "free").unwrap();
        assert_eq!((pool.key.name.as_str(), use_case.draw(&mut Rng::with_seed(0))), ("b", "free"));
    }

    #[test]
    fn load_is_counted_until_the_end_and_survives_an_exchange() {
        let pools = Pools::new(0);
        let address = "127.0.0.1:1".parse().unwrap();
        let running = pools.load(address).begin(10);
        pools.replace(Vec::new());
        assert_eq!((pools.load(address).requests(), pools.load(address).tokens()), (1, 10));
        drop(running);
        assert_eq!((pools.load(address).requests(), pools.load(address).tokens()), (0, 0));
    }
}
