//! Which prefixes of a prompt are indexed.
//!
//! Each prefix of up to [`SINGLE_BLOCKS`] blocks has a checkpoint. From then on, the distance between two checkpoints doubles
//! whenever the length of the prefix doubles, so that their number is proportional to the logarithm of the length of a long prompt,
//! and with it the time of a decision and the memory of the index. In addition, all prefixes after the last checkpoint are
//! indexed. A prompt that continues another one, as in a conversation, therefore matches all of its blocks; one that shares only
//! the beginning matches at least 15 of 16 shared blocks.

use std::ops::RangeInclusive;

/// Number of blocks up to which each prefix has a checkpoint.
const SINGLE_BLOCKS: usize = 32;

/// Number of checkpoints with the same distance, after the first ones.
const CHECKPOINTS_PER_DOUBLING: usize = SINGLE_BLOCKS / 2;

/// An indexed prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexedPrefix {
    /// Its length.
    pub(super) blocks: usize,
    /// Number of blocks since the indexed prefix before it.
    pub(super) distance: usize,
}

/// Returns the indexed prefixes of a prompt.
pub(super) fn indexed_prefixes(prompt_blocks: usize) -> impl DoubleEndedIterator<Item = IndexedPrefix> {
    let checkpoints = checkpoints_within(prompt_blocks);
    let prefix = |count| IndexedPrefix { blocks: blocks_at(count), distance: blocks_at(count) - blocks_at(count - 1) };
    let rest = blocks_at(checkpoints) + 1..=prompt_blocks;
    (1..=checkpoints).map(prefix).chain(rest.map(|blocks| IndexedPrefix { blocks, distance: 1 }))
}

/// Returns the number of indexed prefixes of a prompt.
pub(crate) fn indexed_count(prompt_blocks: usize) -> usize {
    let checkpoints = checkpoints_within(prompt_blocks);
    checkpoints + (prompt_blocks - blocks_at(checkpoints))
}

/// Returns the lengths of the prefixes after a checkpoint, up to the one before the next checkpoint or to the end of the prompt.
/// They are indexed if another prompt ended among them.
pub(super) fn prefixes_after(checkpoint: usize, prompt_blocks: usize) -> RangeInclusive<usize> {
    blocks_at(checkpoint) + 1..=prompt_blocks.min(blocks_at(checkpoint + 1) - 1)
}

/// Returns the number of checkpoints in a prompt.
pub(super) fn checkpoints_within(prompt_blocks: usize) -> usize {
    let Some(doublings) = (prompt_blocks / SINGLE_BLOCKS).checked_ilog2() else { return prompt_blocks };
    let rest = prompt_blocks - (SINGLE_BLOCKS << doublings);
    SINGLE_BLOCKS + CHECKPOINTS_PER_DOUBLING * doublings as usize + (rest >> (doublings + 1))
}

/// Returns the length of the prefix at the last of `count` checkpoints.
pub(super) fn blocks_at(count: usize) -> usize {
    let Some(rest) = count.checked_sub(SINGLE_BLOCKS) else { return count };
    let (doublings, rest) = (rest / CHECKPOINTS_PER_DOUBLING, rest % CHECKPOINTS_PER_DOUBLING);
    (SINGLE_BLOCKS << doublings) + (rest << (doublings + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 0)]
    #[case(1, 1)]
    #[case(32, 32)]
    #[case(33, 34)]
    #[case(48, 64)]
    #[case(49, 68)]
    #[case(144, 4_096)]
    fn checkpoints_become_sparser(#[case] count: usize, #[case] blocks: usize) {
        assert_eq!((blocks_at(count), checkpoints_within(blocks)), (blocks, count));
        assert_eq!(checkpoints_within(blocks + 1), if count < 32 { count + 1 } else { count });
    }

    #[test]
    fn few_prefixes_are_indexed() {
        for prompt_blocks in 0..3_000 {
            let prefixes: Vec<IndexedPrefix> = indexed_prefixes(prompt_blocks).collect();
            let mut covered = 0;
            for prefix in &prefixes {
                assert_eq!(prefix.blocks, covered + prefix.distance);
                assert!(prefix.distance == 1 || prefix.distance * 16 <= covered, "{prefix:?}");
                covered = prefix.blocks;
            }
            assert_eq!((covered, indexed_count(prompt_blocks)), (prompt_blocks, prefixes.len()));
            assert!(prefixes.len() <= 32 + 16 * 7 + prompt_blocks / 16, "{} of {prompt_blocks}", prefixes.len());
        }
    }
}
