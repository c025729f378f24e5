//! The control plane keeps its invariants, and a seed determines its run.

use simulation::{Schedule, Seed, Simulation};

const SEEDS: u64 = 200;
/// Number of tests that run the seeds in parallel.
const TESTS: u64 = 8;

/// Runs a seed; panics with the seed, and journal and schedule of the smallest failing schedule.
fn check(seed: u64) {
    let simulation = Simulation::new(Seed(seed));
    let report = simulation.run().unwrap();
    let Some(violation) = report.violation else { return };
    let smallest = simulation.shrink(&report.injections, &violation);
    let report = simulation.replay(&smallest.injections).unwrap();
    panic!("seed {seed}: {}\n{}\n{smallest}", report.violation.unwrap_or(violation), report.journal);
}

/// The seeds of one of the tests. The invariants include that a gang is never partially bound, that its PodGroup changes before its
/// replicas, and that a role is updated one replica at a time.
// spec: TOP-66
// spec: TOP-67
// spec: TOP-72
// spec: TOP-75
#[rstest::rstest]
fn invariants_hold(#[values(0, 1, 2, 3, 4, 5, 6, 7)] test: u64) {
    (0..SEEDS).filter(|seed| seed % TESTS == test).for_each(check);
}

/// A run in another thread and the replay of the schedule have the same journal, byte for byte, including all reads.
#[test]
fn a_seed_determines_the_journal() {
    for seed in 0..3 {
        let run = move || {
            let report = Simulation::new(Seed(seed)).run().unwrap();
            (format!("{:#}", report.journal), Schedule { seed: Seed(seed), injections: report.injections }.to_string())
        };
        let (other, _) = std::thread::spawn(run).join().unwrap();
        let (this, schedule) = run();
        assert_same_lines(seed, &this, &other);
        let schedule: Schedule = schedule.parse().unwrap();
        let replayed = Simulation::new(schedule.seed).replay(&schedule.injections).unwrap();
        assert_same_lines(seed, &this, &format!("{:#}", replayed.journal));
    }
}

/// Panics with the first line that differs, and the lines before it.
fn assert_same_lines(seed: u64, this: &str, other: &str) {
    if let Some((left, right)) = this.lines().zip(other.lines()).find(|(left, right)| left != right) {
        let before: Vec<&str> = this.lines().take_while(|line| *line != left).collect();
        panic!("seed {seed}:\n{}\n{left}\n{right}", before[before.len().saturating_sub(12)..].join("\n"));
    }
    assert_eq!(this, other);
}
