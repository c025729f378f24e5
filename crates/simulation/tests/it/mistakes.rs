//! The simulation finds planted mistakes.

use rstest::rstest;
use simulation::{Mistake, Seed, Simulation};

/// Number of seeds within which a mistake is found.
const MAX_SEEDS: u64 = 30;

/// A seed fails with the mistake and passes without it. The first seed is that of the search.
#[rstest]
#[case(Mistake::NoDeadline, 38)]
#[case(Mistake::NoOwnerReference, 0)]
#[case(Mistake::NoLeaderElection, 0)]
#[case(Mistake::IgnoredError, 0)]
#[case(Mistake::NoRelist, 0)]
#[case(Mistake::EarlyStatus, 0)]
#[case(Mistake::NoPruning, 0)]
#[case(Mistake::OtherFieldManager, 0)]
#[case(Mistake::FirstPageOnly, 0)]
#[case(Mistake::IgnoredRenewalError, 0)]
#[case(Mistake::NoObservedGeneration, 0)]
#[case(Mistake::OverwrittenLease, 19)]
fn planted_mistake_is_found(#[case] mistake: Mistake, #[case] first_seed: u64) {
    let violation = |simulation: Simulation| simulation.run().unwrap().violation;
    let found = (first_seed..first_seed + MAX_SEEDS)
        .find(|seed| violation(Simulation::new(Seed(*seed)).with_mistake(mistake)).is_some());
    let seed = found.unwrap_or_else(|| panic!("{mistake:?} is not found within {MAX_SEEDS} seeds"));
    assert_eq!(violation(Simulation::new(Seed(seed))), None, "seed {seed} without {mistake:?}");
}
