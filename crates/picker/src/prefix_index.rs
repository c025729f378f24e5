//! Index of the prompts that endpoints have presumably cached.
//!
//! A prompt is split into blocks, and the hash of a block covers all blocks before it, so that equal hashes imply equal prefixes
//! ([`block_hashes`]). One index serves all pools of the process. It maps the hash of a block to the endpoints that cache it, for
//! the first blocks of a prompt, its last ones and some between them ([`checkpoints`]). An endpoint that caches a prefix caches all
//! shorter ones, so that a binary search yields how much of a prompt each endpoint caches ([`PrefixIndex::matches`]).
//!
//! Two limits apply. An endpoint caches at most as many blocks as its configuration states: each block of an endpoint has a
//! logical time, and those that are too old do not match ([`cache`]). The index as a whole has a fixed memory, and replaces the
//! least recently used blocks ([`block_table`]).
//!
//! Replicas exchange what they insert ([`insert_log`]), in a format that all releases with the same [`PREFIX_FORMAT`] understand.

mod block_hashes;
mod block_table;
mod cache;
mod checkpoints;
mod holders;
mod insert_log;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use block_table::BlockTable;
use cache::{CacheView, Caches, Holder};
use checkpoints::{IndexedPrefix, blocks_at, checkpoints_within, indexed_prefixes, prefixes_after};
use insert_log::InsertLog;

pub(crate) use block_hashes::PrefixConfig;
pub(crate) use cache::PrefixCache;
pub(crate) use checkpoints::indexed_count;
pub(crate) use insert_log::LoggedInsert;

/// Version of the hashes of blocks and of the choice of the indexed ones.
pub(crate) const PREFIX_FORMAT: u32 = 1;

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
    /// What is sent to other replicas.
    pub(crate) insert_log: InsertLog,
}

/// Numbers of leading blocks that endpoints cache, in the order of the endpoints.
pub(crate) type MatchedBlocks = SmallVec<[u32; TYPICAL_ENDPOINTS]>;

/// An endpoint, while it is searched how much of a prompt it caches.
#[derive(Debug, Clone, Copy)]
struct Match {
    cache: CacheView,
    position: u32,
}

/// Endpoints, sorted by the identifiers of their caches.
type Matches = SmallVec<[Match; TYPICAL_ENDPOINTS]>;

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
        Self { shards: std::array::from_fn(table), caches: Caches::default(), insert_log: InsertLog::default() }
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
        let mut matches: Matches = (0..).zip(caches).filter_map(new_match).collect();
        matches.sort_unstable_by_key(|candidate| candidate.cache.id);
        // Groups of endpoints, and how many of the checkpoints they may cache.
        let mut groups = vec![(matches, 0..=checkpoints_within(hashes.len()))];
        while let Some((mut group, counts)) = groups.pop() {
            let (cached, last) = counts.into_inner();
            if cached == last {
                record_blocks(&group, blocks_at(cached), &mut matched);
                for blocks in prefixes_after(cached, hashes.len()) {
                    group = drain_holders(&mut group, table.holders(hashes[blocks - 1]));
                    if group.is_empty() {
                        break;
                    }
                    record_blocks(&group, blocks, &mut matched);
                }
                continue;
            }
            let middle = last - (last - cached) / 2;
            let with_more = drain_holders(&mut group, table.holders(hashes[blocks_at(middle) - 1]));
            for (group, counts) in [(group, cached..=middle - 1), (with_more, middle..=last)] {
                if !group.is_empty() {
                    groups.push((group, counts));
                }
            }
        }
        matched
    }

    /// Records that an endpoint caches a prompt.
    pub(crate) fn insert(&self, hashes: &[u64], cache: &PrefixCache) {
        self.insert_log.record(hashes, cache);
        let caches = self.caches.by_id();
        if let Some(mut table) = self.table(hashes) {
            // Mark the first block as most recently used, so that a prompt is evicted from its end.
            for IndexedPrefix { blocks, distance } in indexed_prefixes(hashes.len()).rev() {
                table.insert(hashes[blocks - 1], u32::try_from(distance).unwrap_or(u32::MAX), cache, &caches);
            }
        }
    }

    /// Records that an endpoint caches a prompt of `prompt_blocks`, which another replica inserted. `hashes` are those of its last
    /// indexed prefixes.
    pub(crate) fn insert_logged(&self, prompt_blocks: usize, first_block: u64, hashes: &[u64], cache: &PrefixCache) {
        let caches = self.caches.by_id();
        if let Some(mut table) = self.table(&[first_block]) {
            for (IndexedPrefix { distance, .. }, hash) in indexed_prefixes(prompt_blocks).rev().zip(hashes.iter().rev())
            {
                table.insert(*hash, u32::try_from(distance).unwrap_or(u32::MAX), cache, &caches);
            }
        }
    }

    /// Returns the table with the blocks of a prompt, if it has any.
    fn table(&self, hashes: &[u64]) -> Option<MutexGuard<'_, BlockTable>> {
        let shard = usize::try_from(hashes.first()? >> 48).unwrap_or_default() % SHARDS;
        Some(self.shards.get(shard)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Records that the endpoints in `group` cache at least this number of blocks.
fn record_blocks(group: &Matches, blocks: usize, matched: &mut MatchedBlocks) {
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    group.iter().for_each(|candidate| matched[candidate.position as usize] = blocks);
}

/// Removes the endpoints from `group` that are among `holders`, and returns them. Both are sorted.
fn drain_holders(group: &mut Matches, mut holders: &[Holder]) -> Matches {
    let mut removed = Matches::new();
    group.retain(|candidate| {
        let is_before = |holder: &Holder| holder.cache < candidate.cache.id;
        if holders.first().is_some_and(is_before) {
            holders = &holders[holders.partition_point(is_before)..];
        }
        let holder = holders.first().filter(|holder| holder.cache == candidate.cache.id);
        let is_holder = holder.is_some_and(|holder| candidate.cache.contains(holder.time));
        if is_holder {
            removed.push(*candidate);
        }
        !is_holder
    });
    removed
}
