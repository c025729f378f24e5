//! Prompts that were inserted since the last exchange with other replicas.

use std::{
    collections::HashSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::{cache::PrefixCache, checkpoints::indexed_prefixes};

/// Maximum number of hashes, of 8 bytes each. Further prompts are not logged.
const MAX_HASHES: usize = 16_384;

/// A log of insertions, which is empty unless it is enabled.
#[derive(Debug, Default)]
pub(crate) struct InsertLog {
    is_enabled: AtomicBool,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    inserts: Vec<LoggedInsert>,
    /// Number of hashes of all entries.
    hashes: usize,
}

/// An inserted prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedInsert {
    /// Identifies the cache of the endpoint.
    pub(crate) cache: u32,
    /// Number of blocks of the prompt.
    pub(crate) prompt_blocks: usize,
    /// Hash of the first block.
    pub(crate) first_block: u64,
    /// Hashes of the last indexed prefixes, in ascending order of their lengths. Those before them were logged earlier.
    pub(crate) hashes: Vec<u64>,
}

// === impl InsertLog ===

impl InsertLog {
    /// Logs insertions from now on.
    pub(crate) fn enable(&self) {
        self.is_enabled.store(true, Relaxed);
    }

    /// Logs that a prompt was inserted.
    pub(super) fn record(&self, hashes: &[u64], cache: &PrefixCache) {
        let Some(first_block) = hashes.first().copied().filter(|_| self.is_enabled.load(Relaxed)) else { return };
        let hash = |blocks: usize| blocks.checked_sub(1).and_then(|index| hashes.get(index)).copied();
        let indexed: Vec<u64> = indexed_prefixes(hashes.len()).filter_map(|prefix| hash(prefix.blocks)).collect();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let count = entries.hashes.saturating_add(indexed.len());
        if count <= MAX_HASHES {
            entries.hashes = count;
            let (cache, prompt_blocks) = (cache.id(), hashes.len());
            entries.inserts.push(LoggedInsert { cache, prompt_blocks, first_block, hashes: indexed });
        }
    }

    /// Returns the logged insertions and removes them. Prefixes that several prompts of an endpoint share are returned once.
    pub(crate) fn take(&self) -> Vec<LoggedInsert> {
        let Entries { inserts, .. } = std::mem::take(&mut *self.entries.lock().unwrap_or_else(PoisonError::into_inner));
        let mut known = HashSet::new();
        let without_known = |mut insert: LoggedInsert| {
            let cache = insert.cache;
            let shared = insert.hashes.iter().take_while(|hash| known.contains(&(cache, **hash))).count();
            insert.hashes.drain(..shared);
            known.extend(insert.hashes.iter().map(|hash| (cache, *hash)));
            Some(insert).filter(|insert| !insert.hashes.is_empty())
        };
        inserts.into_iter().filter_map(without_known).collect()
    }
}
