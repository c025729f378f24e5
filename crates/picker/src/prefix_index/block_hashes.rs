//! Splits prompts into blocks.

use xxhash_rust::xxh64::{Xxh64, xxh64};

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
    /// Returns one hash per complete block of the prompt, never 0. The hashes include `model`, since models do not share KV
    /// caches, and the block size, since configurations share the index.
    pub(crate) fn block_hashes<'a>(&self, model: &str, chunks: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
        let mut parent = xxh64(model.as_bytes(), self.block_size as u64);
        let mut hashes = Vec::new();
        // A block that began in an earlier chunk, and its missing bytes.
        let mut begun: Option<(Xxh64, usize)> = None;
        for mut chunk in chunks {
            while hashes.len() < self.max_blocks && !chunk.is_empty() {
                let missing = begun.as_ref().map_or(self.block_size, |(_, missing)| *missing);
                let (block, rest) = chunk.split_at(missing.min(chunk.len()));
                chunk = rest;
                if block.len() < missing {
                    let (hasher, remaining) = begun.get_or_insert_with(|| (Xxh64::new(parent), missing));
                    hasher.update(block);
                    *remaining -= block.len();
                    continue;
                }
                parent = match begun.take() {
                    Some((mut hasher, _)) => {
                        hasher.update(block);
                        hasher.digest()
                    }
                    None => xxh64(block, parent),
                };
                // 0 is an empty slot of the index.
                parent = parent.max(1);
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
