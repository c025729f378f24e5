//! The endpoint picker of gateway-api-inference-extension 1.5.0 without a configuration: `queue-scorer` with weight 2,
//! `kv-cache-utilization-scorer` with weight 2, `prefix-cache-scorer` with weight 3, `max-score-picker`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use fastrand::Rng;

use super::policy::Policy;
use crate::{engine::Gauges, trace::Request};

/// Flag `refresh-metrics-interval`.
const SCRAPE_INTERVAL: Duration = Duration::from_millis(50);

/// Characters per block: blocks of 16 tokens, as the engine reports, of four characters.
const BLOCK_BYTES: usize = 64;

/// Maximum number of hashed blocks per prompt.
const MAX_BLOCKS: usize = 256;

const QUEUE_WEIGHT: f64 = 2.0;
const KV_CACHE_WEIGHT: f64 = 2.0;
const PREFIX_WEIGHT: f64 = 3.0;

pub(super) struct Epp {
    gauges: Vec<Gauges>,
    indexes: Vec<LruHashes>,
    rng: Rng,
}

/// Block hashes of one endpoint, at most as many as it reports KV blocks.
struct LruHashes {
    capacity: usize,
    last_use: HashMap<u64, u64>,
    hashes_by_use: BTreeMap<u64, u64>,
    clock: u64,
}

// === impl Epp ===

impl Epp {
    pub(super) fn new(engines: usize, kv_blocks: usize, seed: u64) -> Self {
        let indexes = (0..engines).map(|_| LruHashes::new(kv_blocks)).collect();
        Self { gauges: vec![Gauges::default(); engines], indexes, rng: Rng::with_seed(seed) }
    }

    /// Returns the score of each endpoint for the length of its queue, relative to the shortest and the longest one.
    fn queue_scores(&self) -> Vec<f64> {
        let waiting = || self.gauges.iter().map(|gauges| gauges.waiting as f64);
        let (min, max) = (waiting().fold(f64::INFINITY, f64::min), waiting().fold(0.0, f64::max));
        waiting().map(|waiting| if max > min { (max - waiting) / (max - min) } else { 1.0 }).collect()
    }
}

/// Returns the hashes of the blocks of a prompt. The last, incomplete block has one, too.
fn block_hashes(request: &Request) -> Vec<u64> {
    let mut hash = hash_of(&request.model());
    let blocks = request.prompt().as_bytes().chunks(BLOCK_BYTES).take(MAX_BLOCKS);
    blocks
        .map(|block| {
            hash = hash_of(&(block, hash));
            hash
        })
        .collect()
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Policy for Epp {
    fn scrape_interval(&self) -> Option<Duration> {
        Some(SCRAPE_INTERVAL)
    }

    fn select(&mut self, _index: usize, request: &Request) -> usize {
        let hashes = block_hashes(request);
        // The search ends with the first block that no endpoint has; before it, the blocks need not be contiguous.
        let known: HashSet<u64> = hashes
            .iter()
            .copied()
            .take_while(|hash| self.indexes.iter().any(|index| index.last_use.contains_key(hash)))
            .collect();
        let queue_scores = self.queue_scores();
        let score = |engine: usize| {
            let index = &self.indexes[engine];
            let matched = known.iter().filter(|hash| index.last_use.contains_key(hash)).count();
            QUEUE_WEIGHT * queue_scores[engine]
                + KV_CACHE_WEIGHT * (1.0 - self.gauges[engine].kv_cache_usage)
                + PREFIX_WEIGHT * matched as f64 / hashes.len().max(1) as f64
        };
        let mut engines: Vec<(f64, usize)> = (0..self.gauges.len()).map(|engine| (score(engine), engine)).collect();
        // Equal scores are decided at random.
        self.rng.shuffle(&mut engines);
        engines.sort_by(|(left, _), (right, _)| right.total_cmp(left));
        let engine = engines.first().map_or(0, |(_, engine)| *engine);
        self.indexes[engine].insert(&hashes);
        engine
    }

    fn scraped(&mut self, engine: usize, gauges: &Gauges) {
        self.gauges[engine] = gauges.clone();
    }
}

// === impl LruHashes ===

impl LruHashes {
    fn new(capacity: usize) -> Self {
        Self { capacity, last_use: HashMap::new(), hashes_by_use: BTreeMap::new(), clock: 0 }
    }

    fn insert(&mut self, hashes: &[u64]) {
        for hash in hashes {
            self.clock += 1;
            if let Some(previous) = self.last_use.insert(*hash, self.clock) {
                self.hashes_by_use.remove(&previous);
            }
            self.hashes_by_use.insert(self.clock, *hash);
        }
        while self.last_use.len() > self.capacity {
            let Some((_, oldest)) = self.hashes_by_use.pop_first() else { break };
            self.last_use.remove(&oldest);
        }
    }
}
