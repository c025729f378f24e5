//! Results as Markdown tables.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

use super::super::results::median;
use super::peers::Availability;
use super::{envoy, haproxy, ostler, upstream_picker};

/// Sizes of the request bodies in bytes, and their names.
pub(super) const BODY_SIZES: [(usize, &str); 4] =
    [(200, "200 B"), (10_000, "10 KB"), (100_000, "100 KB"), (400_000, "400 KB")];

/// Targets of the ratio of two gateways: name, beginnings of the names of both, and target by body size.
const TARGETS: [(&str, &str, &str, [f64; BODY_SIZES.len()]); 3] = [
    ("ostler gateway / HAProxy", ostler::GATEWAY, haproxy::NAME, [1.5; 4]),
    ("ostler gateway / Envoy", ostler::GATEWAY, envoy::NAME, [0.6; 4]),
    ("ostler picker / EPP", ostler::PICKER, upstream_picker::NAME, [0.2, 0.1, 0.1, 0.1]),
];

/// Measurement of one gateway with one body size.
pub(super) struct Measurement {
    /// CPU time per request.
    pub(super) cpu_ms: f64,
    pub(super) requests_per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// All measurements of one gateway.
pub(super) struct Row {
    pub(super) name: String,
    /// CPU time per request in milliseconds, by body size.
    cpu_ms: BTreeMap<usize, Vec<f64>>,
    pub(super) peak_mib: Option<f64>,
    /// CPU in percent of a core, and resident memory in MiB.
    pub(super) idle: Option<(f64, f64)>,
}

/// Returns the tables of measurements and of ratios.
pub(super) fn markdown(rows: &[Row]) -> String {
    let sizes = BODY_SIZES.map(|(_, name)| name).join(" | ");
    let line = "|---".repeat(BODY_SIZES.len());
    let mut text =
        format!("| CPU ms per request | {sizes} | peak MiB | idle with 100 endpoints |\n|---{line}|---|---|\n");
    for row in rows {
        let _ = writeln!(text, "{row}");
    }
    let _ = write!(text, "\n| ratio (target) | {sizes} |\n|---{line}|\n");
    for (name, of, to, targets) in TARGETS {
        let _ = write!(text, "| {name} |");
        for ((bytes, _), target) in BODY_SIZES.into_iter().zip(targets) {
            let cpu = |prefix: &str| {
                let row = rows.iter().find(|row| row.name.starts_with(prefix));
                row.map_or(f64::NAN, |row| row.cpu_ms(bytes))
            };
            let _ = write!(text, " {} ({target}) |", Number(cpu(of) / cpu(to), 2));
        }
        text.push('\n');
    }
    text
}

/// A number with a precision, empty if it was not measured.
struct Number(f64, usize);

// === impl Row ===

impl Row {
    pub(super) fn new(peer: &Availability) -> Self {
        let name = match peer {
            Availability::Running(peer) => peer.name.clone(),
            Availability::Unavailable { name } => format!("{name}: not available"),
        };
        Self { name, cpu_ms: BTreeMap::new(), peak_mib: None, idle: None }
    }

    pub(super) fn record(&mut self, body_bytes: usize, measurement: Measurement) {
        self.cpu_ms.entry(body_bytes).or_default().push(measurement.cpu_ms);
    }

    fn cpu_ms(&self, body_bytes: usize) -> f64 {
        median(self.cpu_ms.get(&body_bytes).cloned().unwrap_or_default())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "| {} |", self.name)?;
        for (bytes, _) in BODY_SIZES {
            write!(formatter, " {} |", Number(self.cpu_ms(bytes), 3))?;
        }
        write!(formatter, " {} |", Number(self.peak_mib.unwrap_or(f64::NAN), 0))?;
        match self.idle {
            Some((percent, mib)) => write!(formatter, " {percent:.1} %, {mib:.0} MiB |"),
            None => write!(formatter, " |"),
        }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu_ms, requests_per_second, p50_ms, p99_ms } = self;
        write!(formatter, "{cpu_ms:.4} ms CPU, {requests_per_second:.0}/s, p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms")
    }
}

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() { write!(formatter, "{:.*}", self.1, self.0) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, cpu_ms: &[f64]) -> Row {
        let cpu_ms = BODY_SIZES.iter().zip(cpu_ms).map(|((bytes, _), cpu_ms)| (*bytes, vec![*cpu_ms])).collect();
        Row { name: name.to_owned(), cpu_ms, peak_mib: None, idle: None }
    }

    #[test]
    fn ratios_that_were_not_measured_are_empty() {
        let rows = [row("HAProxy 2.6.12, round robin", &[0.02, 0.03]), row("ostler gateway", &[0.03, 0.03, 0.1, 0.2])];
        let text = markdown(&[row("Envoy: not available", &[])].into_iter().chain(rows).collect::<Vec<_>>());
        assert!(text.contains("| Envoy: not available |  |  |  |  |  | |\n"), "{text}");
        assert!(text.contains("| ostler gateway / HAProxy | 1.50 (1.5) | 1.00 (1.5) |  (1.5) |  (1.5) |\n"), "{text}");
        assert!(text.contains("| ostler gateway / Envoy |  (0.6) |"), "{text}");
    }
}
