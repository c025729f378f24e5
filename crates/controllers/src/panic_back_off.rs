//! Retries of objects whose reconciliation panics, so that one object does not stop a controller.

use std::collections::BTreeMap;

/// Delay of the first retry in seconds; it doubles with each further panic.
const INITIAL_DELAY_SECONDS: i64 = 5;
const MAX_DELAY_SECONDS: i64 = 320;

/// The number of consecutive panics of each key.
#[derive(Debug)]
pub(crate) struct PanicBackOff<K> {
    panics: BTreeMap<K, u32>,
}

impl<K> Default for PanicBackOff<K> {
    fn default() -> Self {
        Self { panics: BTreeMap::new() }
    }
}

// === impl PanicBackOff ===

impl<K: Ord> PanicBackOff<K> {
    /// Forgets the panics of a key that was reconciled.
    pub(crate) fn reset(&mut self, key: &K) {
        self.panics.remove(key);
    }

    /// Counts a panic and returns the delay of the retry in seconds.
    pub(crate) fn next_delay_seconds(&mut self, key: K) -> i64 {
        let panics = self.panics.entry(key).or_default();
        let doublings = 2_i64.saturating_pow(*panics);
        *panics = panics.saturating_add(1);
        INITIAL_DELAY_SECONDS.saturating_mul(doublings).min(MAX_DELAY_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_per_key_until_it_is_reconciled() {
        let mut back_off = PanicBackOff::default();
        let delays: Vec<i64> = (0..8).map(|_| back_off.next_delay_seconds("a")).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 320, 320]);
        assert_eq!(back_off.next_delay_seconds("b"), 5);
        back_off.reset(&"a");
        assert_eq!(back_off.next_delay_seconds("a"), 5);
    }
}
