//! Schedules that lead to a defect, which is fixed or a planted mistake.

use rstest::rstest;
use simulation::{Mistake, Schedule, Simulation, Violation};

fn replay(schedule: &Schedule, mistake: Option<Mistake>) -> Option<Violation> {
    let simulation = Simulation::new(schedule.seed);
    let simulation = match mistake {
        Some(mistake) => simulation.with_mistake(mistake),
        None => simulation,
    };
    let report = simulation.replay(&schedule.injections).unwrap();
    if mistake.is_none() {
        assert_eq!(report.injections, schedule.injections, "each injection acts on something");
    }
    report.violation
}

fn read(name: &str) -> Schedule {
    let path = format!("{}/tests/schedules/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

/// The schedule keeps all invariants, and breaks this one with the mistake. The first two mistakes are defects that the operator had.
#[rstest]
#[case("objects-of-a-deleted-service", Mistake::StaleOwner, "the number of writes is bounded")]
#[case("event-after-a-conflict", Mistake::IgnoredConflict, "each recorded selection has an Event")]
#[case("object-of-the-same-name", Mistake::ForcedCreate, "no foreign object is changed")]
#[case("obsolete-object-replaced", Mistake::NoPreconditions, "no foreign object is changed")]
// spec: TOP-72
#[case("replica-before-its-group", Mistake::IgnoredError, "the PodGroup changes before its replicas")]
fn schedule_finds_the_mistake(#[case] name: &str, #[case] mistake: Mistake, #[case] invariant: &str) {
    let schedule = read(name);
    assert_eq!(replay(&schedule, None), None);
    assert_eq!(replay(&schedule, Some(mistake)).unwrap().invariant, invariant);
}

/// The defects that the schedules led to.
#[rstest]
#[case::group_was_not_recreated_and_its_leader_retained_its_accelerators("worker-of-a-lost-node")]
#[case::pod_did_not_count_as_available_until_the_time_that_the_clock_had_shown("availability-after-a-clock-step")]
#[case::replica_was_created_and_deleted_in_turns_while_the_pods_of_the_deleted_one_ran(
    "additional-replica-without-room"
)]
#[case::removed_replica_was_updated_although_there_was_no_room("removed-replica-without-room")]
#[case::replicas_waited_for_each_other_to_complete_their_gang("gang-with-larger-replicas")]
#[case::additional_replica_held_the_accelerators_of_its_gang("gang-with-two-larger-roles")]
#[case::status_that_arrived_late_remained("late-status")]
#[case::leaders_corrected_each_other("status-of-two-leaders")]
#[case::removed_replicas_stopped_during_a_pause("paused-gang-scaled-down")]
#[case::removed_replicas_stopped_before_another_policy("gang-with-another-policy")]
#[case::gang_was_not_reconciled_when_its_node_was_ready_again("gang-after-a-lost-node")]
fn schedule_keeps_all_invariants(#[case] name: &str) {
    assert_eq!(replay(&read(name), None), None);
}
