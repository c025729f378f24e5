//! The cache of one endpoint: which of its blocks are recent enough.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// Prompts that one endpoint has presumably cached, in blocks of one configuration.
///
/// Its clock advances with each block that is inserted. The blocks with the last `capacity` times are cached, as in an LRU cache
/// of this size. A block that is inserted again soon retains its time, so that shared prefixes do not displace other blocks; a
/// block is therefore evicted up to a quarter of the capacity too early.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    id: u32,
    capacity: AtomicU32,
    clock: AtomicU32,
}

/// An endpoint that caches a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    /// Identifier of the cache.
    pub(super) cache: u32,
    /// When the block was inserted, on the clock of the cache.
    pub(super) time: u32,
}

/// A cache at one point in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheView {
    /// Identifies the cache in the index. It is not used again after the cache is dropped.
    pub(super) id: u32,
    capacity: u32,
    now: u32,
}

/// All caches of an index.
#[derive(Debug, Default)]
pub(super) struct Caches(RwLock<CachesById>);

/// The caches by identifier.
#[derive(Debug, Default)]
pub(super) struct CachesById {
    by_id: BTreeMap<u32, Arc<PrefixCache>>,
    last_id: u32,
    /// Number of caches at which dropped ones are removed.
    cleanup_at: usize,
}

// === impl PrefixCache ===

impl PrefixCache {
    /// Returns the number that identifies the cache in the index.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the cache at this point in time.
    pub(super) fn view(&self) -> CacheView {
        CacheView { id: self.id, capacity: self.capacity.load(Relaxed), now: self.clock.load(Relaxed) }
    }

    /// Sets the capacity in blocks.
    pub(crate) fn limit(&self, capacity: usize) {
        self.capacity.store(clamp(capacity), Relaxed);
    }

    /// Returns a holder with a new time, after `blocks` were inserted.
    pub(super) fn new_holder(&self, blocks: u32) -> Holder {
        Holder { cache: self.id, time: self.clock.fetch_add(blocks, Relaxed).wrapping_add(blocks) }
    }
}

// === impl CacheView ===

impl CacheView {
    /// Returns whether a block that was inserted at `time` is cached.
    pub(super) fn contains(self, time: u32) -> bool {
        self.age(time) < self.capacity
    }

    /// Returns whether a block that is inserted again retains `time`.
    pub(super) fn is_recent(self, time: u32) -> bool {
        self.age(time) < self.capacity / 4
    }

    fn age(self, time: u32) -> u32 {
        self.now.wrapping_sub(time)
    }
}

// === impl Caches ===

impl Caches {
    /// Adds an empty cache of at most `capacity` blocks.
    pub(super) fn add(&self, capacity: usize) -> Arc<PrefixCache> {
        let mut caches = self.0.write().unwrap_or_else(PoisonError::into_inner);
        caches.last_id = caches.last_id.wrapping_add(1);
        let cache = Arc::new(PrefixCache {
            id: caches.last_id,
            capacity: AtomicU32::new(clamp(capacity)),
            clock: AtomicU32::new(0),
        });
        if caches.by_id.len() >= caches.cleanup_at {
            caches.by_id.retain(|_, cache| is_in_use(cache));
            caches.cleanup_at = 2 * caches.by_id.len().max(8);
        }
        caches.by_id.insert(cache.id, Arc::clone(&cache));
        cache
    }

    /// Returns the caches. None is added meanwhile.
    pub(super) fn by_id(&self) -> RwLockReadGuard<'_, CachesById> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl CachesById ===

impl CachesById {
    /// Returns whether `holder` may match: its cache exists and contains the block.
    pub(super) fn is_current(&self, holder: Holder) -> bool {
        self.by_id.get(&holder.cache).is_some_and(|cache| is_in_use(cache) && cache.view().contains(holder.time))
    }
}

/// Returns a capacity that differences of times can exceed.
fn clamp(capacity: usize) -> u32 {
    u32::try_from(capacity).unwrap_or(u32::MAX).min(u32::MAX / 2)
}

/// Returns whether an endpoint refers to a cache, beside the index.
fn is_in_use(cache: &Arc<PrefixCache>) -> bool {
    Arc::strong_count(cache) > 1
}
