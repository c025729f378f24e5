//! Whose turn it is: pure counting over the replicas of one role.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// What one replica has of the present template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Missing,
    Outdated,
    Current,
}

/// How one replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Ready,
    /// Being made, or broken.
    Unready,
    /// The scheduler has no room for it.
    Waiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) stage: Stage,
    pub(super) health: Health,
    /// Until then it has yet to prove itself.
    pub(super) due: Option<Timestamp>,
}

/// How careful to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) max_unavailable: usize,
    pub(super) ready_before: usize,
    pub(super) paused: bool,
}

/// Indices of the replicas that may be applied now. What runs nothing costs nothing; then what is broken; then, while
/// enough others are ready, what is ready.
pub(super) fn turns(replicas: &[Replica], limits: Limits) -> BTreeSet<usize> {
    let outdated = |replica: &Replica| replica.stage == Stage::Outdated;
    let which = |test: &dyn Fn(&Replica) -> bool| -> Vec<usize> {
        replicas.iter().enumerate().filter(|(_, replica)| test(replica)).map(|(index, _)| index).collect()
    };
    let mut turns: BTreeSet<usize> = which(&|one| !outdated(one)).into_iter().collect();
    if limits.paused {
        return turns;
    }
    turns.extend(which(&|one| outdated(one) && one.health == Health::Waiting));
    let mut under_way = which(&Replica::is_under_way).len();
    let mut ready = which(&|one| one.health == Health::Ready).len();
    for index in which(&|one| outdated(one) && one.health == Health::Unready) {
        if under_way < limits.max_unavailable {
            turns.insert(index);
            under_way += 1;
        }
    }
    for index in which(&|one| outdated(one) && one.health == Health::Ready) {
        if under_way < limits.max_unavailable && ready + limits.max_unavailable > limits.ready_before {
            turns.insert(index);
            under_way += 1;
            ready -= 1;
        }
    }
    turns
}

// === impl Replica ===

impl Replica {
    /// Of the present template and not there yet; what only lacks room is nobody's fault.
    pub(super) fn is_under_way(&self) -> bool {
        self.stage != Stage::Outdated && self.health == Health::Unready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// `O` outdated, `C` current, `M` missing; then `r` ready, `u` unready, `w` waiting for room.
    fn replicas(text: &str) -> Vec<Replica> {
        let one = |word: &str| Replica {
            stage: match &word[..1] {
                "O" => Stage::Outdated,
                "C" => Stage::Current,
                _ => Stage::Missing,
            },
            health: match &word[1..] {
                "r" => Health::Ready,
                "w" => Health::Waiting,
                _ => Health::Unready,
            },
            due: None,
        };
        text.split_whitespace().map(one).collect()
    }

    /// The indices among the outdated that may go now.
    fn next(text: &str, max_unavailable: usize, ready_before: usize) -> Vec<usize> {
        let replicas = replicas(text);
        let limits = Limits { max_unavailable, ready_before, paused: false };
        turns(&replicas, limits).into_iter().filter(|index| replicas[*index].stage == Stage::Outdated).collect()
    }

    // spec: TOP-75
    #[rstest]
    #[case::the_first("Or Or Or", 1, 3, &[0])]
    #[case::one_is_under_way("Cu Or Or", 1, 3, &[])]
    #[case::it_is_ready("Cr Or Or", 1, 3, &[1])]
    #[case::two_at_a_time("Or Or Or", 2, 3, &[0, 1])]
    #[case::one_of_two_is_under_way("Cu Or Or", 2, 3, &[1])]
    #[case::one_is_enough("Or", 1, 1, &[0])]
    #[case::done("Cr Cr", 1, 2, &[])]
    #[case::the_broken_one_first("Or Ou Or", 1, 2, &[1])]
    #[case::all_broken("Ou Ou", 1, 0, &[0])]
    #[case::undone_after_the_first_bad_one("Ou Cr Cr", 1, 3, &[0])]
    #[case::two_broken_ones("Ou Ou Cr", 1, 3, &[0])]
    #[case::a_new_one_is_tried_first("Or Or Mu", 1, 2, &[])]
    #[case::a_new_one_is_bad("Or Or Cu", 1, 2, &[])]
    // What waits for room runs nothing, and keeps nobody waiting.
    #[case::no_room_for_one("Or Ow", 1, 1, &[0, 1])]
    #[case::no_room_for_its_successor("Or Cw", 1, 1, &[0])]
    #[case::its_place_was_taken_by_another("Cw Or Cr", 1, 2, &[1])]
    // But a template that fits nowhere takes one down and no more.
    #[case::the_new_one_fits_nowhere("Cw Or", 1, 2, &[])]
    #[case::nor_does_the_next("Ow Or", 1, 2, &[0])]
    fn whose_turn_it_is(#[case] state: &str, #[case] most: usize, #[case] before: usize, #[case] expect: &[usize]) {
        assert_eq!(next(state, most, before), expect);
    }

    #[test]
    fn paused_nothing_that_runs_is_touched() {
        let limits = Limits { max_unavailable: 1, ready_before: 1, paused: true };
        assert_eq!(turns(&replicas("Or Ow Mu Cr"), limits), BTreeSet::from([2, 3]));
    }
}
