//! Measurements of a phase.

use std::io::Write as _;
use std::time::Duration;

use crate::result::Result;

/// Names and values in the order in which they were added.
#[derive(Default)]
pub(crate) struct Measurements(Vec<(String, f64)>);

impl Measurements {
    /// Adds a value.
    pub(crate) fn add(&mut self, name: &str, value: f64) {
        self.0.push((name.to_owned(), value));
    }

    /// Adds the operations per second and the latency percentiles of a set of operations.
    pub(crate) fn add_latencies(&mut self, name: &str, mut latencies: Vec<Duration>, duration: Duration) {
        latencies.sort();
        let percentile = |percent: usize| {
            latencies.get(latencies.len() * percent / 100).map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
        };
        self.add(&format!("{name}_per_s"), latencies.len() as f64 / duration.as_secs_f64());
        self.add(&format!("{name}_p50_ms"), percentile(50));
        self.add(&format!("{name}_p99_ms"), percentile(99));
    }

    /// Prints each measurement as a line `name value`.
    pub(crate) fn print(&self) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        for (name, value) in &self.0 {
            writeln!(stdout, "{name} {value:.3}")?;
        }
        Ok(())
    }
}
