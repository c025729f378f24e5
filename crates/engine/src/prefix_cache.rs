//! The prefix cache: a bounded LRU cache of block hashes. The hash of a block includes all blocks before it.

use std::collections::{BTreeMap, HashMap};

use xxhash_rust::xxh64::xxh64;

/// Prompt blocks in the KV cache.
pub(crate) struct PrefixCache {
    block_size: usize,
    capacity: usize,
    /// Time of last use, by block hash.
    last_used: HashMap<u64, u64>,
    /// Block hash, by time of last use, for eviction.
    by_last_use: BTreeMap<u64, u64>,
    clock: u64,
}

impl PrefixCache {
    /// Returns an empty cache of `capacity` blocks with `block_size` tokens each.
    pub(crate) fn new(block_size: usize, capacity: usize) -> Self {
        Self {
            block_size: block_size.max(1),
            capacity,
            last_used: HashMap::new(),
            by_last_use: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Returns the number of tokens of `prompt` that are cached. As in vLLM, the last token is always computed.
    pub(crate) fn cached_tokens(&self, prompt: &[u32]) -> usize {
        let cacheable_tokens = prompt.len().saturating_sub(1);
        let blocks = block_hashes(prompt, self.block_size).take_while(|hash| self.last_used.contains_key(hash)).count();
        (blocks * self.block_size).min(cacheable_tokens / self.block_size * self.block_size)
    }

    /// Inserts every full block of `prompt` and evicts the least recently used blocks.
    pub(crate) fn insert(&mut self, prompt: &[u32]) {
        let hashes: Vec<u64> = block_hashes(prompt, self.block_size).collect();
        // Insert the last block first, so that it is evicted first: a block is useless without all blocks before it.
        for hash in hashes.into_iter().rev() {
            self.touch(hash);
        }
        while self.last_used.len() > self.capacity {
            let Some((_, oldest)) = self.by_last_use.pop_first() else { break };
            self.last_used.remove(&oldest);
        }
    }

    fn touch(&mut self, hash: u64) {
        self.clock += 1;
        if let Some(previous) = self.last_used.insert(hash, self.clock) {
            self.by_last_use.remove(&previous);
        }
        self.by_last_use.insert(self.clock, hash);
    }
}

/// Returns the hash of each full block, seeded with the hash of the previous block.
fn block_hashes(prompt: &[u32], block_size: usize) -> impl Iterator<Item = u64> + '_ {
    prompt.chunks_exact(block_size).scan(0, |parent, block| {
        let bytes: Vec<u8> = block.iter().flat_map(|token| token.to_le_bytes()).collect();
        *parent = xxh64(&bytes, *parent);
        Some(*parent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(range: std::ops::Range<u32>) -> Vec<u32> {
        range.collect()
    }

    #[test]
    fn shared_prefix_is_cached_in_full_blocks() {
        let mut cache = PrefixCache::new(16, 100);
        assert_eq!(cache.cached_tokens(&prompt(0..64)), 0);
        cache.insert(&prompt(0..64));
        assert_eq!(cache.cached_tokens(&prompt(0..100)), 64);
        assert_eq!(cache.cached_tokens(&prompt(0..40)), 32);
        assert_eq!(cache.cached_tokens(&prompt(1..64)), 0);
    }

    #[test]
    fn last_token_is_always_computed() {
        let mut cache = PrefixCache::new(16, 100);
        cache.insert(&prompt(0..64));
        assert_eq!(cache.cached_tokens(&prompt(0..64)), 48);
    }

    #[test]
    fn least_recently_used_blocks_are_evicted_first() {
        let mut cache = PrefixCache::new(16, 4);
        cache.insert(&prompt(0..64));
        cache.insert(&prompt(1000..1032));
        assert_eq!(cache.last_used.len(), 4);
        assert_eq!(cache.cached_tokens(&prompt(1000..1040)), 32);
        assert_eq!(cache.cached_tokens(&prompt(0..64)), 32, "the first blocks of the older prompt remain cached");
    }
}
