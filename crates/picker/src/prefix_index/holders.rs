//! The endpoints that cache one block.

use smallvec::SmallVec;

use super::cache::{CachesById, Holder, PrefixCache};

/// The endpoints that cache one block, sorted by identifier. Most blocks are cached by one or two.
#[derive(Debug, Default)]
pub(super) struct Holders(SmallVec<[Holder; 2]>);

// === impl Holders ===

impl Holders {
    /// Returns the endpoints.
    pub(super) fn as_slice(&self) -> &[Holder] {
        &self.0
    }

    /// Returns whether an endpoint caches the block.
    pub(super) fn is_current(&self, caches: &CachesById) -> bool {
        self.0.iter().any(|holder| caches.is_current(*holder))
    }

    /// Returns the allocated memory in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        if self.0.spilled() { self.0.capacity() * size_of::<Holder>() } else { 0 }
    }

    /// Adds an endpoint that caches `blocks` more, or updates its time. If the memory must not grow by more than `available` bytes, the new endpoint
    /// replaces the one that was added to the index first.
    pub(super) fn insert(&mut self, cache: &PrefixCache, blocks: u32, caches: &CachesById, available: usize) {
        let view = cache.view();
        let position = self.0.binary_search_by_key(&view.id, |holder| holder.cache);
        if let Some(holder) = position.ok().and_then(|position| self.0.get_mut(position)) {
            if !view.is_recent(holder.time) {
                *holder = cache.new_holder(blocks);
            }
            return;
        }
        if self.0.len() == self.0.capacity() {
            self.make_room(caches, available);
        }
        let position = self.0.partition_point(|holder| holder.cache < view.id);
        self.0.insert(position, cache.new_holder(blocks));
    }

    /// Doubles the capacity, unless half of the endpoints do not cache the block anymore.
    fn make_room(&mut self, caches: &CachesById, available: usize) {
        let capacity = self.0.capacity();
        self.0.retain(|holder| caches.is_current(*holder));
        if self.0.len() <= capacity / 2 {
            return;
        }
        let new_bytes = 2 * capacity * size_of::<Holder>();
        if new_bytes - self.heap_bytes() <= available {
            self.0.reserve_exact(2 * capacity - self.0.len());
        } else if self.0.len() == capacity {
            self.0.remove(0);
        }
    }
}
