//! What is to be looked at next: first in, first out; each key once; some keys only later; none twice at the same time.
//! What can wait has a lane of its own, which moves whenever nothing else does, and once in a while besides.
//!
//! Synchronous and without a clock of its own, so that the same adds give the same order in every run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

/// First delay after a failure; doubles with each further one.
const FIRST_RETRY: SignedDuration = SignedDuration::from_millis(200);
/// Longest delay between two tries.
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(60);

/// So many keys go before the first one that can wait.
const AHEAD: usize = 8;

/// An ordered, deduplicating queue with delayed adds.
#[derive(Clone, Debug)]
pub struct Queue<K> {
    ready: VecDeque<K>,
    /// The content of `ready`.
    waiting: BTreeSet<K>,
    /// Keys that give way to those of `ready`; some of them may have gone on by way of `ready`.
    patient: VecDeque<K>,
    /// Those in `patient` that have not.
    giving_way: BTreeSet<K>,
    /// Keys given out since the last one that had given way.
    ahead: usize,
    /// When each delayed key is due; at most one entry per key, the earliest.
    due: BTreeMap<K, Timestamp>,
    /// Consecutive failures per key.
    failures: BTreeMap<K, u32>,
    /// Keys whose visit has not ended yet, and whether they were added again meanwhile.
    visited: BTreeMap<K, Again>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Again {
    No,
    Yes,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Queue {
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            patient: VecDeque::new(),
            giving_way: BTreeSet::new(),
            ahead: 0,
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            visited: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Adds `key` at the end, unless it waits already; one that is being visited, when that visit ends. A planned later visit
    /// is then superfluous.
    pub fn add(&mut self, key: K) {
        self.due.remove(&key);
        if let Some(again) = self.visited.get_mut(&key) {
            *again = Again::Yes;
            return;
        }
        self.giving_way.remove(&key);
        if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// Adds `key` behind everything that [`Self::add`] brings, now or later, but not for ever; one that waits already keeps
    /// its place.
    pub fn add_patiently(&mut self, key: K) {
        if self.visited.contains_key(&key) {
            self.add(key);
        } else if !self.waiting.contains(&key) && self.giving_way.insert(key.clone()) {
            self.due.remove(&key);
            self.patient.push_back(key);
        }
    }

    /// Adds `key` at the instant `at`, or earlier if it is already planned earlier.
    pub fn add_at(&mut self, key: K, at: Timestamp) {
        let waits = self.waiting.contains(&key) || self.giving_way.contains(&key);
        if waits || self.visited.get(&key) == Some(&Again::Yes) {
            return;
        }
        let due = self.due.entry(key).or_insert(at);
        *due = at.min(*due);
    }

    /// The visit of `key` failed: visit it again after a delay that doubles with each failure (200 ms … 60 s).
    pub fn retry(&mut self, key: K, now: Timestamp) {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = FIRST_RETRY.saturating_mul(1 << (*failures).min(16)).min(LONGEST_RETRY);
        *failures = failures.saturating_add(1);
        self.add_at(key.clone(), now.checked_add(delay).unwrap_or(now));
        self.end(&key);
    }

    /// The visit of `key` succeeded: forget its failures.
    pub fn done(&mut self, key: &K) {
        self.failures.remove(key);
        self.end(key);
    }

    fn end(&mut self, key: &K) {
        if self.visited.remove(key) == Some(Again::Yes) {
            self.add(key.clone());
        }
    }

    /// The next key to visit, with everything due by `now` moved to the end first, in order of due time, then key. It is not
    /// given out again before [`Self::done`] or [`Self::retry`] says that its visit has ended.
    pub fn pop(&mut self, now: Timestamp) -> Option<K> {
        let mut due: Vec<(Timestamp, K)> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(key, at)| (*at, key.clone())).collect();
        due.sort();
        due.into_iter().for_each(|(_, key)| self.add(key));
        let key = self.next()?;
        self.visited.insert(key.clone(), Again::No);
        Some(key)
    }

    fn next(&mut self) -> Option<K> {
        if self.ready.is_empty() || self.ahead >= AHEAD {
            while let Some(key) = self.patient.pop_front() {
                if self.giving_way.remove(&key) {
                    self.ahead = 0;
                    return Some(key);
                }
            }
        }
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        self.ahead = if self.giving_way.is_empty() { 0 } else { self.ahead + 1 };
        Some(key)
    }

    /// When the next delayed key is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.values().min().copied()
    }

    /// Nothing waits and nothing is planned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.giving_way.is_empty() && self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).unwrap()
    }

    fn drain(queue: &mut Queue<&'static str>, now: Timestamp) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop(now)).collect()
    }

    #[test]
    fn first_in_first_out_each_once() {
        let mut queue = Queue::default();
        ["b", "a", "b", "c"].into_iter().for_each(|key| queue.add(key));
        assert_eq!(drain(&mut queue, at(0)), ["b", "a", "c"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn what_can_wait_gives_way_and_keeps_its_order() {
        let mut queue = Queue::default();
        ["c", "b", "a"].into_iter().for_each(|key| queue.add_patiently(key));
        assert_eq!(queue.pop(at(0)), Some("c"));
        queue.add("edit");
        queue.add("a");
        queue.add_patiently("edit");
        assert_eq!(drain(&mut queue, at(0)), ["edit", "a", "b"], "each once, and what is asked for goes before");
        assert!(queue.is_empty());
    }

    #[test]
    fn what_can_wait_does_not_wait_for_ever() {
        let mut queue = Queue::default();
        queue.add_patiently(1000);
        (0..20).for_each(|key| queue.add(key));
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop(at(0))).collect();
        assert_eq!(order.iter().position(|key| *key == 1000), Some(AHEAD));
        assert_eq!(order.len(), 21);
    }

    #[test]
    fn what_is_visited_and_can_wait_is_visited_again() {
        let mut queue = Queue::default();
        queue.add("a");
        assert_eq!(queue.pop(at(0)), Some("a"));
        queue.add_patiently("a");
        assert_eq!(queue.pop(at(0)), None);
        queue.done(&"a");
        assert_eq!(drain(&mut queue, at(0)), ["a"]);
    }

    #[test]
    fn delayed_keys_come_in_order_of_time_then_key() {
        let mut queue = Queue::default();
        queue.add_at("z", at(5));
        queue.add_at("b", at(10));
        queue.add_at("a", at(10));
        queue.add_at("late", at(11));
        assert_eq!(queue.next_due(), Some(at(5)));
        assert_eq!(drain(&mut queue, at(10)), ["z", "a", "b"]);
        assert_eq!(queue.next_due(), Some(at(11)));
    }

    #[test]
    fn the_earliest_plan_wins_and_an_add_replaces_it() {
        let mut queue = Queue::default();
        queue.add_at("a", at(10));
        queue.add_at("a", at(20));
        assert_eq!(queue.next_due(), Some(at(10)));
        queue.add("a");
        assert_eq!(drain(&mut queue, at(100)), ["a"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn failures_double_the_delay_up_to_a_minute() {
        let mut queue = Queue::default();
        let mut delays = Vec::new();
        for _ in 0..11 {
            queue.retry("a", at(0));
            delays.push(queue.next_due().unwrap().as_millisecond());
            assert_eq!(queue.pop(at(100_000)), Some("a"));
        }
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]);
        queue.done(&"a");
        queue.retry("a", at(0));
        assert_eq!(queue.next_due(), Some(at(200)));
    }

    #[test]
    fn none_is_visited_twice_at_the_same_time() {
        let mut queue = Queue::default();
        ["a", "b"].into_iter().for_each(|key| queue.add(key));
        assert_eq!(queue.pop(at(0)), Some("a"));
        ["a", "a", "c"].into_iter().for_each(|key| queue.add(key));
        assert_eq!(drain(&mut queue, at(0)), ["b", "c"]);
        queue.done(&"b");
        queue.done(&"a");
        assert_eq!(drain(&mut queue, at(0)), ["a"]);
        queue.done(&"a");
        assert!(queue.is_empty());
    }

    #[test]
    fn what_changed_during_a_visit_that_failed_is_looked_at_at_once() {
        let mut queue = Queue::default();
        queue.add("a");
        assert_eq!(queue.pop(at(0)), Some("a"));
        queue.add("a");
        queue.retry("a", at(0));
        assert_eq!((queue.pop(at(0)), queue.next_due()), (Some("a"), None));
    }

    #[test]
    fn a_later_visit_may_be_planned_before_the_present_one_ends() {
        let mut queue = Queue::default();
        queue.add("a");
        assert_eq!(queue.pop(at(0)), Some("a"));
        queue.add_at("a", at(5));
        queue.done(&"a");
        assert_eq!((queue.pop(at(4)), queue.pop(at(5))), (None, Some("a")));
    }
}
