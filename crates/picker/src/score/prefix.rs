//! Prefix affinity: a request goes where the beginning of its prompt was computed before.
//!
//! The prompt is cut into blocks; each block's hash covers all blocks before it, so that an equal hash means an equal
//! beginning. Per endpoint a bounded number of hashes is remembered, the least recently used is forgotten first.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
};

use xxhash_rust::xxh64::Xxh64;

use crate::member::Member;

/// How prompts are cut, and how much is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Bytes of a block, at least 1.
    pub block: usize,
    /// Blocks of a prompt that are looked at.
    pub most_blocks: usize,
    /// Blocks remembered per endpoint.
    pub capacity: usize,
}

/// Who has computed which beginnings.
#[derive(Debug, Default)]
pub struct Owners {
    by_endpoint: BTreeMap<SocketAddr, Recent>,
}

/// Block hashes of one endpoint by last use.
#[derive(Debug, Default)]
struct Recent {
    used: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    now: u64,
}

impl Prefix {
    /// One hash per whole block of the prompt. `model` is part of every hash: its KV cache is another's nothing.
    pub fn chain<'a>(&self, model: &str, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
        let mut hasher = Xxh64::new(0);
        hasher.update(model.as_bytes());
        hasher.update(&[0xff]);
        let (mut chain, mut missing) = (Vec::new(), self.block);
        for mut piece in pieces {
            while chain.len() < self.most_blocks && piece.len() >= missing {
                let (head, rest) = piece.split_at(missing);
                hasher.update(head);
                chain.push(hasher.digest());
                (piece, missing) = (rest, self.block);
            }
            if chain.len() >= self.most_blocks {
                break;
            }
            hasher.update(piece);
            missing -= piece.len().min(missing - 1);
        }
        chain
    }
}

impl Owners {
    /// How many blocks from the start of `chain` the endpoint has computed.
    pub fn matched(&self, chain: &[u64], endpoint: SocketAddr) -> usize {
        let Some(recent) = self.by_endpoint.get(&endpoint) else { return 0 };
        chain.iter().take_while(|hash| recent.used.contains_key(hash)).count()
    }

    /// The matched share of `chain`; 0 for a prompt shorter than a block.
    pub fn share(&self, chain: &[u64], member: &Member) -> f64 {
        if chain.is_empty() {
            return 0.0;
        }
        self.matched(chain, member.endpoint.address) as f64 / chain.len() as f64
    }

    /// The endpoint computes `chain` now.
    pub fn remember(&mut self, chain: &[u64], endpoint: SocketAddr, capacity: usize) {
        let recent = self.by_endpoint.entry(endpoint).or_default();
        // The beginning is used last, so that a chain is forgotten from its end.
        for hash in chain.iter().rev() {
            recent.touch(*hash);
        }
        recent.shrink(capacity);
    }

    /// Forgets endpoints that are gone: another Pod may come at the same address.
    pub fn retain(&mut self, stays: impl Fn(SocketAddr) -> bool) {
        self.by_endpoint.retain(|address, _| stays(*address));
    }
}

impl Recent {
    fn touch(&mut self, hash: u64) {
        self.now += 1;
        if let Some(before) = self.used.insert(hash, self.now) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.now, hash);
    }

    fn shrink(&mut self, capacity: usize) {
        while self.used.len() > capacity {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            self.used.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const PREFIX: Prefix = Prefix { block: 4, most_blocks: 8, capacity: 100 };

    fn chain(text: &str) -> Vec<u64> {
        PREFIX.chain("m", [text.as_bytes()].into_iter())
    }

    fn address(number: u8) -> SocketAddr {
        ([10, 0, 0, number], 8000).into()
    }

    #[rstest]
    #[case::same("aaaabbbbcccc", "aaaabbbbcccc", 3)]
    #[case::longer("aaaabbbb", "aaaabbbbcccc", 2)]
    #[case::shorter("aaaabbbbcccc", "aaaabbbb", 2)]
    #[case::differs_in_the_middle("aaaaXbbbcccc", "aaaabbbbcccc", 1)]
    #[case::differs_at_once("Xaaabbbbcccc", "aaaabbbbcccc", 0)]
    #[case::less_than_a_block("aaa", "aaa", 0)]
    #[case::the_tail_is_no_block("aaaabb", "aaaabb", 1)]
    fn beginnings_match(#[case] before: &str, #[case] now: &str, #[case] blocks: usize) {
        let mut owners = Owners::default();
        owners.remember(&chain(before), address(1), PREFIX.capacity);
        assert_eq!((owners.matched(&chain(now), address(1)), owners.matched(&chain(now), address(2))), (blocks, 0));
    }

    #[test]
    fn the_cut_into_pieces_and_the_bound_do_not_show() {
        let pieces = PREFIX.chain("m", [&b"a"[..], b"", b"aaab", b"bbbcc", b"cc"].into_iter());
        assert_eq!(pieces, chain("aaaabbbbcccc"));
        assert_eq!(chain(&"x".repeat(1_000)).len(), PREFIX.most_blocks);
        assert_ne!(PREFIX.chain("n", [&b"aaaa"[..]].into_iter()), chain("aaaa"));
    }

    #[test]
    fn what_was_not_used_for_longest_is_forgotten_from_its_end() {
        let mut owners = Owners::default();
        for text in ["aaaabbbb", "ccccdddd", "aaaa"] {
            owners.remember(&chain(text), address(1), 3);
        }
        let matched = |text| owners.matched(&chain(text), address(1));
        assert_eq!((matched("aaaabbbb"), matched("ccccdddd")), (1, 2));
        let recent = &owners.by_endpoint[&address(1)];
        assert_eq!((recent.used.len(), recent.by_use.len()), (3, 3));
    }

    #[test]
    fn an_endpoint_that_left_is_forgotten() {
        let mut owners = Owners::default();
        owners.remember(&chain("aaaa"), address(1), 10);
        owners.retain(|stays| stays != address(1));
        assert_eq!(owners.matched(&chain("aaaa"), address(1)), 0);
    }
}
