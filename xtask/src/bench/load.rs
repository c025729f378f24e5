//! Load test of the embedded API server: 50,000 objects, 500 watches and 64 writers over HTTPS. Optionally compares with a
//! kube-apiserver and etcd, using the same load generator on both in turn.

use std::collections::BTreeMap;

use anyhow::Result;

use super::options::Options;
use super::results::{median, print_result};
use super::server::Server;

const TARGET_START_MS: f64 = 100.0;
/// Target factor of improvement over kube-apiserver for each metric.
const TARGET_FACTOR: f64 = 5.0;

/// The reported metrics with their units.
const METRICS: &[(&str, &str, Better)] = &[
    ("start_ms", "ms", Better::Lower),
    ("idle_mib", "MiB", Better::Lower),
    ("create_per_s", "/s", Better::Higher),
    ("create_p50_ms", "ms", Better::Lower),
    ("create_p99_ms", "ms", Better::Lower),
    ("patch_per_s", "/s", Better::Higher),
    ("patch_p50_ms", "ms", Better::Lower),
    ("patch_p99_ms", "ms", Better::Lower),
    ("fanout_events_per_s", "/s", Better::Higher),
    ("soak_writes_per_s", "/s", Better::Higher),
    ("soak_writes_p99_ms", "ms", Better::Lower),
    ("soak_write_worst_ms", "ms", Better::Lower),
    ("soak_events_per_s", "/s", Better::Higher),
    ("list_ms", "ms", Better::Lower),
    ("list_paged_ms", "ms", Better::Lower),
    // CPU time of the server only, without the load generator and other programs.
    ("create_cpu_s", "s", Better::Lower),
    ("patch_cpu_s", "s", Better::Lower),
    ("fanout_cpu_s", "s", Better::Lower),
    ("soak_cpu_s", "s", Better::Lower),
    ("list_cpu_s", "s", Better::Lower),
    ("resident_mib", "MiB", Better::Lower),
    ("peak_mib", "MiB", Better::Lower),
];

/// Whether lower or higher values of a metric are better.
#[derive(Clone, Copy)]
enum Better {
    Higher,
    Lower,
}

/// Samples by metric.
type Samples = BTreeMap<String, Vec<f64>>;

pub(super) fn run(options: &Options) -> Result<()> {
    let mut servers = vec![Server::embedded()?];
    if let Some(binaries) = &options.compare_binaries {
        servers.push(Server::real(binaries)?);
    }
    let mut samples: Vec<Samples> = servers.iter().map(|_| Samples::new()).collect();
    for (server, samples) in servers.iter().zip(&mut samples) {
        record(samples, [("start_ms", server.start_ms), ("idle_mib", server.resident_mib()?)]);
    }
    run_phases(options, &servers, &mut samples)?;
    for (server, samples) in servers.iter().zip(&mut samples) {
        record(samples, [("resident_mib", server.resident_mib()?), ("peak_mib", server.peak_mib()?)]);
    }
    report(&servers, &samples);
    Ok(())
}

/// Runs the short phases in turn on all servers, so that other load on the host affects them equally, then the long ones.
fn run_phases(options: &Options, servers: &[Server], samples: &mut [Samples]) -> Result<()> {
    let size = |name: &str, full: usize| format!("{name}={}", options.size.scale(full));
    let (count, events) = (size("count", 5000), size("count", 500));
    let (objects, watches) = (size("objects", 50_000), size("watches", 500));
    let mut phases: Vec<Vec<&str>> = Vec::new();
    for _ in 0..options.size.choose(3, 1) {
        phases.extend([vec!["create", &count], vec!["patch", &count], vec!["fanout", &events, &watches]]);
    }
    phases.extend([vec!["soak", &objects, &watches], vec!["list"]]);
    for arguments in phases {
        for (server, samples) in servers.iter().zip(&mut *samples) {
            let (cpu_before, mut results) = (server.cpu_seconds()?, server.run_phase(&arguments)?);
            let name = arguments.first().copied().unwrap_or_default();
            results.push((format!("{name}_cpu_s"), server.cpu_seconds()? - cpu_before));
            eprintln!("{:<22} {}", server.name, format_results(&results));
            record(samples, results);
        }
    }
    Ok(())
}

fn format_results(results: &[(String, f64)]) -> String {
    results.iter().map(|(name, value)| format!("{name} {value:.1}")).collect::<Vec<_>>().join("  ")
}

fn record<N: Into<String>>(samples: &mut Samples, results: impl IntoIterator<Item = (N, f64)>) {
    results.into_iter().for_each(|(name, value)| samples.entry(name.into()).or_default().push(value));
}

fn report(servers: &[Server], samples: &[Samples]) {
    let median_of = |samples: &Samples, name: &str| median(samples.get(name).cloned().unwrap_or_default());
    let (Some(embedded), reference) = (samples.first(), samples.get(1)) else { return };
    print_result("start", median_of(embedded, "start_ms"), "ms", TARGET_START_MS);
    for (name, unit, better) in METRICS {
        let value = median_of(embedded, name);
        let Some(reference_value) = reference.map(|reference| median_of(reference, name)) else {
            println!("{name:<22} {value:>12.1} {unit}");
            continue;
        };
        let factor = match better {
            Better::Higher => value / reference_value,
            Better::Lower => reference_value / value,
        };
        println!(
            "{name:<22} {value:>12.1} {reference_value:>12.1} {unit:<4} {factor:>7.1} times better (target {TARGET_FACTOR})"
        );
    }
    for (server, samples) in servers.iter().zip(samples) {
        println!(
            "{}: {} watches lost or reordered events; slow watches: {} received 410, {} closed, {} caught up",
            server.name,
            median_of(samples, "soak_watches_wrong"),
            total(samples, "soak_slow_received_410"),
            total(samples, "soak_slow_closed"),
            total(samples, "soak_slow_caught_up"),
        );
    }
}

fn total(samples: &Samples, name: &str) -> f64 {
    samples.get(name).map_or(0.0, |values| values.iter().sum())
}
