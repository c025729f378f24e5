//! Runs the simulation with many seeds, and prints what it did, or the journal of the smallest failing schedule.
//!
//! `cargo xtask bench simulation`, or `cargo run --release -p simulation --example run_seeds`; see [`USAGE`]. With a planted
//! mistake, it ends at the first seeds that find it.

use std::io::{Error, Result, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use mimalloc::MiMalloc;
use simulation::{EntryKind, Mistake, Report, Schedule, Seed, Simulation, Violation};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const SEEDS: u64 = 10_000;
const SMALL_SEEDS: u64 = 50;
const USAGE: &str =
    "use --small, --seed=NUMBER, --seeds=FIRST..END, --threads=NUMBER, --mistake=NAME or --schedule=FILE";

/// Which seeds are run, and with which planted mistake.
struct Options {
    first_seed: u64,
    seeds: u64,
    threads: usize,
    mistake: Option<Mistake>,
    /// Run instead of the seeds.
    schedule: Option<Schedule>,
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
    let mut stdout = std::io::stdout().lock();
    if let Some(schedule) = &options.schedule {
        let report = options.simulation(schedule.seed.0).replay(&schedule.injections)?;
        writeln!(stdout, "{}", report.journal)?;
        if let Some(violation) = &report.violation {
            writeln!(stdout, "{violation}")?;
        }
        // The run ends at a violation.
        let skipped = schedule.injections.len().saturating_sub(report.injections.len());
        if report.violation.is_none() && skipped > 0 {
            writeln!(stdout, "{skipped} of {} actions were rejected or act on nothing", schedule.injections.len())?;
        }
        let is_success = report.violation.is_none() && skipped == 0;
        return Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let totals = run(&options)?;
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
    let smallest = simulation.shrink(&simulation.run()?.injections, violation);
    let report = simulation.replay(&smallest.injections)?;
    writeln!(stdout, "\nJournal of the smallest failing schedule of seed {seed}:\n{}", report.journal)?;
    writeln!(stdout, "The schedule, for --schedule=FILE:\n{smallest}")?;
    Ok(ExitCode::FAILURE)
}

/// Runs the seeds on several threads.
fn run(options: &Options) -> Result<Totals> {
    let next_seed = AtomicU64::new(options.first_seed);
    let results: Vec<Result<Totals>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..options.threads).map(|_| scope.spawn(|| run_seeds(options, &next_seed))).collect();
        let panicked = |_| Err(Error::other("a run panicked"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).collect()
    });
    let mut totals =
        results.into_iter().try_fold(Totals::default(), |sum, totals| totals.map(|totals| sum.plus(totals)))?;
    totals.failures.sort_by_key(|(seed, _)| *seed);
    Ok(totals)
}

/// Runs one seed after another until none is left.
fn run_seeds(options: &Options, next_seed: &AtomicU64) -> Result<Totals> {
    let mut totals = Totals::default();
    let end = options.first_seed.saturating_add(options.seeds);
    loop {
        let seed = next_seed.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return Ok(totals);
        }
        let report = options.simulation(seed).run()?;
        if let Some(violation) = &report.violation {
            writeln!(std::io::stderr(), "seed {seed}: {violation}")?;
            if options.mistake.is_some() {
                next_seed.store(end, Ordering::Relaxed);
            }
        }
        totals = totals.plus(Totals::of_run(seed, report));
    }
}

// === impl Options ===

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let threads = thread::available_parallelism()?.get();
        let mut options = Self { first_seed: 0, seeds: SEEDS, threads, mistake: None, schedule: None };
        for argument in arguments {
            let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
            let invalid = || Error::other(format!("invalid argument {argument:?}; {USAGE}"));
            match name {
                "--small" => options.seeds = SMALL_SEEDS,
                "--seed" => (options.first_seed, options.seeds) = (value.parse().map_err(|_| invalid())?, 1),
                "--seeds" => {
                    let (first, end) = parse_range(value).ok_or_else(invalid)?;
                    (options.first_seed, options.seeds) = (first, end.saturating_sub(first));
                }
                "--threads" => options.threads = value.parse().map_err(|_| invalid())?,
                "--mistake" => {
                    let mistake = Mistake::ALL.into_iter().find(|mistake| format!("{mistake:?}") == value);
                    let names = || Error::other(format!("unknown mistake {value:?}; known are {:?}", Mistake::ALL));
                    options.mistake = Some(mistake.ok_or_else(names)?);
                }
                "--schedule" => options.schedule = Some(std::fs::read_to_string(value)?.parse()?),
                _ => return Err(invalid()),
            }
        }
        Ok(options)
    }

    fn simulation(&self, seed: u64) -> Simulation {
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
    fn of_run(seed: u64, report: Report) -> Self {
        Self {
            schedules: 1,
            injections: report.injections.len(),
            faults: report.journal.count(EntryKind::Fault),
            requests: report.journal.count(EntryKind::Request),
            checks: report.checks,
            failures: report.violation.map(|violation| (seed, violation)).into_iter().collect(),
        }
    }

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
