//! LoRA affinity: loaded beats a free slot beats waiting for one.

use crate::{member::Member, reading::Adapters};

const LOADED: f64 = 1.0;
const FREE_SLOT: f64 = 0.8;
const WAITING: f64 = 0.6;
const FULL: f64 = 0.0;

/// What is assumed where nothing is known: a slot may be free.
const UNKNOWN: f64 = 0.5;

/// How soon `model` can run there as an adapter.
pub fn score(model: &str, member: &Member) -> f64 {
    member.believed(|gauges| gauges.adapters.as_ref().map(|adapters| known(model, adapters)), UNKNOWN)
}

fn known(model: &str, adapters: &Adapters) -> f64 {
    if adapters.running.contains(model) {
        LOADED
    } else if adapters.running.union(&adapters.waiting).count() < adapters.slots {
        FREE_SLOT
    } else if adapters.waiting.contains(model) {
        WAITING
    } else {
        FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{member::tests::member, reading::Gauges};
    use rstest::rstest;

    #[rstest]
    #[case::loaded(2, &["mine", "other"], &[], 0, 1.0)]
    #[case::free_slot(2, &["other"], &[], 0, 0.8)]
    #[case::waits(1, &["other"], &["mine"], 0, 0.6)]
    #[case::others_wait(2, &["other"], &["third"], 0, 0.0)]
    #[case::full(1, &["other"], &[], 0, 0.0)]
    #[case::loaded_long_ago(2, &["mine"], &[], 99, 0.5)]
    // spec: GW-54
    fn loaded_beats_free_beats_waiting(
        #[case] slots: usize,
        #[case] running: &[&str],
        #[case] waiting: &[&str],
        #[case] age: u64,
        #[case] expect: f64,
    ) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let adapters = Adapters { slots, running: names(running), waiting: names(waiting) };
        let gauges = Gauges { adapters: Some(adapters), ..Gauges::default() };
        assert!((score("mine", &member(1, Some((gauges, age)))) - expect).abs() < 1e-9);
    }

    #[test]
    fn engines_without_adapters_are_all_alike() {
        assert_eq!(score("base", &member(1, Some((Gauges::default(), 0)))).to_bits(), UNKNOWN.to_bits());
    }
}
