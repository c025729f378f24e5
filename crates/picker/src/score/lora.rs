//! LoRA affinity scorer: prefers a loaded adapter over a free slot, and a free slot over a queued adapter.

use crate::{candidate::Candidate, engine_metrics::LoraAdapters};

/// Score without metrics.
const UNKNOWN_SCORE: f64 = 0.5;

/// How soon an engine can run an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdapterState {
    /// The adapter is loaded.
    Loaded,
    /// The adapter is not loaded, and a slot is free.
    FreeSlot,
    /// Requests for the adapter wait for a slot.
    Queued,
    /// Other adapters occupy all slots.
    NoFreeSlot,
}

/// Returns a score for how soon the endpoint can run `model` as a LoRA adapter.
pub(crate) fn score(model: &str, candidate: &Candidate) -> f64 {
    candidate.blend_with_default(
        |metrics| metrics.lora_adapters.as_ref().map(|adapters| AdapterState::new(model, adapters).score()),
        UNKNOWN_SCORE,
    )
}

// === impl AdapterState ===

impl AdapterState {
    /// Returns the state of the adapter `model`.
    pub(super) fn new(model: &str, adapters: &LoraAdapters) -> Self {
        if adapters.running.contains(model) {
            Self::Loaded
        } else if adapters.running.union(&adapters.waiting).count() < adapters.slots {
            Self::FreeSlot
        } else if adapters.waiting.contains(model) {
            Self::Queued
        } else {
            Self::NoFreeSlot
        }
    }

    fn score(self) -> f64 {
        match self {
            Self::Loaded => 1.0,
            Self::FreeSlot => 0.8,
            Self::Queued => 0.6,
            Self::NoFreeSlot => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{candidate::tests::candidate, engine_metrics::EngineMetrics};
    use rstest::rstest;

    #[rstest]
    #[case::loaded(2, &["mine", "other"], &[], 0, 1.0)]
    #[case::free_slot(2, &["other"], &[], 0, 0.8)]
    #[case::queued(1, &["other"], &["mine"], 0, 0.6)]
    #[case::others_queued(2, &["other"], &["third"], 0, 0.0)]
    #[case::full(1, &["other"], &[], 0, 0.0)]
    #[case::outdated_metrics(2, &["mine"], &[], 99, 0.5)]
    // spec: GW-54
    fn prefers_loaded_then_free_slot_then_queued(
        #[case] slots: usize,
        #[case] running: &[&str],
        #[case] waiting: &[&str],
        #[case] age: u64,
        #[case] expect: f64,
    ) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let adapters = LoraAdapters { slots, running: names(running), waiting: names(waiting) };
        let metrics = EngineMetrics { lora_adapters: Some(adapters), ..EngineMetrics::default() };
        assert!((score("mine", &candidate(1, Some((metrics, age)))) - expect).abs() < 1e-9);
    }

    #[test]
    fn engines_without_adapters_score_equally() {
        assert_eq!(
            score("base", &candidate(1, Some((EngineMetrics::default(), 0)))).to_bits(),
            UNKNOWN_SCORE.to_bits()
        );
    }
}
