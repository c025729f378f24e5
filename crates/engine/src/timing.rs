//! How long the simulated accelerator takes.

use std::time::Duration;

/// Speed of one engine with one accelerator; tensor parallelism divides the times.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// Prompt tokens computed per second; prefills run one after the other.
    pub prefill_tokens_per_second: f64,
    /// One decode step of a single sequence.
    pub decode_step: Duration,
    /// What every further sequence of the batch adds to the step.
    pub decode_step_per_sequence: Duration,
}

impl Default for Timing {
    /// Roughly an 8B model on one H100.
    fn default() -> Self {
        Self {
            prefill_tokens_per_second: 12_000.0,
            decode_step: Duration::from_millis(8),
            decode_step_per_sequence: Duration::from_micros(250),
        }
    }
}

impl Timing {
    /// As fast as the machine goes: for tests that look at answers, not at time.
    pub fn instant() -> Self {
        Self {
            prefill_tokens_per_second: f64::INFINITY,
            decode_step: Duration::ZERO,
            decode_step_per_sequence: Duration::ZERO,
        }
    }

    /// Time to compute `tokens` prompt tokens that no cache holds.
    pub(crate) fn prefill(&self, tokens: usize, tensor_parallel: usize) -> Duration {
        let rate = self.prefill_tokens_per_second * tensor_parallel.max(1) as f64;
        Duration::try_from_secs_f64(tokens as f64 / rate).unwrap_or(Duration::ZERO)
    }

    /// Time of one decode step for a batch of `running` sequences.
    pub(crate) fn decode(&self, running: usize, tensor_parallel: usize) -> Duration {
        let others = u32::try_from(running.saturating_sub(1)).unwrap_or(u32::MAX);
        let step = self.decode_step.saturating_add(self.decode_step_per_sequence.saturating_mul(others));
        step.div_f64(tensor_parallel.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_batch_slows_every_step_but_less_than_in_proportion() {
        let timing = Timing::default();
        let (one, eight) = (timing.decode(1, 1), timing.decode(8, 1));
        assert!(eight > one && eight < one * 8, "{one:?} {eight:?}");
    }

    #[test]
    fn more_accelerators_are_faster() {
        let timing = Timing::default();
        assert_eq!(timing.prefill(12_000, 1), Duration::from_secs(1));
        assert_eq!(timing.prefill(12_000, 4), Duration::from_millis(250));
        assert!(timing.decode(1, 4) < timing.decode(1, 1));
    }

    #[test]
    fn instant_takes_no_time() {
        assert_eq!(Timing::instant().prefill(1_000_000, 1), Duration::ZERO);
        assert_eq!(Timing::instant().decode(64, 1), Duration::ZERO);
    }
}
