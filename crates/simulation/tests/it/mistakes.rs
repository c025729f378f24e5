//! The simulation finds planted mistakes.

use rstest::rstest;
use simulation::{Mistake, Seed, Simulation};

const MAX_SEEDS: u64 = 20;

/// A seed fails with the mistake and passes without it.
#[rstest]
#[case(Mistake::NoDeadline)]
#[case(Mistake::NoOwnerReference)]
#[case(Mistake::NoLeaderElection)]
#[case(Mistake::IgnoredError)]
#[case(Mistake::NoRelist)]
#[case(Mistake::EarlyStatus)]
#[case(Mistake::NoPruning)]
fn planted_mistake_is_found(#[case] mistake: Mistake) {
    let violation = |simulation: Simulation| simulation.run(&simulation.schedule()).unwrap().violation;
    let found = (0..MAX_SEEDS).find(|seed| violation(Simulation::new(Seed(*seed)).with_mistake(mistake)).is_some());
    let seed = found.unwrap_or_else(|| panic!("{mistake:?} is not found within {MAX_SEEDS} seeds"));
    assert_eq!(violation(Simulation::new(Seed(seed))), None, "seed {seed} without {mistake:?}");
}
