//! Delays of objects whose processing panics, so that one object does not stop a controller. They are measured by a monotonic
//! clock, so steps of the wall clock have no influence.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Delay of the first retry; it doubles with each further panic.
const INITIAL_DELAY: Duration = Duration::from_secs(5);
const MAX_DELAY: Duration = Duration::from_secs(320);

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
    retry_at: Instant,
}

impl<K> Default for PanicBackOff<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new() }
    }
}

/// Returns the delay of a retry after `previous` earlier panics in a row.
#[must_use]
pub fn panic_retry_delay(previous: u32) -> Duration {
    INITIAL_DELAY.saturating_mul(2_u32.saturating_pow(previous)).min(MAX_DELAY)
}

// === impl PanicBackOff ===

impl<K: Ord> PanicBackOff<K> {
    /// Returns the time of the retry if it is later than `now`. An object with another UID has no delay.
    #[must_use]
    pub fn retry_at(&self, key: &K, uid: &str, now: Instant) -> Option<Instant> {
        self.objects.get(key).filter(|object| object.uid == uid).and_then(|object| object.next_retry(now))
    }

    /// Returns the time of the next retry of any object that is later than `now`.
    #[must_use]
    pub fn next_retry(&self, now: Instant) -> Option<Instant> {
        self.objects.values().filter_map(|object| object.next_retry(now)).min()
    }

    /// Counts a panic and returns the time of the retry.
    pub fn record(&mut self, key: K, uid: &str, now: Instant) -> Instant {
        let object = self.objects.entry(key).or_insert_with(|| FailedObject::new(uid, now));
        if object.uid != uid {
            *object = FailedObject::new(uid, now);
        }
        let delay = panic_retry_delay(object.panics);
        object.panics = object.panics.saturating_add(1);
        object.retry_at = now.checked_add(delay).unwrap_or(now);
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
    fn new(uid: &str, now: Instant) -> Self {
        Self { uid: uid.to_owned(), panics: 0, retry_at: now }
    }

    /// Returns the time of the retry if it is later than `now`.
    fn next_retry(&self, now: Instant) -> Option<Instant> {
        (now < self.retry_at).then_some(self.retry_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a function that returns the instant after a number of seconds.
    fn clock() -> impl Fn(u64) -> Instant {
        let start = Instant::now();
        move |seconds| start.checked_add(Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn delays_double_per_object_until_it_is_processed() {
        let (at, mut back_off) = (clock(), PanicBackOff::default());
        for expected in [5, 10, 20, 40, 80, 160, 320, 320] {
            assert_eq!(back_off.record("a", "1", at(0)), at(expected));
        }
        assert_eq!(back_off.record("b", "2", at(0)), at(5));
        assert_eq!(back_off.record("a", "3", at(0)), at(5), "the object was recreated");
        back_off.reset(&"a");
        assert_eq!(back_off.record("a", "3", at(0)), at(5));
    }

    #[test]
    fn object_waits_until_its_retry() {
        let (at, mut back_off) = (clock(), PanicBackOff::default());
        assert_eq!((back_off.retry_at(&"a", "1", at(0)), back_off.next_retry(at(0))), (None, None));
        back_off.record("a", "1", at(1000));
        back_off.record("b", "2", at(1001));
        assert_eq!(back_off.retry_at(&"a", "1", at(1004)), Some(at(1005)));
        assert_eq!(back_off.retry_at(&"a", "other", at(1004)), None, "another object");
        assert_eq!(back_off.retry_at(&"a", "1", at(1005)), None, "due");
        assert_eq!([1004, 1005, 1006].map(|now| back_off.next_retry(at(now))), [Some(at(1005)), Some(at(1006)), None]);
        back_off.retain(|key| *key == "b");
        assert_eq!(back_off.retry_at(&"a", "1", at(1004)), None);
    }
}
