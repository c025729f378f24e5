//! The prefix cache: a bounded LRU of block hashes, each chained to the blocks before it.

use std::collections::{BTreeMap, HashMap};

use xxhash_rust::xxh64::xxh64;

/// Which prompt blocks the KV cache still holds.
pub(crate) struct PrefixCache {
    block_size: usize,
    capacity: usize,
    /// Block hash to last use.
    used: HashMap<u64, u64>,
    /// Last use to block hash, for eviction of the oldest.
    by_age: BTreeMap<u64, u64>,
    clock: u64,
}

impl PrefixCache {
    pub(crate) fn new(block_size: usize, capacity: usize) -> Self {
        Self { block_size: block_size.max(1), capacity, used: HashMap::new(), by_age: BTreeMap::new(), clock: 0 }
    }

    /// Tokens of `prompt` that need no computing. As in vLLM at least the last token is always computed.
    pub(crate) fn cached_tokens(&self, prompt: &[u32]) -> usize {
        let usable = prompt.len().saturating_sub(1);
        let blocks = chain(prompt, self.block_size).take_while(|hash| self.used.contains_key(hash)).count();
        (blocks * self.block_size).min(usable / self.block_size * self.block_size)
    }

    /// Remembers every full block of `prompt`.
    pub(crate) fn insert(&mut self, prompt: &[u32]) {
        let hashes: Vec<u64> = chain(prompt, self.block_size).collect();
        // The last block first: a chain is useless without its head, so the head stays youngest.
        for hash in hashes.into_iter().rev() {
            self.touch(hash);
        }
        while self.used.len() > self.capacity {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.used.remove(&oldest);
        }
    }

    fn touch(&mut self, hash: u64) {
        self.clock += 1;
        if let Some(before) = self.used.insert(hash, self.clock) {
            self.by_age.remove(&before);
        }
        self.by_age.insert(self.clock, hash);
    }
}

/// Hash of each full block, seeded with the hash of the block before it.
fn chain(prompt: &[u32], block_size: usize) -> impl Iterator<Item = u64> + '_ {
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
    fn a_shared_prefix_is_found_in_whole_blocks() {
        let mut cache = PrefixCache::new(16, 100);
        assert_eq!(cache.cached_tokens(&prompt(0..64)), 0);
        cache.insert(&prompt(0..64));
        assert_eq!(cache.cached_tokens(&prompt(0..100)), 64);
        assert_eq!(cache.cached_tokens(&prompt(0..40)), 32);
        assert_eq!(cache.cached_tokens(&prompt(1..64)), 0);
    }

    #[test]
    fn the_last_token_is_always_computed() {
        let mut cache = PrefixCache::new(16, 100);
        cache.insert(&prompt(0..64));
        assert_eq!(cache.cached_tokens(&prompt(0..64)), 48);
    }

    #[test]
    fn capacity_is_bounded_and_the_oldest_leaves_first() {
        let mut cache = PrefixCache::new(16, 4);
        cache.insert(&prompt(0..64));
        cache.insert(&prompt(1000..1032));
        assert_eq!(cache.used.len(), 4);
        assert_eq!(cache.cached_tokens(&prompt(1000..1040)), 32);
        assert_eq!(cache.cached_tokens(&prompt(0..64)), 32, "the head of the older chain survives");
    }
}
