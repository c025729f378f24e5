//! Delays of objects whose processing panics, so that one object does not stop a controller.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::time;

/// Delay of the first retry in seconds; it doubles with each further panic.
const INITIAL_DELAY_SECONDS: i64 = 5;
const MAX_DELAY_SECONDS: i64 = 320;

/// The objects whose processing panicked, by key. Changes of an object do not shorten its delay: the failed attempt may
/// have caused them itself.
#[derive(Debug)]
pub struct PanicBackOff<K> {
    objects: BTreeMap<K, FailedObject>,
}

/// An object whose last processing panicked.
#[derive(Debug)]
struct FailedObject {
    uid: String,
    /// Number of consecutive panics.
    panics: u32,
    retry_at: Timestamp,
}

impl<K> Default for PanicBackOff<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new() }
    }
}

// === impl PanicBackOff ===

impl<K: Ord> PanicBackOff<K> {
    /// Returns the time of the retry if it is later than `now`. An object with another UID has no delay.
    #[must_use]
    pub fn retry_at(&self, key: &K, uid: &str, now: Timestamp) -> Option<Timestamp> {
        self.objects.get(key).filter(|object| object.uid == uid).and_then(|object| object.next_retry(now))
    }

    /// Returns the time of the next retry of any object that is later than `now`.
    #[must_use]
    pub fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        self.objects.values().filter_map(|object| object.next_retry(now)).min()
    }

    /// Counts a panic and returns the time of the retry.
    pub fn record(&mut self, key: K, uid: &str, now: Timestamp) -> Timestamp {
        let object = self.objects.entry(key).or_insert_with(|| FailedObject::new(uid, now));
        if object.uid != uid {
            *object = FailedObject::new(uid, now);
        }
        let doublings = 2_i64.saturating_pow(object.panics);
        object.panics = object.panics.saturating_add(1);
        let delay = INITIAL_DELAY_SECONDS.saturating_mul(doublings).min(MAX_DELAY_SECONDS);
        object.retry_at = time::add_seconds(now, delay);
        object.retry_at
    }

    /// Forgets the panics of an object that was processed or no longer exists.
    pub fn reset(&mut self, key: &K) {
        self.objects.remove(key);
    }

    /// Returns whether no processing panicked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Forgets the panics of the objects for which `predicate` returns `false`.
    pub fn retain(&mut self, mut predicate: impl FnMut(&K) -> bool) {
        self.objects.retain(|key, _| predicate(key));
    }
}

// === impl FailedObject ===

impl FailedObject {
    fn new(uid: &str, now: Timestamp) -> Self {
        Self { uid: uid.to_owned(), panics: 0, retry_at: now }
    }

    /// Returns the time of the retry if it is later than `now`. A clock that was set back does not extend the delay.
    fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        let latest = time::add_seconds(now, MAX_DELAY_SECONDS);
        (now < self.retry_at && self.retry_at <= latest).then_some(self.retry_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn delays_double_per_object_until_it_is_processed() {
        let mut back_off = PanicBackOff::default();
        let delays: Vec<i64> = (0..8).map(|_| back_off.record("a", "1", at(0)).as_second()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 320, 320]);
        assert_eq!(back_off.record("b", "2", at(0)), at(5));
        assert_eq!(back_off.record("a", "3", at(0)), at(5), "the object was recreated");
        back_off.reset(&"a");
        assert_eq!(back_off.record("a", "3", at(0)), at(5));
    }

    #[test]
    fn object_waits_until_its_retry() {
        let mut back_off = PanicBackOff::default();
        assert_eq!((back_off.retry_at(&"a", "1", at(0)), back_off.next_retry(at(0))), (None, None));
        back_off.record("a", "1", at(1000));
        back_off.record("b", "2", at(1001));
        assert_eq!(back_off.retry_at(&"a", "1", at(1004)), Some(at(1005)));
        assert_eq!(back_off.retry_at(&"a", "other", at(1004)), None, "another object");
        assert_eq!(back_off.retry_at(&"a", "1", at(1005)), None, "due");
        assert_eq!(back_off.retry_at(&"a", "1", at(0)), None, "the clock was set back");
        assert_eq!([1004, 1005, 1006].map(|now| back_off.next_retry(at(now))), [Some(at(1005)), Some(at(1006)), None]);
        back_off.retain(|key| *key == "b");
        assert_eq!(back_off.retry_at(&"a", "1", at(1004)), None);
    }
}
