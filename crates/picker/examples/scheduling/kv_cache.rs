//! KV cache of an engine: blocks of tokens, with an LRU cache of the prefixes of earlier requests, as in vLLM.

use std::collections::{BTreeMap, HashMap};

/// Tokens per block.
pub(crate) const BLOCK_TOKENS: usize = 16;

/// The blocks of one engine. A block is unused, or belongs to requests, or contains a prefix that no request uses at the moment.
#[derive(Debug)]
pub(crate) struct KvCache {
    capacity: usize,
    /// Blocks without a hash: incomplete ones, and second copies.
    private_blocks: usize,
    /// Complete blocks by hash.
    cached: HashMap<u64, CachedBlock>,
    /// Hashes of the cached blocks that no request uses, the least recently used first.
    unused: BTreeMap<u64, u64>,
    clock: u64,
}

#[derive(Debug)]
struct CachedBlock {
    users: usize,
    /// Key in `unused` of a block without users.
    last_use: u64,
}

/// The blocks that one request uses.
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    cached: Vec<u64>,
    private: usize,
}

// === impl KvCache ===

impl KvCache {
    /// Returns an empty cache of `capacity` blocks.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, private_blocks: 0, cached: HashMap::new(), unused: BTreeMap::new(), clock: 0 }
    }

    /// Returns the number of blocks.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the fraction of the blocks that requests use.
    pub(crate) fn usage(&self) -> f64 {
        (self.capacity - self.available()) as f64 / self.capacity as f64
    }

    /// Returns the number of blocks that a request can get: unused ones and those of unused prefixes.
    fn available(&self) -> usize {
        self.capacity - self.private_blocks - (self.cached.len() - self.unused.len())
    }

    /// Returns the number of leading blocks of `hashes` in the cache.
    pub(crate) fn cached_prefix(&self, hashes: &[u64]) -> usize {
        hashes.iter().take_while(|hash| self.cached.contains_key(hash)).count()
    }

    /// Adds the cached blocks `hashes` and `new` blocks to a request. Returns whether enough blocks are available; otherwise
    /// nothing changes.
    pub(crate) fn allocate(&mut self, table: &mut BlockTable, hashes: &[u64], new: usize) -> bool {
        let reactivated =
            hashes.iter().filter(|hash| self.cached.get(hash).is_some_and(|block| block.users == 0)).count();
        if self.available() < reactivated + new {
            return false;
        }
        for hash in hashes {
            self.use_cached(*hash);
            table.cached.push(*hash);
        }
        while self.capacity - self.private_blocks - self.cached.len() < new {
            let Some((_, hash)) = self.unused.pop_first() else { break };
            self.cached.remove(&hash);
        }
        self.private_blocks += new;
        table.private += new;
        true
    }

    fn use_cached(&mut self, hash: u64) {
        if let Some(block) = self.cached.get_mut(&hash) {
            if block.users == 0 {
                self.unused.remove(&block.last_use);
            }
            block.users += 1;
        }
    }

    /// Records that a block of the request is complete: it serves other requests with the same prefix.
    pub(crate) fn complete_block(&mut self, table: &mut BlockTable, hash: u64) {
        if self.cached.contains_key(&hash) {
            return; // a second copy
        }
        self.cached.insert(hash, CachedBlock { users: 1, last_use: 0 });
        table.cached.push(hash);
        self.private_blocks -= 1;
        table.private -= 1;
    }

    /// Returns the blocks of a request. Its prefix stays in the cache until its blocks are needed, the last one first.
    pub(crate) fn release(&mut self, table: BlockTable) {
        self.private_blocks -= table.private;
        for hash in table.cached.into_iter().rev() {
            self.clock += 1;
            let Some(block) = self.cached.get_mut(&hash) else { continue };
            block.users -= 1;
            if block.users == 0 {
                block.last_use = self.clock;
                self.unused.insert(self.clock, hash);
            }
        }
    }
}
