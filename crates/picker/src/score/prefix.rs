//! Prefix cache scorer: prefers endpoints that have already computed a prefix of the prompt.
//!
//! The prompt is split into blocks. The hash of a block covers all previous blocks, so that equal hashes imply equal
//! prefixes. The index contains a bounded number of hashes per endpoint and evicts the least recently used.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
};

use xxhash_rust::xxh64::Xxh64;

use crate::candidate::Candidate;

/// How prompts are split into blocks, and how many blocks are indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrefixConfig {
    /// Bytes per block, at least 1.
    pub(crate) block_size: usize,
    /// Maximum number of hashed blocks per prompt.
    pub(crate) max_blocks: usize,
    /// Maximum number of indexed blocks per endpoint.
    pub(crate) lru_capacity: usize,
}

/// Index of the prefixes that each endpoint has presumably cached.
#[derive(Debug, Default)]
pub(crate) struct PrefixIndex {
    by_endpoint: BTreeMap<SocketAddr, LruBlocks>,
}

/// Block hashes of one endpoint with their last use as a logical time.
#[derive(Debug, Default)]
struct LruBlocks {
    last_use: HashMap<u64, u64>,
    hashes_by_use: BTreeMap<u64, u64>,
    clock: u64,
}

// === impl PrefixConfig ===

impl PrefixConfig {
    /// Returns one hash per complete block of the prompt. The hashes include `model`, since models do not share KV caches.
    pub(crate) fn block_hashes<'a>(&self, model: &str, chunks: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
        let mut hasher = Xxh64::new(0);
        hasher.update(model.as_bytes());
        hasher.update(&[0xff]);
        let (mut hashes, mut remaining) = (Vec::new(), self.block_size);
        for mut chunk in chunks {
            while hashes.len() < self.max_blocks && chunk.len() >= remaining {
                let (head, rest) = chunk.split_at(remaining);
                hasher.update(head);
                hashes.push(hasher.digest());
                (chunk, remaining) = (rest, self.block_size);
            }
            if hashes.len() >= self.max_blocks {
                break;
            }
            hasher.update(chunk);
            remaining -= chunk.len().min(remaining - 1);
        }
        hashes
    }
}

// === impl PrefixIndex ===

impl PrefixIndex {
    /// Returns the number of leading blocks in `hashes` that the endpoint has cached.
    pub(crate) fn matched_blocks(&self, hashes: &[u64], endpoint: SocketAddr) -> usize {
        let Some(blocks) = self.by_endpoint.get(&endpoint) else { return 0 };
        hashes.iter().take_while(|hash| blocks.last_use.contains_key(hash)).count()
    }

    /// Returns the cached fraction of `hashes`; 0 for a prompt shorter than a block.
    pub(crate) fn matched_fraction(&self, hashes: &[u64], candidate: &Candidate) -> f64 {
        if hashes.is_empty() {
            return 0.0;
        }
        self.matched_blocks(hashes, candidate.endpoint.address) as f64 / hashes.len() as f64
    }

    /// Records that the endpoint caches the blocks `hashes`.
    pub(crate) fn insert(&mut self, hashes: &[u64], endpoint: SocketAddr, capacity: usize) {
        let blocks = self.by_endpoint.entry(endpoint).or_default();
        // Mark the first block as most recently used, so that a prompt is evicted from its end.
        for hash in hashes.iter().rev() {
            blocks.touch(*hash);
        }
        blocks.evict_to(capacity);
    }

    /// Removes endpoints for which `keep` is false. Another Pod may reuse the address of a removed endpoint.
    pub(crate) fn retain(&mut self, keep: impl Fn(SocketAddr) -> bool) {
        self.by_endpoint.retain(|address, _| keep(*address));
    }
}

// === impl LruBlocks ===

impl LruBlocks {
    fn touch(&mut self, hash: u64) {
        self.clock += 1;
        if let Some(previous_use) = self.last_use.insert(hash, self.clock) {
            self.hashes_by_use.remove(&previous_use);
        }
        self.hashes_by_use.insert(self.clock, hash);
    }

    fn evict_to(&mut self, capacity: usize) {
        while self.last_use.len() > capacity {
            let Some((_, oldest)) = self.hashes_by_use.pop_first() else { return };
            self.last_use.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const PREFIX: PrefixConfig = PrefixConfig { block_size: 4, max_blocks: 8, lru_capacity: 100 };

    fn hashes(text: &str) -> Vec<u64> {
        PREFIX.block_hashes("m", [text.as_bytes()].into_iter())
    }

    fn address(number: u8) -> SocketAddr {
        ([10, 0, 0, number], 8000).into()
    }

    #[rstest]
    #[case::same("aaaabbbbcccc", "aaaabbbbcccc", 3)]
    #[case::longer("aaaabbbb", "aaaabbbbcccc", 2)]
    #[case::shorter("aaaabbbbcccc", "aaaabbbb", 2)]
    #[case::differs_in_the_middle("aaaaXbbbcccc", "aaaabbbbcccc", 1)]
    #[case::differs_at_the_start("Xaaabbbbcccc", "aaaabbbbcccc", 0)]
    #[case::less_than_a_block("aaa", "aaa", 0)]
    #[case::partial_block_is_ignored("aaaabb", "aaaabb", 1)]
    fn matches_common_prefixes(#[case] cached: &str, #[case] prompt: &str, #[case] blocks: usize) {
        let mut index = PrefixIndex::default();
        index.insert(&hashes(cached), address(1), PREFIX.lru_capacity);
        assert_eq!(
            (index.matched_blocks(&hashes(prompt), address(1)), index.matched_blocks(&hashes(prompt), address(2))),
            (blocks, 0)
        );
    }

    #[test]
    fn hashes_do_not_depend_on_chunks_and_are_bounded() {
        let chunked_hashes = PREFIX.block_hashes("m", [&b"a"[..], b"", b"aaab", b"bbbcc", b"cc"].into_iter());
        assert_eq!(chunked_hashes, hashes("aaaabbbbcccc"));
        assert_eq!(hashes(&"x".repeat(1_000)).len(), PREFIX.max_blocks);
        assert_ne!(PREFIX.block_hashes("n", [&b"aaaa"[..]].into_iter()), hashes("aaaa"));
    }

    #[test]
    fn least_recently_used_prompt_is_evicted_from_its_end() {
        let mut index = PrefixIndex::default();
        for text in ["aaaabbbb", "ccccdddd", "aaaa"] {
            index.insert(&hashes(text), address(1), 3);
        }
        let matched = |text| index.matched_blocks(&hashes(text), address(1));
        assert_eq!((matched("aaaabbbb"), matched("ccccdddd")), (1, 2));
        let cached = &index.by_endpoint[&address(1)];
        assert_eq!((cached.last_use.len(), cached.hashes_by_use.len()), (3, 3));
    }

    #[test]
    fn removed_endpoint_has_no_cached_blocks() {
        let mut index = PrefixIndex::default();
        index.insert(&hashes("aaaa"), address(1), 10);
        index.retain(|endpoint| endpoint != address(1));
        assert_eq!(index.matched_blocks(&hashes("aaaa"), address(1)), 0);
    }
}
