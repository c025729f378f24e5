//! Much free KV cache: room for another sequence without preempting one.

use crate::member::Member;

/// What is assumed where nothing is known: half full.
const UNKNOWN: f64 = 0.5;

/// The free share of the cache.
pub fn score(member: &Member) -> f64 {
    1.0 - member.believed(|gauges| gauges.kv_usage, UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{member::tests::member, reading::Gauges};
    use rstest::rstest;

    #[rstest]
    #[case::empty(Some((0.0, 0)), 1.0)]
    #[case::full(Some((1.0, 0)), 0.0)]
    #[case::partly(Some((0.75, 3)), 0.25)]
    #[case::half_believed(Some((1.0, 9)), 0.25)]
    #[case::not_believed(Some((1.0, 99)), 0.5)]
    #[case::never_read(None, 0.5)]
    // spec: GW-27
    fn free_cache_wins(#[case] read: Option<(f64, u64)>, #[case] expect: f64) {
        let read = read.map(|(usage, age)| (Gauges { kv_usage: Some(usage), ..Gauges::default() }, age));
        assert!((score(&member(1, read)) - expect).abs() < 1e-9);
    }
}
