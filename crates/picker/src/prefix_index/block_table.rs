//! A hash table of blocks with a fixed memory.
//!
//! Each block has two buckets of eight slots in which it may be stored, so that the table is nearly full before a block finds no
//! empty slot. It then replaces the least recently used of the sixteen, which is nearly the least recently used of all, if no
//! endpoint caches that block anymore; otherwise the table doubles, up to its maximum size. The table is therefore not much larger
//! than the caches of the endpoints. All this costs five cache lines, two each for hashes and times and one for the block. A list of
//! all blocks by their use would cost one more for each block of a prompt, and 16 bytes.

use super::{
    cache::{CachesById, Holder, PrefixCache},
    holders::Holders,
};

/// Slots per bucket: their hashes fill a cache line.
const SLOTS: usize = 8;

/// Number of buckets of the smallest table.
const MIN_BUCKETS: usize = 8;

/// Blocks by hash.
#[derive(Debug)]
pub(super) struct BlockTable {
    /// Hashes of the blocks, 0 in empty slots. The number of buckets is a power of two, or 0.
    hashes: Vec<[u64; SLOTS]>,
    /// Logical times of the last use of the blocks, in the same order.
    last_uses: Vec<[u32; SLOTS]>,
    /// Endpoints that cache the blocks, in the same order.
    blocks: Vec<[Holders; SLOTS]>,
    /// Memory that blocks have allocated.
    heap_bytes: usize,
    max_bytes: usize,
    /// Logical time, which advances with each use of a block.
    clock: u32,
}

/// Position of a block: bucket and slot.
type Position = (usize, usize);

// === impl BlockTable ===

impl BlockTable {
    /// Returns an empty table that will use at most `max_bytes`.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { hashes: Vec::new(), last_uses: Vec::new(), blocks: Vec::new(), heap_bytes: 0, max_bytes, clock: 0 }
    }

    /// Returns the endpoints that cache a block.
    pub(super) fn holders(&self, hash: u64) -> &[Holder] {
        let block = self.find(hash).and_then(|(bucket, slot)| self.blocks.get(bucket)?.get(slot));
        block.map_or(&[], Holders::as_slice)
    }

    /// Records that an endpoint caches a block, and `blocks - 1` before it.
    pub(super) fn insert(&mut self, hash: u64, blocks: u32, cache: &PrefixCache, caches: &CachesById) {
        let Some((bucket, slot)) = self.find(hash).or_else(|| self.allocate(hash, caches)) else { return };
        self.clock = self.clock.wrapping_add(1);
        let (clock, available) = (self.clock, self.max_bytes.saturating_sub(self.bytes()));
        self.last_uses[bucket][slot] = clock;
        let holders = &mut self.blocks[bucket][slot];
        let old_bytes = holders.heap_bytes();
        holders.insert(cache, blocks, caches, available);
        self.heap_bytes = self.heap_bytes - old_bytes + holders.heap_bytes();
    }

    /// Returns the used memory.
    pub(super) fn bytes(&self) -> usize {
        Self::table_bytes(self.hashes.len()) + self.heap_bytes
    }

    fn table_bytes(buckets: usize) -> usize {
        buckets * (size_of::<[u64; SLOTS]>() + size_of::<[u32; SLOTS]>() + size_of::<[Holders; SLOTS]>())
    }

    fn buckets(&self, hash: u64) -> [usize; 2] {
        let mask = self.hashes.len().wrapping_sub(1) as u64;
        [hash & mask, (hash >> 24) & mask].map(|bucket| bucket as usize)
    }

    fn find(&self, hash: u64) -> Option<Position> {
        self.find_in_buckets(hash, hash)
    }

    /// Returns the position of `content`, a hash or 0 for an empty slot, in the buckets of `hash`.
    fn find_in_buckets(&self, hash: u64, content: u64) -> Option<Position> {
        self.buckets(hash).into_iter().find_map(|bucket| {
            let slot = self.hashes.get(bucket)?.iter().position(|slot| *slot == content)?;
            Some((bucket, slot))
        })
    }

    /// Returns the position of a new block without endpoints. Returns `None` if the table may contain no block.
    fn allocate(&mut self, hash: u64, caches: &CachesById) -> Option<Position> {
        let position = match self.emptier_bucket(hash) {
            Some(position) => position,
            None => match self.least_recently_used(hash) {
                Some((bucket, slot)) if !self.blocks[bucket][slot].is_current(caches) => (bucket, slot),
                _ if self.grow() => return self.allocate(hash, caches),
                position => position?,
            },
        };
        self.store(position, hash, self.clock, Holders::default());
        Some(position)
    }

    /// Returns an empty slot in that of the two buckets of `hash` with more empty slots.
    fn emptier_bucket(&self, hash: u64) -> Option<Position> {
        let empty_slots = |bucket: &usize| {
            self.hashes.get(*bucket).map_or(0, |slots| slots.iter().filter(|slot| **slot == 0).count())
        };
        let bucket = self.buckets(hash).into_iter().max_by_key(empty_slots)?;
        Some((bucket, self.hashes.get(bucket)?.iter().position(|slot| *slot == 0)?))
    }

    fn least_recently_used(&self, hash: u64) -> Option<Position> {
        let age = |(bucket, slot): &Position| {
            let last_use = self.last_uses.get(*bucket).and_then(|last_uses| last_uses.get(*slot));
            last_use.map(|last_use| self.clock.wrapping_sub(*last_use))
        };
        let buckets = self.buckets(hash).into_iter().filter(|bucket| *bucket < self.hashes.len());
        buckets.flat_map(|bucket| (0..SLOTS).map(move |slot| (bucket, slot))).max_by_key(age)
    }

    /// Replaces the content of a slot.
    fn store(&mut self, (bucket, slot): Position, hash: u64, last_use: u32, holders: Holders) {
        self.heap_bytes += holders.heap_bytes();
        self.hashes[bucket][slot] = hash;
        self.last_uses[bucket][slot] = last_use;
        let old = std::mem::replace(&mut self.blocks[bucket][slot], holders);
        self.heap_bytes -= old.heap_bytes();
    }

    /// Doubles the table. Returns false if it would use too much memory.
    fn grow(&mut self) -> bool {
        let buckets = (2 * self.hashes.len()).max(MIN_BUCKETS);
        if Self::table_bytes(buckets) + self.heap_bytes > self.max_bytes {
            return false;
        }
        let hashes = std::mem::replace(&mut self.hashes, vec![[0; SLOTS]; buckets]);
        let last_uses = std::mem::replace(&mut self.last_uses, vec![[0; SLOTS]; buckets]);
        let mut blocks = Vec::new();
        blocks.resize_with(buckets, Default::default);
        let blocks = std::mem::replace(&mut self.blocks, blocks);
        self.heap_bytes = 0;
        let uses = last_uses.into_iter().flatten().zip(blocks.into_iter().flatten());
        for (hash, (last_use, holders)) in hashes.into_iter().flatten().zip(uses).filter(|(hash, _)| *hash != 0) {
            if let Some(position) = self.emptier_bucket(hash).or_else(|| self.least_recently_used(hash)) {
                self.store(position, hash, last_use, holders);
            }
        }
        true
    }
}

#[cfg(test)]
impl BlockTable {
    /// Returns the used memory, computed from all blocks.
    pub(super) fn checked_bytes(&self) -> usize {
        let heap_bytes = self.blocks.iter().flatten().map(Holders::heap_bytes).sum::<usize>();
        assert_eq!(heap_bytes, self.heap_bytes);
        assert_eq!([self.hashes.capacity(), self.last_uses.capacity(), self.blocks.capacity()], [self.hashes.len(); 3]);
        assert!(self.bytes() <= self.max_bytes);
        self.bytes()
    }
}
