//! Random times, sizes and popularities.

use std::time::Duration;

use fastrand::Rng;

/// Returns the time to the next event of a Poisson process with `rate` events per second.
pub(crate) fn exponential(rate: f64, rng: &mut Rng) -> Duration {
    Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / rate)
}

/// Returns a size with a log-normal distribution, as the lengths of prompts and outputs have, limited to `1..=max`.
pub(crate) fn log_normal(median: f64, sigma: f64, max: usize, rng: &mut Rng) -> usize {
    let normal = (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
    ((median * (sigma * normal).exp()) as usize).clamp(1, max)
}

/// Returns a position below `count` with a Zipf distribution: the popularity of documents, prompts and adapters.
pub(crate) fn zipf(count: usize, exponent: f64, rng: &mut Rng) -> usize {
    let weight = |position: usize| 1.0 / ((position + 1) as f64).powf(exponent);
    let mut remaining = rng.f64() * (0..count).map(weight).sum::<f64>();
    for position in 0..count {
        remaining -= weight(position);
        if remaining < 0.0 {
            return position;
        }
    }
    count - 1
}
