//! What was measured.

use std::io::Write as _;
use std::time::Duration;

use crate::Result;

/// Named numbers, in the order they were measured.
#[derive(Default)]
pub(crate) struct Figures(Vec<(String, f64)>);

impl Figures {
    pub(crate) fn add(&mut self, name: &str, value: f64) {
        self.0.push((name.to_owned(), value));
    }

    /// Operations a second and the time of one, of operations that were timed one by one.
    pub(crate) fn add_timed(&mut self, name: &str, mut each: Vec<Duration>, whole: Duration) {
        each.sort();
        let at = |part: usize| each.get(each.len() * part / 100).map_or(0.0, |at| at.as_secs_f64() * 1000.0);
        self.add(&format!("{name}_per_s"), each.len() as f64 / whole.as_secs_f64());
        self.add(&format!("{name}_p50_ms"), at(50));
        self.add(&format!("{name}_p99_ms"), at(99));
    }

    pub(crate) fn print(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for (name, value) in &self.0 {
            writeln!(out, "{name} {value:.3}")?;
        }
        Ok(())
    }
}
