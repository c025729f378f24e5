//! The simulation finds planted mistakes.

use rstest::rstest;
use simulation::{Mistake, Seed, Simulation};

/// Number of seeds within which a mistake is found.
const MAX_SEEDS: u64 = 30;

/// A seed fails with the mistake, by this invariant, and passes without it. The first seed is that of the search.
#[rstest]
#[case(Mistake::NoDeadline, 0, "a second pass writes nothing")]
#[case(Mistake::NoOwnerReference, 0, "a deleted service leaves nothing")]
#[case(Mistake::NoLeaderElection, 0, "only the leader writes")]
#[case(Mistake::IgnoredError, 0, "only the leader writes")]
#[case(Mistake::NoRelist, 0, "a second pass writes nothing")]
#[case(Mistake::EarlyStatus, 0, "the cluster becomes quiet")]
#[case(Mistake::NoPruning, 0, "the objects are those of the plan")]
#[case(Mistake::OwnershipByAnnotation, 100, "no foreign object is changed")]
#[case(Mistake::OtherFieldManager, 0, "the objects are those of the plan")]
#[case(Mistake::FirstPageOnly, 0, "the status agrees with the objects")]
#[case(Mistake::IgnoredRenewalError, 0, "only the leader writes")]
#[case(Mistake::NoObservedGeneration, 0, "the status agrees with the objects")]
#[case(Mistake::OverwrittenLease, 25, "only the leader writes")]
fn planted_mistake_is_found(#[case] mistake: Mistake, #[case] first_seed: u64, #[case] invariant: &str) {
    let violation = |simulation: Simulation| simulation.run().unwrap().violation;
    let found = (first_seed..first_seed + MAX_SEEDS).find_map(|seed| {
        let violation = violation(Simulation::new(Seed(seed)).with_mistake(mistake));
        violation.map(|violation| (seed, violation))
    });
    let (seed, found) = found.unwrap_or_else(|| panic!("{mistake:?} is not found within {MAX_SEEDS} seeds"));
    assert_eq!(found.invariant, invariant, "seed {seed} with {mistake:?}");
    assert_eq!(violation(Simulation::new(Seed(seed))), None, "seed {seed} without {mistake:?}");
}
