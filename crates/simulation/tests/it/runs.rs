//! The control plane keeps its invariants, and a seed determines its run.

use simulation::{Seed, Simulation};

const SEEDS: u64 = 200;
/// Number of tests that run the seeds in parallel.
const TESTS: u64 = 8;

/// Runs a seed; panics with the seed and the journal of the smallest failing schedule.
fn check(seed: u64) {
    let simulation = Simulation::new(Seed(seed));
    let schedule = simulation.schedule();
    let Some(violation) = simulation.run(&schedule).unwrap().violation else { return };
    let smallest = simulation.shrink(&schedule, &violation);
    let report = simulation.run(&smallest).unwrap();
    panic!("seed {seed}: {}\n{}", report.violation.unwrap_or(violation), report.journal);
}

/// The seeds of one of the tests.
#[rstest::rstest]
fn invariants_hold(#[values(0, 1, 2, 3, 4, 5, 6, 7)] test: u64) {
    (0..SEEDS).filter(|seed| seed % TESTS == test).for_each(check);
}

/// The services are deleted while their watch is behind: their objects must not be created again and again.
#[rstest::rstest]
#[case(164)]
#[case(295)]
#[case(417)]
#[case(433)]
fn fixed_defect_stays_fixed(#[case] seed: u64) {
    check(seed);
}

/// The creation of an Event conflicts with another request, although no Event of its name exists: it must be repeated.
#[rstest::rstest]
#[case(472)]
#[case(532)]
fn events_are_repeated_after_a_conflict(#[case] seed: u64) {
    check(seed);
}

/// Two runs in different threads have the same journal, byte for byte, including all reads.
#[test]
fn a_seed_determines_the_journal() {
    for seed in 0..5 {
        let journal = move || {
            let simulation = Simulation::new(Seed(seed));
            format!("{:#}", simulation.run(&simulation.schedule()).unwrap().journal)
        };
        let other = std::thread::spawn(journal).join().unwrap();
        let this = journal();
        if let Some((left, right)) = this.lines().zip(other.lines()).find(|(left, right)| left != right) {
            let before: Vec<&str> = this.lines().take_while(|line| *line != left).collect();
            panic!("seed {seed}:\n{}\n{left}\n{right}", before[before.len().saturating_sub(12)..].join("\n"));
        }
        assert_eq!(this, other);
    }
}
