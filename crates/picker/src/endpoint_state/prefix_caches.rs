//! Prompts that an endpoint has presumably cached.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::prefix_index::{PrefixCache, PrefixConfig, PrefixIndex};

/// Caches of one endpoint, by configuration of the pools that select it.
#[derive(Debug, Default)]
pub(super) struct PrefixCaches(Mutex<Vec<(PrefixConfig, Arc<PrefixCache>)>>);

// === impl PrefixCaches ===

impl PrefixCaches {
    /// Returns the cache in `index` for a configuration. `tokens` is how many the engine caches, if it reports that.
    pub(super) fn get_or_add(
        &self,
        config: &PrefixConfig,
        index: &PrefixIndex,
        tokens: Option<f64>,
    ) -> Arc<PrefixCache> {
        let mut caches = self.lock();
        if let Some((_, cache)) = caches.iter().find(|(existing, _)| existing == config) {
            return Arc::clone(cache);
        }
        // Configurations are edited: those that no pool uses anymore are dropped.
        caches.retain(|(_, cache)| Arc::strong_count(cache) > 1);
        let cache = index.new_cache(config);
        cache.limit(config.capacity(tokens));
        caches.push((*config, Arc::clone(&cache)));
        cache
    }

    /// Limits the caches to what the engine caches, if it reports that.
    pub(super) fn limit(&self, tokens: Option<f64>) {
        self.lock().iter().for_each(|(config, cache)| cache.limit(config.capacity(tokens)));
    }

    /// Returns the caches, and the block size of each.
    pub(super) fn all(&self) -> Vec<(usize, Arc<PrefixCache>)> {
        self.lock().iter().map(|(config, cache)| (config.block_size, Arc::clone(cache))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(PrefixConfig, Arc<PrefixCache>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
