//! Timing of the simulated accelerator.

use std::time::Duration;

/// Speed of an engine on one accelerator. Tensor parallelism divides all durations.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// Prompt tokens computed per second; prefills run sequentially.
    pub prefill_tokens_per_second: f64,
    /// Duration of a decode step with one sequence.
    pub decode_step: Duration,
    /// Additional duration of a decode step for each further sequence of the batch.
    pub decode_step_per_sequence: Duration,
}

impl Default for Timing {
    /// Returns the approximate speed of an 8B model on one H100.
    fn default() -> Self {
        Self {
            prefill_tokens_per_second: 12_000.0,
            decode_step: Duration::from_millis(8),
            decode_step_per_sequence: Duration::from_micros(250),
        }
    }
}

impl Timing {
    /// Returns a timing without delays, for tests of responses.
    pub fn instant() -> Self {
        Self {
            prefill_tokens_per_second: f64::INFINITY,
            decode_step: Duration::ZERO,
            decode_step_per_sequence: Duration::ZERO,
        }
    }

    /// Returns the duration of computing `tokens` prompt tokens that are not cached.
    pub(crate) fn prefill_duration(&self, tokens: usize, tensor_parallel_size: usize) -> Duration {
        let rate = self.prefill_tokens_per_second * tensor_parallel_size.max(1) as f64;
        Duration::try_from_secs_f64(tokens as f64 / rate).unwrap_or(Duration::ZERO)
    }

    /// Returns the duration of one decode step with `running` sequences in the batch.
    pub(crate) fn decode_duration(&self, running: usize, tensor_parallel_size: usize) -> Duration {
        let additional = u32::try_from(running.saturating_sub(1)).unwrap_or(u32::MAX);
        let duration = self.decode_step.saturating_add(self.decode_step_per_sequence.saturating_mul(additional));
        duration.div_f64(tensor_parallel_size.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_batch_slows_each_step_less_than_linearly() {
        let timing = Timing::default();
        let (one, eight) = (timing.decode_duration(1, 1), timing.decode_duration(8, 1));
        assert!(eight > one && eight < one * 8, "{one:?} {eight:?}");
    }

    #[test]
    fn tensor_parallelism_divides_durations() {
        let timing = Timing::default();
        assert_eq!(timing.prefill_duration(12_000, 1), Duration::from_secs(1));
        assert_eq!(timing.prefill_duration(12_000, 4), Duration::from_millis(250));
        assert!(timing.decode_duration(1, 4) < timing.decode_duration(1, 1));
    }

    #[test]
    fn instant_timing_has_no_delays() {
        assert_eq!(Timing::instant().prefill_duration(1_000_000, 1), Duration::ZERO);
        assert_eq!(Timing::instant().decode_duration(64, 1), Duration::ZERO);
    }
}
