//! Work queue of a controller: keys are popped in order of arrival and deduplicated, may be delayed, and are never
//! processed concurrently. A low-priority key is popped when no normal key is waiting, and at the latest after eight
//! normal keys.
//!
//! The queue is synchronous and reads no clock, so that the same calls result in the same order in every run. Due times are
//! those of a monotonic clock: a step of the system clock neither delays nor hastens a retry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// Delay after the first failure; it doubles with each consecutive failure.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Maximum delay after a failure.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Maximum number of normal keys that are popped in a row while a low-priority key is waiting.
const MAX_CONSECUTIVE_NORMAL: usize = 8;

/// An ordered, deduplicating work queue with delayed adds, retries with backoff and two priorities.
#[derive(Clone, Debug)]
pub struct WorkQueue<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`.
    ready_set: BTreeSet<K>,
    /// Low-priority keys. A key that was added again with normal priority remains here, but not in `low_priority_set`.
    low_priority: VecDeque<K>,
    /// Keys in `low_priority` that are still waiting with low priority.
    low_priority_set: BTreeSet<K>,
    /// Number of normal keys popped since the last low-priority key.
    consecutive_normal: usize,
    /// Earliest due time of each delayed key.
    due: BTreeMap<K, Instant>,
    /// Number of consecutive failures per key.
    failures: BTreeMap<K, u32>,
    /// Keys that are being processed, and whether they were added again meanwhile.
    in_flight: BTreeMap<K, Requeue>,
}

/// Whether a key in flight was added again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Requeue {
    /// It was not.
    No,
    /// It is added when its processing ends.
    Yes,
}

// === impl WorkQueue ===

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        WorkQueue {
            ready: VecDeque::new(),
            ready_set: BTreeSet::new(),
            low_priority: VecDeque::new(),
            low_priority_set: BTreeSet::new(),
            consecutive_normal: 0,
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            in_flight: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> WorkQueue<K> {
    /// Adds `key` unless it is already waiting. A key in flight is added when its processing ends. Replaces a delayed add.
    pub fn add(&mut self, key: K) {
        self.due.remove(&key);
        if let Some(requeue) = self.in_flight.get_mut(&key) {
            *requeue = Requeue::Yes;
            return;
        }
        if self.low_priority_set.remove(&key) && self.low_priority_set.is_empty() {
            // Under constant load, nothing else removes the keys that have left the set.
            self.low_priority.clear();
        }
        if self.ready_set.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// Adds `key` with lower priority than all keys that [`Self::add`] adds, without starving it. A key that is already
    /// waiting keeps its position.
    pub fn add_low_priority(&mut self, key: K) {
        if self.in_flight.contains_key(&key) {
            self.add(key);
        } else if !self.ready_set.contains(&key) && self.low_priority_set.insert(key.clone()) {
            self.due.remove(&key);
            self.low_priority.push_back(key);
        }
    }

    /// Adds `key` at the time `due`, unless it is already waiting or due earlier.
    pub fn add_at(&mut self, key: K, due: Instant) {
        let is_waiting = self.ready_set.contains(&key) || self.low_priority_set.contains(&key);
        if is_waiting || self.in_flight.get(&key) == Some(&Requeue::Yes) {
            return;
        }
        let earliest = self.due.entry(key).or_insert(due);
        *earliest = due.min(*earliest);
    }

    /// Ends the processing of `key` after a failure and adds it again after a delay that doubles with each consecutive
    /// failure (200 ms … 60 s).
    pub fn retry(&mut self, key: K, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = MIN_RETRY_DELAY.saturating_mul(1 << (*failures).min(16)).min(MAX_RETRY_DELAY);
        *failures = failures.saturating_add(1);
        self.add_at(key.clone(), now.checked_add(delay).unwrap_or(now));
        self.end_processing(&key);
    }

    /// Ends the processing of `key` after a success and resets its failures.
    pub fn done(&mut self, key: &K) {
        self.failures.remove(key);
        self.end_processing(key);
    }

    fn end_processing(&mut self, key: &K) {
        if self.in_flight.remove(key) == Some(Requeue::Yes) {
            self.add(key.clone());
        }
    }

    /// Returns the next key to process. Delayed keys that are due at `now` are added first, ordered by due time, then key.
    /// The key is not returned again before [`Self::done`] or [`Self::retry`] ends its processing.
    pub fn pop(&mut self, now: Instant) -> Option<K> {
        let mut due: Vec<(Instant, K)> =
            self.due.iter().filter(|(_, due)| **due <= now).map(|(key, due)| (*due, key.clone())).collect();
        due.sort();
        due.into_iter().for_each(|(_, key)| self.add(key));
        let key = self.next_waiting()?;
        self.in_flight.insert(key.clone(), Requeue::No);
        Some(key)
    }

    fn next_waiting(&mut self) -> Option<K> {
        if self.ready.is_empty() || self.consecutive_normal >= MAX_CONSECUTIVE_NORMAL {
            while let Some(key) = self.low_priority.pop_front() {
                if self.low_priority_set.remove(&key) {
                    self.consecutive_normal = 0;
                    return Some(key);
                }
            }
        }
        let key = self.ready.pop_front()?;
        self.ready_set.remove(&key);
        self.consecutive_normal = if self.low_priority_set.is_empty() { 0 } else { self.consecutive_normal + 1 };
        Some(key)
    }

    /// Returns when the next delayed key is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    /// Returns whether no key is waiting or delayed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.low_priority_set.is_empty() && self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static START: Instant = Instant::now();
    }

    fn at(milliseconds: u64) -> Instant {
        START.with(|start| *start) + Duration::from_millis(milliseconds)
    }

    fn drain(queue: &mut WorkQueue<&'static str>, now: Instant) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop(now)).collect()
    }

    #[test]
    fn pops_keys_in_order_and_once() {
        let mut queue = WorkQueue::default();
        ["b", "a", "b", "c"].into_iter().for_each(|key| queue.add(key));
        assert_eq!(drain(&mut queue, at(0)), ["b", "a", "c"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn low_priority_keys_follow_normal_keys_in_order() {
        let mut queue = WorkQueue::default();
        ["c", "b", "a"].into_iter().for_each(|key| queue.add_low_priority(key));
        assert_eq!(queue.pop(at(0)), Some("c"));
        queue.add("edit");
        queue.add("a");
        queue.add_low_priority("edit");
        assert_eq!(drain(&mut queue, at(0)), ["edit", "a", "b"], "each key once, normal priority first");
        assert!(queue.is_empty());
    }

    #[test]
    fn low_priority_keys_do_not_starve() {
        let mut queue = WorkQueue::default();
        queue.add_low_priority(1000);
        (0..20).for_each(|key| queue.add(key));
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop(at(0))).collect();
        assert_eq!(order.iter().position(|key| *key == 1000), Some(MAX_CONSECUTIVE_NORMAL));
        assert_eq!(order.len(), 21);
    }

    #[test]
    fn keys_of_raised_priority_leave_the_queue() {
        let mut queue = WorkQueue::default();
        queue.add("busy");
        for _ in 0..10 {
            queue.add_low_priority("a");
            queue.add("a");
            assert!(queue.low_priority.is_empty());
            assert!(queue.pop(at(0)).is_some());
            queue.done(&"a");
            queue.done(&"busy");
            queue.add("busy");
        }
    }

    #[test]
    fn key_in_flight_is_added_again_with_low_priority() {
        let mut queue = WorkQueue::default();
        queue.add("a");
        assert_eq!(queue.pop(at(0)), Some("a"));
        queue.add_low_priority("a");
        assert_eq!(queue.pop(at(0)), None);
        queue.done(&"a");
        assert_eq!(drain(&mut queue, at(0)), ["a"]);
    }

    #[test]
    fn delayed_keys_are_ordered_by_due_time_then_key() {
        let mut queue = WorkQueue::default();
        queue.add_at("z", at(5));
        queue.add_at("b", at(10));
        queue.add_at("a", at(10));
        queue.add_at("late", at(11));
        assert_eq!(queue.next_due(), Some(at(5)));
        assert_eq!(drain(&mut queue, at(10)), ["z", "a", "b"]);
        assert_eq!(queue.next_due(), Some(at(11)));
    }

    #[test]
    fn earliest_due_time_wins_and_add_replaces_it() {
        let mut queue = WorkQueue::default();
        queue.add_at("a", at(10));
        queue.add_at("a", at(20));
        assert_eq!(queue.next_due(), Some(at(10)));
        queue.add("a");
        assert_eq!(drain(&mut queue, at(100)), ["a"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn retry_delay_doubles_up_to_one_minute() {
        let mut queue = WorkQueue::default();
        let mut delays = Vec::new();
        for _ in 0..11 {
            queue.retry("a", at(0));
            delays.push((queue.next_due().unwrap() - at(0)).as_millis());
            assert_eq!(queue.pop(at(100_000)), Some("a"));
        }
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]);
        queue.done(&"a");
        queue.retry("a", at(0));
        assert_eq!(queue.next_due(), Some(at(200)));
    }

    #[test]
    fn key_in_flight_is_not_popped_again() {
        let mut queue = WorkQueue::default();
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
    fn key_added_while_failing_is_retried_immediately() {
        let mut queue = WorkQueue::default();
        queue.add("a");
        assert_eq!(queue.pop(at(0)), Some("a"));
        queue.add("a");
        queue.retry("a", at(0));
        assert_eq!((queue.pop(at(0)), queue.next_due()), (Some("a"), None));
    }

    #[test]
    fn delayed_add_of_key_in_flight_is_retained() {
        let mut queue = WorkQueue::default();
        queue.add("a");
        assert_eq!(queue.pop(at(0)), Some("a"));
        queue.add_at("a", at(5));
        queue.done(&"a");
        assert_eq!((queue.pop(at(4)), queue.pop(at(5))), (None, Some("a")));
    }
}
