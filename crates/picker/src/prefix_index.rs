//! Index of the prompts that endpoints have presumably cached.
//!
//! A prompt is split into blocks, and the hash of a block covers all blocks before it, so that equal hashes imply equal prefixes
//! ([`block_hashes`]). One index serves all pools of the process. It maps the hash of a block to the endpoints that cache it,
//! so that one walk along the blocks of a prompt yields how much of it each endpoint caches ([`PrefixIndex::matches`]).
//!
//! Two limits apply. An endpoint caches at most as many blocks as its configuration states: each block of an endpoint has a
//! logical time, and those that are too old do not match ([`cache`]). The index as a whole has a fixed memory, and replaces the
//! least recently used blocks ([`block_table`]).

mod block_hashes;
mod block_table;
mod cache;
mod holders;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use block_table::BlockTable;
use cache::Caches;

pub(crate) use block_hashes::PrefixConfig;
pub(crate) use cache::PrefixCache;

/// Default memory of the index in bytes.
const DEFAULT_MEMORY: usize = 64 * 1024 * 1024;

/// Number of separately locked tables. All blocks of a prompt are in the table of its first block.
const SHARDS: usize = 16;

/// Number of endpoints of most pools, up to which a decision allocates no memory for their matches.
const TYPICAL_ENDPOINTS: usize = 16;

/// Index of the prompts that endpoints have presumably cached, for all pools.
#[derive(Debug)]
pub(crate) struct PrefixIndex {
    shards: [Mutex<BlockTable>; SHARDS],
    caches: Caches,
}

/// Numbers of leading blocks that endpoints cache, in the order of the endpoints.
pub(crate) type MatchedBlocks = SmallVec<[u32; TYPICAL_ENDPOINTS]>;

/// An endpoint that caches all blocks of a prompt so far.
#[derive(Debug, Clone, Copy)]
struct Match {
    cache: cache::CacheView,
    position: u32,
}

// === impl PrefixIndex ===

impl Default for PrefixIndex {
    fn default() -> Self {
        Self::with_memory(DEFAULT_MEMORY)
    }
}

impl PrefixIndex {
    /// Returns an empty index that uses at most `bytes`.
    pub(crate) fn with_memory(bytes: usize) -> Self {
        let table = |_| Mutex::new(BlockTable::new(bytes / SHARDS));
        Self { shards: std::array::from_fn(table), caches: Caches::default() }
    }

    /// Returns the empty cache of a new endpoint. Its blocks do not match anymore once it is dropped.
    pub(crate) fn new_cache(&self, config: &PrefixConfig) -> Arc<PrefixCache> {
        self.caches.add(config.lru_capacity)
    }

    /// Returns the number of leading blocks of a prompt that each of `caches` contains, 0 for `None`.
    pub(crate) fn matches<'a>(
        &self,
        hashes: &[u64],
        caches: impl ExactSizeIterator<Item = Option<&'a PrefixCache>>,
    ) -> MatchedBlocks {
        let mut matched = MatchedBlocks::from_elem(0, caches.len());
        let Some(table) = self.table(hashes) else { return matched };
        if table.holders(hashes[0]).is_empty() {
            return matched;
        }
        let new_match = |(position, cache): (u32, Option<&PrefixCache>)| Some(Match { cache: cache?.view(), position });
        let mut matches: SmallVec<[Match; TYPICAL_ENDPOINTS]> = (0..).zip(caches).filter_map(new_match).collect();
        matches.sort_unstable_by_key(|candidate| candidate.cache.id);
        for (depth, hash) in (1..).zip(hashes) {
            let mut holders = table.holders(*hash).iter().peekable();
            matches.retain(|candidate| {
                while holders.next_if(|holder| holder.cache < candidate.cache.id).is_some() {}
                let holder = holders.peek().filter(|holder| holder.cache == candidate.cache.id);
                let is_match = holder.is_some_and(|holder| candidate.cache.contains(holder.time));
                if is_match && let Some(blocks) = matched.get_mut(candidate.position as usize) {
                    *blocks = depth;
                }
                is_match
            });
            if matches.is_empty() {
                break;
            }
        }
        matched
    }

    /// Records that an endpoint caches a prompt.
    pub(crate) fn insert(&self, hashes: &[u64], cache: &PrefixCache) {
        if let Some(mut table) = self.table(hashes) {
            // Mark the first block as most recently used, so that a prompt is evicted from its end.
            hashes.iter().rev().for_each(|hash| table.insert(*hash, cache, &self.caches));
        }
    }

    /// Returns the table with the blocks of a prompt, if it has any.
    fn table(&self, hashes: &[u64]) -> Option<MutexGuard<'_, BlockTable>> {
        let shard = usize::try_from(hashes.first()? >> 48).unwrap_or_default() % SHARDS;
        Some(self.shards.get(shard)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
