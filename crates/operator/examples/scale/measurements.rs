//! What a phase measured.

use std::io::Write as _;

use crate::result::Result;

/// Measurements by name, in the order of measurement.
#[derive(Default)]
pub(crate) struct Measurements(Vec<(String, f64)>);

impl Measurements {
    pub(crate) fn add(&mut self, name: &str, value: f64) {
        self.0.push((name.to_owned(), value));
    }

    /// Adds the 50th and 99th percentiles of `durations`, in milliseconds.
    pub(crate) fn add_percentiles(&mut self, name: &str, mut times: Vec<f64>) {
        times.sort_by(f64::total_cmp);
        let percentile = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or(f64::NAN);
        self.add(&format!("{name}_p50_ms"), percentile(50));
        self.add(&format!("{name}_p99_ms"), percentile(99));
    }

    /// Prints one `name value` line per measurement.
    pub(crate) fn print(&self) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        for (name, value) in &self.0 {
            writeln!(stdout, "{name} {value:.3}")?;
        }
        Ok(())
    }
}
