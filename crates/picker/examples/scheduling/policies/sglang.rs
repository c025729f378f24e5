//! The policy `cache_aware` of sglang's router with the defaults of its command line. While the requests in flight are balanced,
//! a request goes to the engine that received the longest prefix of its text, if that is long enough; otherwise, and while they
//! are not balanced, to the engine with the fewest requests. (Earlier versions sent a text without a known prefix to the engine
//! with the smallest tree.)

use std::collections::{BTreeMap, HashMap};

use super::policy::Policy;
use crate::trace::Request;

/// `--cache-threshold`: fraction of the text that must match.
const CACHE_THRESHOLD: f64 = 0.3;

/// `--balance-abs-threshold`, `--balance-rel-threshold`: requests are unbalanced if both are exceeded.
const BALANCE_ABS_THRESHOLD: usize = 64;
const BALANCE_REL_THRESHOLD: f64 = 1.5;

pub(super) struct CacheAware {
    tree: Node,
    requests: Vec<usize>,
    engine_of: HashMap<usize, usize>,
}

/// Node of a radix tree of the texts. The traces are shorter than `--max-tree-size`, so nothing is evicted.
#[derive(Default)]
struct Node {
    text: Vec<u8>,
    /// Engine that received this text last.
    last_engine: usize,
    children: BTreeMap<u8, Node>,
}

// === impl CacheAware ===

impl CacheAware {
    pub(super) fn new(engines: usize) -> Self {
        Self { tree: Node::default(), requests: vec![0; engines], engine_of: HashMap::new() }
    }

    fn is_imbalanced(&self) -> bool {
        let (min, max) =
            (self.requests.iter().min().copied().unwrap_or(0), self.requests.iter().max().copied().unwrap_or(0));
        max - min > BALANCE_ABS_THRESHOLD && max as f64 > min as f64 * BALANCE_REL_THRESHOLD
    }
}

impl Policy for CacheAware {
    fn select(&mut self, index: usize, request: &Request) -> usize {
        let text = request.prompt().as_bytes();
        let least_loaded = (0..self.requests.len()).min_by_key(|engine| self.requests[*engine]).unwrap_or(0);
        let (matched, matched_engine) = self.tree.longest_prefix(text);
        let is_cached = matched as f64 / text.len().max(1) as f64 > CACHE_THRESHOLD;
        let engine = if is_cached && !self.is_imbalanced() { matched_engine } else { least_loaded };
        self.tree.insert(text, engine);
        self.requests[engine] += 1;
        self.engine_of.insert(index, engine);
        engine
    }

    fn finished(&mut self, index: usize) {
        if let Some(engine) = self.engine_of.remove(&index) {
            self.requests[engine] -= 1;
        }
    }
}

// === impl Node ===

impl Node {
    /// Returns the length of the longest known prefix of `text`, and the engine that received it last.
    fn longest_prefix(&self, text: &[u8]) -> (usize, usize) {
        let (mut node, mut position) = (self, 0);
        while let Some(child) = text.get(position).and_then(|byte| node.children.get(byte)) {
            let shared = shared_prefix(&child.text, &text[position..]);
            position += shared;
            node = child;
            if shared < child.text.len() {
                break;
            }
        }
        (position, node.last_engine)
    }

    /// Records that `engine` receives `text`.
    fn insert(&mut self, text: &[u8], engine: usize) {
        self.last_engine = engine;
        let Some(first) = text.first() else { return };
        let new = || Node { text: text.to_vec(), last_engine: engine, children: BTreeMap::new() };
        let child = self.children.entry(*first).or_insert_with(new);
        let shared = shared_prefix(&child.text, text);
        if shared < child.text.len() {
            child.split(shared);
        }
        child.insert(&text[shared..], engine);
    }

    /// Moves the text from `position` to a child.
    fn split(&mut self, position: usize) {
        let rest = self.text.split_off(position);
        let Some(first) = rest.first().copied() else { return };
        let children = std::mem::take(&mut self.children);
        self.children.insert(first, Node { text: rest, last_engine: self.last_engine, children });
    }
}

fn shared_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}
