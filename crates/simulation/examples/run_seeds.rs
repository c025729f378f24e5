//! Runs the simulation with many seeds, and prints what it did, or the journal of the smallest failing schedule.
//!
//! `cargo xtask bench simulation`, or
//! `cargo run --release -p simulation --example run_seeds [--small] [--seed=NUMBER] [--seeds=FIRST..END] [--mistake=NAME]`. With
//! a planted mistake, it ends at the first seeds that find it.

use std::io::{Error, Result, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use simulation::{EntryKind, Mistake, Seed, Simulation, Violation};

const SEEDS: u64 = 10_000;
const SMALL_SEEDS: u64 = 50;

/// Which seeds are run, and with which planted mistake.
#[derive(Clone, Copy)]
struct Options {
    first_seed: u64,
    seeds: u64,
    mistake: Option<Mistake>,
}

/// What the runs did, summed up.
#[derive(Default)]
struct Totals {
    schedules: usize,
    injections: usize,
    faults: usize,
    requests: usize,
    checks: usize,
    failures: Vec<(u64, Violation)>,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse(std::env::args().skip(1))?;
    let totals = run(options)?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "schedules         {}", totals.schedules)?;
    writeln!(stdout, "injections        {}", totals.injections)?;
    writeln!(stdout, "requests          {}", totals.requests)?;
    writeln!(stdout, "faulty requests   {}", totals.faults)?;
    writeln!(stdout, "invariant checks  {}", totals.checks)?;
    writeln!(stdout, "failed schedules  {}", totals.failures.len())?;
    for (seed, violation) in &totals.failures {
        writeln!(stdout, "seed {seed}: {violation}")?;
    }
    let Some((seed, violation)) = totals.failures.first() else { return Ok(ExitCode::SUCCESS) };
    let simulation = options.simulation(*seed);
    let report = simulation.run(&simulation.shrink(&simulation.schedule(), violation))?;
    writeln!(stdout, "\nSmallest failing schedule of seed {seed}:\n{}", report.journal)?;
    Ok(ExitCode::FAILURE)
}

/// Runs the seeds on all CPUs.
fn run(options: Options) -> Result<Totals> {
    let next_seed = AtomicU64::new(options.first_seed);
    let threads = thread::available_parallelism()?.get();
    let results: Vec<Result<Totals>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| run_seeds(options, &next_seed))).collect();
        let panicked = |_| Err(Error::other("a run panicked"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).collect()
    });
    let mut totals =
        results.into_iter().try_fold(Totals::default(), |sum, totals| totals.map(|totals| sum.plus(totals)))?;
    totals.failures.sort_by_key(|(seed, _)| *seed);
    Ok(totals)
}

/// Runs one seed after another until none is left.
fn run_seeds(options: Options, next_seed: &AtomicU64) -> Result<Totals> {
    let mut totals = Totals::default();
    let end = options.first_seed.saturating_add(options.seeds);
    loop {
        let seed = next_seed.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return Ok(totals);
        }
        let simulation = options.simulation(seed);
        let schedule = simulation.schedule();
        let report = simulation.run(&schedule)?;
        let is_found = report.violation.is_some() && options.mistake.is_some();
        totals = totals.plus(Totals {
            schedules: 1,
            injections: schedule.len(),
            faults: report.journal.count(EntryKind::Fault),
            requests: report.journal.count(EntryKind::Request),
            checks: report.checks,
            failures: report.violation.map(|violation| (seed, violation)).into_iter().collect(),
        });
        if is_found {
            next_seed.store(end, Ordering::Relaxed);
            return Ok(totals);
        }
    }
}

// === impl Options ===

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self { first_seed: 0, seeds: SEEDS, mistake: None };
        for argument in arguments {
            if argument == "--small" {
                options.seeds = SMALL_SEEDS;
            } else if let Some(seed) = argument.strip_prefix("--seed=").and_then(|seed| seed.parse().ok()) {
                options = Self { first_seed: seed, seeds: 1, ..options };
            } else if let Some((first, end)) = argument.strip_prefix("--seeds=").and_then(parse_range) {
                options = Self { first_seed: first, seeds: end.saturating_sub(first), ..options };
            } else if let Some(name) = argument.strip_prefix("--mistake=") {
                let mistake = Mistake::ALL.into_iter().find(|mistake| format!("{mistake:?}") == name);
                let names = || Error::other(format!("unknown mistake {name:?}; known are {:?}", Mistake::ALL));
                options.mistake = Some(mistake.ok_or_else(names)?);
            } else {
                return Err(Error::other(format!(
                    "unexpected argument {argument:?}; use --small, --seed=NUMBER, --seeds=FIRST..END or --mistake=NAME"
                )));
            }
        }
        Ok(options)
    }

    fn simulation(self, seed: u64) -> Simulation {
        let simulation = Simulation::new(Seed(seed));
        match self.mistake {
            Some(mistake) => simulation.with_mistake(mistake),
            None => simulation,
        }
    }
}

fn parse_range(range: &str) -> Option<(u64, u64)> {
    let (first, end) = range.split_once("..")?;
    Some((first.parse().ok()?, end.parse().ok()?))
}

// === impl Totals ===

impl Totals {
    fn plus(mut self, other: Self) -> Self {
        self.schedules += other.schedules;
        self.injections += other.injections;
        self.faults += other.faults;
        self.requests += other.requests;
        self.checks += other.checks;
        self.failures.extend(other.failures);
        self
    }
}
