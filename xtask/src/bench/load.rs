//! Load on the embedded API server: 50,000 objects, 500 watches, 64 writers; beside a kube-apiserver with etcd where there
//! is one. The same generator for both, over HTTPS, in turns.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::server::Server;
use super::{median, print};
use crate::process::{cargo, run as must};

const ROUNDS: usize = 3;
const START_MS: f64 = 100.0;
/// How much better than the real server each figure should be.
const TIMES: f64 = 5.0;

/// What is printed, and whether more is better.
const FIGURES: &[(&str, &str, Better)] = &[
    ("start_ms", "ms", Better::Less),
    ("idle_mib", "MiB", Better::Less),
    ("create_per_s", "/s", Better::More),
    ("create_p50_ms", "ms", Better::Less),
    ("create_p99_ms", "ms", Better::Less),
    ("patch_per_s", "/s", Better::More),
    ("patch_p50_ms", "ms", Better::Less),
    ("patch_p99_ms", "ms", Better::Less),
    ("fanout_events_per_s", "/s", Better::More),
    ("soak_writes_per_s", "/s", Better::More),
    ("soak_writes_p99_ms", "ms", Better::Less),
    ("soak_write_worst_ms", "ms", Better::Less),
    ("soak_events_per_s", "/s", Better::More),
    ("list_ms", "ms", Better::Less),
    ("list_paged_ms", "ms", Better::Less),
    // Of the server alone, so that neither the generator nor other programs of the machine count.
    ("create_cpu_s", "s", Better::Less),
    ("patch_cpu_s", "s", Better::Less),
    ("fanout_cpu_s", "s", Better::Less),
    ("soak_cpu_s", "s", Better::Less),
    ("list_cpu_s", "s", Better::Less),
    ("resident_mib", "MiB", Better::Less),
    ("peak_mib", "MiB", Better::Less),
];

#[derive(Clone, Copy)]
enum Better {
    More,
    Less,
}

type Measured = BTreeMap<String, Vec<f64>>;

struct Options {
    beside: Option<PathBuf>,
    /// Divides every size.
    divisor: usize,
}

pub(super) fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    must(&mut cargo(&["build", "--release", "--package", "embedded", "--example", "serve", "--example", "load"]))?;
    let mut servers = vec![Server::embedded()?];
    if let Some(binaries) = &options.beside {
        servers.push(Server::real(binaries)?);
    }
    let mut measured: Vec<Measured> = servers.iter().map(|_| Measured::new()).collect();
    for (server, measured) in servers.iter().zip(&mut measured) {
        note(measured, [("start_ms", server.start_ms), ("idle_mib", server.resident_mib()?)]);
    }
    phases(&options, &servers, &mut measured)?;
    for (server, measured) in servers.iter().zip(&mut measured) {
        note(measured, [("resident_mib", server.resident_mib()?), ("peak_mib", server.peak_mib()?)]);
    }
    report(&servers, &measured);
    Ok(())
}

/// Short phases in turns, so that a busy moment of the machine hits both; then the long ones.
fn phases(options: &Options, servers: &[Server], measured: &mut [Measured]) -> Result<()> {
    let size = |name: &str, full: usize| format!("{name}={}", (full / options.divisor).max(1));
    let (count, events) = (size("count", 5000), size("count", 500));
    let (objects, watches) = (size("objects", 50_000), size("watches", 500));
    let mut turns: Vec<Vec<&str>> = Vec::new();
    for _ in 0..ROUNDS {
        turns.extend([vec!["create", &count], vec!["patch", &count], vec!["fanout", &events, &watches]]);
    }
    turns.extend([vec!["soak", &objects, &watches], vec!["list"]]);
    for arguments in turns {
        for (server, measured) in servers.iter().zip(&mut *measured) {
            let (before, mut figures) = (server.cpu_seconds()?, server.phase(&arguments)?);
            let name = arguments.first().copied().unwrap_or_default();
            figures.push((format!("{name}_cpu_s"), server.cpu_seconds()? - before));
            eprintln!("{:<22} {}", server.name, told(&figures));
            note(measured, figures);
        }
    }
    Ok(())
}

fn told(figures: &[(String, f64)]) -> String {
    figures.iter().map(|(name, value)| format!("{name} {value:.1}")).collect::<Vec<_>>().join("  ")
}

fn note<N: Into<String>>(measured: &mut Measured, figures: impl IntoIterator<Item = (N, f64)>) {
    figures.into_iter().for_each(|(name, value)| measured.entry(name.into()).or_default().push(value));
}

fn report(servers: &[Server], measured: &[Measured]) {
    let of = |measured: &Measured, name: &str| median(measured.get(name).cloned().unwrap_or_default());
    let (Some(ours), real) = (measured.first(), measured.get(1)) else { return };
    print("start", of(ours, "start_ms"), "ms", START_MS);
    for (name, unit, better) in FIGURES {
        let mine = of(ours, name);
        let Some(real) = real.map(|real| of(real, name)) else {
            println!("{name:<22} {mine:>12.1} {unit}");
            continue;
        };
        let times = match better {
            Better::More => mine / real,
            Better::Less => real / mine,
        };
        println!("{name:<22} {mine:>12.1} {real:>12.1} {unit:<4} {times:>7.1} times better (aim {TIMES})");
    }
    for (server, measured) in servers.iter().zip(measured) {
        println!(
            "{}: {} watches lost or reordered an event; slow ones: {} told 410, {} closed, {} caught up",
            server.name,
            of(measured, "soak_watches_wrong"),
            count(measured, "soak_slow_told_410"),
            count(measured, "soak_slow_closed"),
            count(measured, "soak_slow_caught_up"),
        );
    }
}

fn count(measured: &Measured, name: &str) -> f64 {
    measured.get(name).map_or(0.0, |all| all.iter().sum())
}

// === impl Options ===

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { beside: None, divisor: 1 };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match (*word, words.as_slice().first()) {
                ("--small", _) => options.divisor = 10,
                ("--beside", Some(folder)) => {
                    options.beside = Some(PathBuf::from(folder));
                    words.next();
                }
                _ => bail!(
                    "bench load: {word}?\nhint: --beside FOLDER names a folder with the binaries etcd and kube-apiserver; --small divides the sizes by ten"
                ),
            }
        }
        Ok(options)
    }
}
