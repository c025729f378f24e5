//! Compares policies for the selection of engines in a simulation, and prints a table of their times to first token.
//!
//! `cargo xtask bench scheduling`, or `cargo run --release -p picker --example scheduling [--small] [WORKLOAD]`.

mod distribution;
mod engine;
mod kv_cache;
mod policies;
mod simulation;
mod statistics;
mod trace;
mod workloads;

use std::{io::Write, time::Duration};

use fastrand::Rng;
use policies::PolicyKind;
use simulation::{Measurements, simulate};
use statistics::percentile;
use workloads::{WORKLOADS, Workload};

/// How much is simulated.
struct Size {
    /// How long requests arrive.
    duration: Duration,
    seeds: u64,
}

const FULL: Size = Size { duration: Duration::from_secs(180), seeds: 8 };
const SMALL: Size = Size { duration: Duration::from_secs(30), seeds: 2 };

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let size = if arguments.iter().any(|argument| argument == "--small") { SMALL } else { FULL };
    let filter = arguments.iter().find(|argument| !argument.starts_with("--")).map_or("", String::as_str);
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "P99 (P50) of the time to first token in ms, all requests of {} seeds\n", size.seeds)?;
    let names: Vec<&str> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
    writeln!(
        stdout,
        "| workload | {} | P99 relative to the best other |\n|---|{}",
        names.join(" | "),
        "---|".repeat(names.len() + 1)
    )?;
    for workload in WORKLOADS.iter().filter(|workload| workload.name.contains(filter)) {
        let mut row = format!("| {}", workload.name);
        let mut p99 = Vec::new();
        for kind in PolicyKind::ALL {
            let mut measurements = run(workload, &size, kind)?;
            p99.push(percentile(&mut measurements.first_token, 0.99));
            let p50 = percentile(&mut measurements.first_token, 0.5);
            row += &format!(" | {:.0} ({:.0})", p99.last().copied().unwrap_or(0.0) * 1e3, p50 * 1e3);
        }
        let own = p99.pop().unwrap_or(f64::NAN);
        let best = p99.iter().copied().fold(f64::INFINITY, f64::min);
        writeln!(stdout, "{row} | {:.2} |", own / best)?;
    }
    Ok(())
}

/// Simulates `workload` with all seeds.
fn run(workload: &Workload, size: &Size, kind: PolicyKind) -> std::io::Result<Measurements> {
    let mut measurements = Measurements::default();
    for seed in 0..size.seeds {
        let trace = (workload.trace)(size.duration, &mut Rng::with_seed(seed));
        let Measurements { first_token, output_token } = simulate(workload, &trace, kind, seed)?;
        measurements.first_token.extend(first_token);
        measurements.output_token.extend(output_token);
    }
    Ok(measurements)
}
