//! Splits prompts into blocks.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::request::BYTES_PER_TOKEN;

/// Number of blocks of most prompts.
const TYPICAL_BLOCKS: usize = 64;

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

// === impl PrefixConfig ===

impl PrefixConfig {
    /// Returns the number of blocks that an endpoint caches if its engine caches at most `tokens`. It is twice their number: to forget
    /// a prefix too early, so that another engine computes it too, is worse than to send a request to the engine that had cached it.
    pub(crate) fn capacity(&self, tokens: Option<f64>) -> usize {
        let blocks = |tokens: f64| (2.0 * tokens * BYTES_PER_TOKEN as f64 / self.block_size as f64) as usize;
        tokens.map_or(self.lru_capacity, |tokens| blocks(tokens).min(self.lru_capacity))
    }

    /// Returns one hash per complete block of the prompt, never 0. The hashes include `model`, since models do not share KV
    /// caches, and the block size, since configurations share the index.
    pub(crate) fn block_hashes<'a>(&self, model: &str, chunks: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
        let mut parent = xxh3_64_with_seed(model.as_bytes(), self.block_size as u64);
        let mut hashes = Vec::with_capacity(TYPICAL_BLOCKS.min(self.max_blocks));
        // The beginning of a block in earlier chunks.
        let mut begun: Vec<u8> = Vec::new();
        for mut chunk in chunks {
            while hashes.len() < self.max_blocks {
                let Some((end, rest)) = chunk.split_at_checked(self.block_size - begun.len()) else {
                    begun.extend_from_slice(chunk);
                    break;
                };
                chunk = rest;
                let hash = if begun.is_empty() { xxh3_64(end) } else { xxh3_64(&[&begun, end].concat()) };
                begun.clear();
                // 0 is an empty slot of the index.
                parent = xxh3_64_with_seed(&hash.to_le_bytes(), parent).max(1);
                hashes.push(parent);
            }
        }
        hashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: PrefixConfig = PrefixConfig { block_size: 4, max_blocks: 8, lru_capacity: 100 };

    fn hashes(config: PrefixConfig, model: &str, chunks: &[&str]) -> Vec<u64> {
        config.block_hashes(model, chunks.iter().map(|chunk| chunk.as_bytes()))
    }

    #[test]
    fn hashes_do_not_depend_on_chunks_and_are_bounded() {
        let whole = hashes(CONFIG, "m", &["aaaabbbbccccdd"]);
        assert_eq!(whole.len(), 3);
        for chunks in [&["a", "", "aaab", "bbbcc", "ccdd"][..], &["aaaa", "bbbb", "cccc", "dd"], &["aaaabbbbcc", "cc"]]
        {
            assert_eq!(hashes(CONFIG, "m", chunks), whole);
        }
        assert_eq!(hashes(CONFIG, "m", &["x".repeat(1_000).as_str(); 2]).len(), CONFIG.max_blocks);
    }

    #[test]
    fn hashes_differ_by_model_block_size_and_previous_blocks() {
        let first = hashes(CONFIG, "m", &["aaaaaaaa"]);
        assert_ne!(first[0], first[1]);
        assert_ne!(first, hashes(CONFIG, "n", &["aaaaaaaa"]));
        assert_ne!(first[1], hashes(PrefixConfig { block_size: 8, ..CONFIG }, "m", &["aaaaaaaa"])[0]);
        let capacity = PrefixConfig { lru_capacity: 1, ..CONFIG };
        assert_eq!(first, hashes(capacity, "m", &["aaaaaaaa"]), "equal blocks are shared");
    }
}
