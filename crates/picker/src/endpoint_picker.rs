//! The endpoint picker: answers a proxy that asks over Envoy's `ext_proc` which endpoint of one InferencePool a request
//! should go to.
//!
//! In: the pool and its Pods ([`watch`]), what engines say of themselves (`scrape`), and requests ([`serve`]). Out: the
//! choice of a [`Policy`]. `exchange` is the protocol without its transport, a pure state machine.

mod exchange;
mod fleet;
pub mod messages;
mod metrics;
mod page;
mod scrape;
mod server;
mod tls;
mod watch;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use fastrand::Rng;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    member::Member,
    policy::{Ask, Choice, Policy},
    pool::PoolKey,
    score::Memory,
};
use exchange::Asked;
use fleet::Known;
use metrics::Metrics;
use scrape::Scraper;

pub use page::serve_metrics;
pub use server::{Face, serve};
pub use tls::{Tls, TlsError};
pub use watch::{PoolGroup, watch};

/// One pool, the policy for it, and what is known of its endpoints.
pub struct EndpointPicker {
    /// Namespace and name of the InferencePool.
    pub pool: PoolKey,
    policy: Policy,
    known: RwLock<Arc<Vec<Known>>>,
    memory: Mutex<Memory>,
    rng: Mutex<Rng>,
    scraper: Scraper,
    metrics: Metrics,
    /// Whether pool and Pods have been seen.
    ready: AtomicBool,
    draining: AtomicBool,
}

impl EndpointPicker {
    /// Knows no endpoint yet. `seed` makes the draws repeatable.
    pub fn new(pool: PoolKey, policy: Policy, seed: u64) -> Self {
        Self {
            memory: Mutex::new(policy.memory()),
            pool,
            policy,
            known: RwLock::default(),
            rng: Mutex::new(Rng::with_seed(seed)),
            scraper: Scraper::new(),
            metrics: Metrics::new(),
            ready: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        }
    }

    /// Whether pool and Pods have been seen, and no end is near.
    pub fn ready(&self) -> bool {
        self.ready.load(Relaxed) && !self.draining.load(Relaxed)
    }

    /// Tells that the end is near: nobody new should ask, those who do are still answered.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Counters and gauges in the OpenMetrics text format.
    pub fn metrics_page(&self) -> String {
        let now = Instant::now();
        let members: Vec<Member> = self.known().iter().map(|known| known.member(now)).collect();
        self.metrics.render(&self.pool.name, &members)
    }

    /// The endpoints that may be chosen now, by address.
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        self.known().iter().map(|known| known.endpoint.address).collect()
    }

    /// Takes in the pool and the Pods of its namespace; endpoints that stay keep what is known of them.
    fn update(&self, pool: Option<&Value>, pods: &[Arc<Value>]) {
        let before = self.known();
        let found = pool.map(|pool| fleet::endpoints(pool, pods)).unwrap_or_default();
        let now: Vec<Known> = found.into_iter().map(|found| Known::of(found, &before, &self.scraper)).collect();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let stays = |address| {
            let same = |known: &&Known| known.endpoint.address == address;
            let uid = |list: &[Known]| list.iter().find(same).map(|known| known.uid.clone());
            uid(&now).is_some_and(|uid_now| uid(&before) == Some(uid_now))
        };
        memory.retain(stays);
        drop(memory);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
        self.ready.store(pool.is_some(), Relaxed);
    }

    fn known(&self) -> Arc<Vec<Known>> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The choice, and the prompt's chains for [`EndpointPicker::served`].
    fn choose(&self, asked: &Asked) -> Option<(Choice, Vec<Vec<u64>>)> {
        let now = Instant::now();
        let known = self.known();
        let allowed = known.iter().filter(|known| asked.allows(known.endpoint.address));
        let members: Vec<Member> = allowed.map(|known| known.member(now)).collect();
        let members: Vec<&Member> = members.iter().collect();
        let chains = self.policy.chains(&asked.target, &asked.body, &asked.facts);
        let ask = Ask { model: &asked.target, prompt_bytes: asked.facts.prompt_bytes(), chains: &chains };
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let choice = self.policy.choose(&ask, &members, &mut memory, &mut rng)?;
        drop(memory);
        self.metrics.chosen(now.elapsed(), choice.known_bytes, ask.prompt_bytes);
        Some((choice, chains))
    }

    /// Whether `served` is not the endpoint that was chosen. A port that stands for all of its Pod tells nothing of them.
    fn another(&self, chosen: SocketAddr, served: SocketAddr) -> bool {
        match self.policy.primary_port {
            Some(_) => chosen.ip() != served.ip(),
            None => chosen != served,
        }
    }

    /// A request to `endpoint` failed: whoever is dead fails fastest, and would get the more requests the longer that is
    /// not seen.
    fn doubt(&self, endpoint: SocketAddr) {
        if let Some(known) = self.known().iter().find(|known| known.endpoint.address == endpoint) {
            known.look();
        }
    }

    /// Another endpoint than the first served the request: it has the prompt now.
    fn served(&self, chains: &[Vec<u64>], endpoint: SocketAddr) {
        if self.known().iter().any(|known| known.endpoint.address == endpoint) {
            let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            self.policy.remember(chains, &mut memory, endpoint);
        }
    }
}
